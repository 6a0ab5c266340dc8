"""The real programs: loaded by the loader child, pinned below one bpffs root, in force on one cgroup.

`backend` asks for them in its own words; here stand the order of the steps and the translation of what may fail.
Several instances run side by side on a machine when each has roots of its own.
"""

import errno
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import msgspec

from kbpf.datapath.ebpf import growth, links, loader, probe, selftest, source
from kbpf.datapath.ebpf.capacity import Sizes, fitting
from kbpf.datapath.ebpf.filesystem import ensure_bpffs, find_cgroup2
from kbpf.datapath.ebpf.hooks import HOOKS
from kbpf.datapath.ebpf.inheritance import take_flows
from kbpf.datapath.ebpf.layout import ALL_MAPS, specs
from kbpf.datapath.ebpf.maps import Maps, pinned_info
from kbpf.datapath.ebpf.neighbours import neighbours
from kbpf.datapath.ebpf.pins import Pins, remove
from kbpf.datapath.ebpf.rows import AnySpec
from kbpf.datapath.ebpf.sizes import GROWING
from kbpf.datapath.ebpf.uplinks import Uplinks, programs_for
from kbpf.datapath.interface import Answer, Feature, Support
from kbpf.errors import LoadFailed, MapError
from kbpf.model.device import Device

log = logging.getLogger(__name__)

_MAPS = frozenset(spec.name for spec in ALL_MAPS)
_HOOKS = frozenset(hook.name for hook in HOOKS)


class PacketPath(msgspec.Struct, frozen=True):
    """How packets from elsewhere are served; `is_there` is False where the kernel offers no way."""

    devices: Callable[[], Sequence[Device]]
    uplinks: Uplinks
    is_there: bool
    has_coarse_clock: bool = False
    """The kernel tells programs the time of the last tick, which costs less than the exact one."""
    features: tuple[Feature, ...] = ()
    """What the probe found about it."""


class HookOptions(msgspec.Struct, frozen=True):
    """What the programs on sockets are to do."""

    has_set_retval: bool
    """The kernel lets a hook choose the error of a call."""
    node_sockets_only: bool = False
    holds_node_ports: bool = False


class PinnedPrograms:
    def __init__(
        self,
        bpffs_root: Path,
        cgroup_root: Path | None,
        packet_path: PacketPath,
        *,
        hooks: HookOptions,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """No `cgroup_root`: the host's cgroup2 mount. `sizes` gives max_entries by map name where not the default."""
        self._pins = Pins(bpffs_root)
        self._wished_cgroup = cgroup_root
        self._packet_path, self._has_packet_path = packet_path, packet_path.is_there
        self._uplinks: tuple[Device, ...] = ()
        self._hooks = hooks
        self._sizes = dict(sizes or {})
        self._fixed = frozenset(self._sizes)
        self._folder: Path | None = None
        self._maps: Maps | None = None

    @property
    def specs(self) -> Sequence[AnySpec]:
        return specs(self._sizes)

    def probe(self) -> Support:
        return probe.probe(self._wished_cgroup, self._pins.root, self._packet_path.features)

    def can_grow(self, need: Sizes) -> bool:
        return fitting(self._sizes, need, self._fixed) != self._sizes

    def load_ahead(self, need: Sizes, maps_are_made: Callable[[], None]) -> None:
        with _failing_as_load():
            self._ensure_loaded(self._fitting(need), maps_are_made)

    def load(self, need: Sizes) -> Maps:
        with _failing_as_load():
            sizes = self._fitting(need)
            if not loader.has_maps(self._pins, specs(sizes)):
                self._grow(sizes)
            self._maps = Maps.open(self._pins)
            self._sizes |= self._pinned_sizes()
        return self._maps

    def _fitting(self, need: Sizes) -> Sizes:
        """The sizes that the maps must have, with the bpffs ready for them and a look at the devices."""
        self._uplinks = tuple(self._packet_path.devices()) if self._has_packet_path else ()
        ensure_bpffs(self._pins.root)
        self._pins.make_folders()
        if self._maps is not None:
            self._maps.pin(self._pins)
        self._sizes |= self._pinned_sizes()
        return fitting(self._sizes, need, self._fixed)

    def _pinned_sizes(self) -> dict[str, int]:
        pins = {name: (self._pins.map(name), self._pins.outgrown(name)) for name in GROWING - self._fixed}
        found = {name: pinned_info(new) or pinned_info(old) for name, (new, old) in pins.items()}
        return {name: info.max_entries for name, info in found.items() if info}

    def _grow(self, sizes: Sizes) -> None:
        """Load with these sizes; when the kernel does not give so much, with those that are there."""
        growing = [f"{name} to {size}" for name, size in sizes.items() if self._sizes.get(name, size) != size]
        if growing:
            log.info(f"maps grow: {', '.join(growing)} entries")
        try:
            self._ensure_loaded(sizes)
        except LoadFailed as error:
            if not growing:
                raise
            log.warning(f"the maps keep their sizes: {error}")
            growth.take_back(self._pins)
            self._fixed |= GROWING
            self._ensure_loaded(self._sizes)

    def _ensure_loaded(self, sizes: Sizes, maps_are_made: Callable[[], None] = lambda: None) -> None:
        build = source.describe(
            self._pins,
            sizes,
            has_set_retval=self._hooks.has_set_retval,
            node_sockets_only=self._hooks.node_sockets_only,
            holds_node_ports=self._hooks.holds_node_ports and self._hooks.has_set_retval,
            has_coarse_clock=self._packet_path.has_coarse_clock,
            packet_programs=programs_for(self._uplinks),
        )
        self._folder = loader.ensure_loaded(self._pins, build, maps_are_made=maps_are_made).programs

    @property
    def serves_packets(self) -> bool:
        return bool(self._uplinks)

    def open(self) -> Maps | None:
        return Maps.open(self._pins) if self._pins.maps.exists() else None

    def is_pinned(self) -> bool:
        return self._pins.holds(_MAPS, _HOOKS | self._packet_path.uplinks.pins(self._uplinks))

    def is_attached(self) -> bool:
        with _failing_as_load():
            return self._has_hooks() and self._packet_path.uplinks.is_attached(self._loaded, self._uplinks)

    def attach(self) -> int:
        with _failing_as_load():
            self._ensure_loaded(self._sizes)
            self._check_maps()
        changed = self._attach_hooks()
        with _failing_as_load():
            take_flows(self._pins)
        changed += self._attach_uplinks()
        with _failing_as_load():
            growth.finish(self._pins, self.specs)
        if changed:
            with _failing_as_load():
                take_flows(self._pins)
                self._remove_other_versions()
        return changed

    def _check_maps(self) -> None:
        """Programs are of use with the maps that were written only."""
        if self._maps is None or not self._maps.are_pinned(self._pins):
            raise MapError("the maps were replaced while the programs were loaded")

    def _has_hooks(self) -> bool:
        return links.attached(self._pins, self._cgroup) == links.program_ids(self._loaded)

    def _attach_hooks(self) -> int:
        with _failing_as_load():
            if self._has_hooks():
                return 0
        self._test()
        with _failing_as_load():
            done = links.attach(self._pins, self._loaded, self._cgroup)
            numbers = f"{len(done.created)} links created, {len(done.updated)} updated"
            log.info(f"attached the programs to {self._cgroup}: {numbers}")
            if self._hooks.holds_node_ports and not self._hooks.has_set_retval:
                log.warning("node ports are not held: the kernel lets no hook choose the error of a call")
            self._name_neighbours()
        return done.changed

    def _attach_uplinks(self) -> int:
        try:
            changed = self._packet_path.uplinks.attach(self._loaded, self._uplinks)
        except OSError as error:
            if error.errno == errno.ENODEV:
                raise MapError("a network device went while its packet programs were attached") from error
            self._has_packet_path = False
            what = f"packet programs cannot be attached: {error.strerror or error}"
            raise MapError(f"{what}; frontends for clients elsewhere are iptables' from now on") from error
        if changed:
            log.info(f"attached the packet programs to {', '.join(device.name for device in self._uplinks)}")
        return changed

    def detach_hooks(self) -> None:
        with _failing_as_load():
            links.detach(self._pins.links, _HOOKS)

    def remove(self) -> None:
        self._folder = self._maps = None
        with _failing_as_load():
            self._remove_other_versions()
            links.detach(self._pins.links)
            self._packet_path.uplinks.detach()
            remove(self._pins.folder)
            if self._pins.root.exists() and not any(self._pins.root.iterdir()):
                self._pins.root.rmdir()

    @cached_property
    def _cgroup(self) -> Path:
        found = self._wished_cgroup or find_cgroup2()
        if found is None:
            raise LoadFailed("no cgroup2 hierarchy is mounted")
        return found

    @property
    def _loaded(self) -> Path:
        if self._folder is None:
            raise LoadFailed("the programs are not loaded")
        return self._folder

    def _test(self) -> None:
        if self._maps is None:
            raise LoadFailed("the programs are not loaded")
        found = selftest.run(self._maps, self._pins, self._loaded, self._cgroup)
        if found.answer is Answer.NO:
            raise LoadFailed(f"the self-test failed: {found.reason}")
        if found.answer is Answer.UNKNOWN:
            log.warning(f"the self-test could not tell: {found.reason}")

    def _name_neighbours(self) -> None:
        others = neighbours(self._cgroup, frozenset(links.program_ids(self._loaded).values()))
        if others:
            words = "; ".join(f"{hook}: {', '.join(names)}" for hook, names in others.items())
            log.warning(f"programs of others run on the same hooks of {self._cgroup}: {words}")

    def _remove_other_versions(self) -> None:
        """After ours are in force, or with them: no socket is without programs in between, and no flow."""
        for folder in self._pins.other_versions():
            links.detach(folder / self._pins.links.name)
            remove(folder)


@contextmanager
def _failing_as_load() -> Iterator[None]:
    """Whatever a file system or the kernel refuses here means that the programs cannot be in force."""
    try:
        yield
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        raise LoadFailed(f"eBPF programs:{where}: {error.strerror or error}") from error
