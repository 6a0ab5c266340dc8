"""What this kernel and host offer the eBPF datapath, found out by doing, and whether it can run.

Nothing here goes by a kernel version: distributions carry features back. `probe` changes nothing that stays; what the
daemon itself can still bring about, such as mounting a bpffs, counts as there. Its answer goes to `datapath/select.py`.
"""

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path

from kbpf.datapath.ebpf import libbpf, loader, trials
from kbpf.datapath.ebpf.filesystem import (
    BPF_FS,
    BPFFS_MOUNT_POINT,
    find_cgroup2,
    is_cgroup2,
    is_mountable,
    magic,
    nearest_existing,
    scratch_cgroup,
)
from kbpf.datapath.ebpf.filters import Filters
from kbpf.datapath.ebpf.hooks import HOOKS, PROGRAM_SCHED_CLS, TCX_INGRESS, Hook
from kbpf.datapath.ebpf.links import closing, open_cgroup
from kbpf.datapath.ebpf.packing import MapType
from kbpf.datapath.ebpf.uplinks import Way
from kbpf.datapath.interface import Answer, Feature, Support
from kbpf.errors import LoadFailed
from kbpf.model.device import Side

SET_RETVAL = "bpf_set_retval"
COARSE_CLOCK = "coarse clock"
PACKET_PROGRAMS = "packet programs"
WAYS = {Way.TCX: "tcx links", Way.CLSACT: "clsact filters"}
OPTIONAL = frozenset({SET_RETVAL, PACKET_PROGRAMS, *WAYS.values()})
"""Without these the datapath runs, and leaves what needs them to iptables."""

CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_BPF": 39}
CAP_SYS_ADMIN = 21

_BY_NAME = {hook.name: hook for hook in HOOKS}
_HELPERS = (
    (SET_RETVAL, trials.SET_RETVAL, ("connect4", "connect6", "sendmsg4", "sendmsg6")),
    ("bpf_sk_storage_get", trials.SK_STORAGE_GET, ("connect4", "sendmsg4", "recvmsg4", "getpeername4")),
    ("bpf_get_netns_cookie", trials.GET_NETNS_COOKIE, ("connect4", "sendmsg4", "sock_release")),
    ("bpf_get_socket_cookie", trials.GET_SOCKET_COOKIE, ("connect4", "sock_release")),
)
_MAP_TYPES = (MapType.HASH, MapType.LRU_HASH, MapType.PERCPU_ARRAY, MapType.LPM_TRIE, MapType.SK_STORAGE)
_BATCHED = (MapType.HASH, MapType.LRU_HASH, MapType.ARRAY)

Trial = Callable[[], str | None]
"""None: it works. Words: it does not, because. OSError: the kernel's own word for no."""


def probe(cgroup_root: Path | None, bpffs_root: Path, packet_path: Sequence[Feature] = ()) -> Support:
    """Can the datapath run with these roots? None: the host's cgroup2 mount. `packet_path` as found before."""
    basic = (probe_capabilities(), probe_libbpf())
    host = (probe_cgroup(cgroup_root), probe_bpffs(bpffs_root), probe_bcc())
    lacking = next((feature for feature in basic if feature.answer is not Answer.YES), None)
    kernel = (not_tried(name, lacking) if lacking else tried(name, trial) for name, trial in _TRIALS.items())
    link = not_tried("cgroup link", lacking) if lacking else probe_link(cgroup_root or find_cgroup2())
    return decide((*basic, *host, *kernel, link, *packet_path))


def decide(features: Iterable[Feature]) -> Support:
    """No, if anything that is needed is missing; cannot tell, if anything of it could not be tried."""
    features = tuple(features)
    needed = [feature for feature in features if feature.name not in OPTIONAL]
    for answer in (Answer.NO, Answer.UNKNOWN):
        for feature in needed:
            if feature.answer is answer:
                return Support(answer, f"{feature.name}: {feature.reason}", features)
    return Support(Answer.YES, "", features)


def tried(name: str, trial: Trial) -> Feature:
    try:
        why_not = trial()
    except OSError as error:
        why_not = error.strerror or str(error)
    return Feature(name, Answer.NO, why_not) if why_not else Feature(name, Answer.YES)


def not_tried(name: str, lacking: Feature) -> Feature:
    return Feature(name, Answer.UNKNOWN, f"not tried: {lacking.reason}")


def has_set_retval() -> bool:
    """May a hook choose the errno of a refused call? The programs are built accordingly."""
    return tried(SET_RETVAL, _TRIALS[SET_RETVAL]).answer is Answer.YES


def has_coarse_clock() -> bool:
    """May packet programs ask for the time of the last tick (Linux 5.11)? They are built accordingly."""
    return tried(COARSE_CLOCK, _try_coarse_clock).answer is Answer.YES


def _try_coarse_clock() -> str | None:
    is_there = trials.knows_helper(PROGRAM_SCHED_CLS, 0, trials.KTIME_GET_COARSE_NS)
    return None if is_there else "the kernel does not offer it"


def packet_path(filters: Filters, ways: Sequence[Way]) -> tuple[Feature, ...]:
    """What packets from elsewhere need: the programs, and a way to put them on devices. One that works is enough."""
    found = [tried(PACKET_PROGRAMS, _try_packet_programs)]
    for way in ways:
        if found[-1].answer is Answer.YES and len(found) > 1:
            found.append(Feature(WAYS[way], Answer.UNKNOWN, f"not tried: {found[-1].name} do it"))
        else:
            found.append(tried(WAYS[way], _try_tcx if way is Way.TCX else partial(_try_clsact, filters)))
    return tuple(found)


def way_onto_devices(found: Sequence[Feature]) -> Way | None:
    """None: iptables serves packets from elsewhere."""
    there = {feature.name for feature in found if feature.answer is Answer.YES}
    return next((way for way, name in WAYS.items() if {PACKET_PROGRAMS, name} <= there), None)


def _try_packet_programs() -> str | None:
    lacking = [helper for helper in trials.PACKET_HELPERS if not trials.knows_helper(PROGRAM_SCHED_CLS, 0, helper)]
    return f"the kernel does not offer helpers {lacking}" if lacking else None


@cache
def _try_tcx() -> None:
    """On loopback, for a moment, a program that leaves everything to the next one.

    What worked once is not tried again: the kernel waits 50 ms for the end of such a moment.
    """
    with closing(trials.load_program(PROGRAM_SCHED_CLS, 0, trials.RETURN_NEXT)) as program_fd:
        os.close(libbpf.link_create(program_fd, socket.if_nametoindex("lo"), TCX_INGRESS))


def _try_clsact(filters: Filters) -> None:
    """The same, as a filter."""
    loopback = socket.if_nametoindex("lo")
    with closing(trials.load_program(PROGRAM_SCHED_CLS, 0, trials.RETURN_NEXT)) as program_fd:
        filters.put(loopback, Side.INGRESS, program_fd, "probe")
        filters.remove(loopback, Side.INGRESS)


def _try_hook(hook: Hook) -> None:
    os.close(trials.load_program(hook.program_type, hook.attach_type))


def _try_helper(helper: int, hooks: tuple[str, ...]) -> str | None:
    lacking = [
        name
        for name in hooks
        if not trials.knows_helper(_BY_NAME[name].program_type, _BY_NAME[name].attach_type, helper)
    ]
    return f"the kernel does not offer it to {', '.join(lacking)}" if lacking else None


def _try_map(map_type: MapType) -> None:
    os.close(trials.create_map(map_type))


def _try_batch() -> str | None:
    """With every kind of map that is written in batches."""
    lacking = [map_type.name.lower() for map_type in _BATCHED if not _takes_batches(map_type)]
    return f"the kernel does not offer them for {', '.join(lacking)}" if lacking else None


def _takes_batches(map_type: MapType) -> bool:
    with closing(trials.create_map(map_type)) as fd:
        try:
            libbpf.map_update_batch(fd, bytearray(4), bytearray(8), 1)
        except OSError as error:
            if error.errno == libbpf.ENOTSUPP:
                return False
            raise
    return True


_TRIALS: dict[str, Trial] = {
    **{f"hook {hook.name}": partial(_try_hook, hook) for hook in HOOKS},
    **{name: partial(_try_helper, helper, hooks) for name, helper, hooks in _HELPERS},
    **{f"map {map_type.name.lower()}": partial(_try_map, map_type) for map_type in _MAP_TYPES},
    "map batches": _try_batch,
}


def probe_link(cgroup_root: Path | None) -> Feature:
    """Attach a program that lets everything pass, where no process is."""
    name = "cgroup link"
    if cgroup_root is None:
        return Feature(name, Answer.UNKNOWN, "there is no cgroup to attach to")
    try:
        with scratch_cgroup(cgroup_root, "probe") as cgroup:
            return tried(name, partial(_try_link, cgroup))
    except OSError as error:
        return Feature(name, Answer.UNKNOWN, f"cannot make a cgroup below {cgroup_root}: {error.strerror}")


def _try_link(cgroup: Path) -> None:
    hook = HOOKS[0]
    with (
        open_cgroup(cgroup) as cgroup_fd,
        closing(trials.load_program(hook.program_type, hook.attach_type)) as program_fd,
    ):
        os.close(libbpf.link_create(program_fd, cgroup_fd, hook.attach_type))


def probe_capabilities(status: Path = Path("/proc/self/status")) -> Feature:
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    effective = int(fields["CapEff"], 16)
    missing = [name for name, bit in CAPABILITIES.items() if not effective >> bit & 1]
    if missing and not effective >> CAP_SYS_ADMIN & 1:
        return Feature("capabilities", Answer.NO, f"missing {' and '.join(missing)}")
    return Feature("capabilities", Answer.YES)


def probe_libbpf() -> Feature:
    try:
        libbpf.library()
    except OSError as error:
        return Feature("libbpf", Answer.NO, f"{libbpf.LIBRARY} cannot be loaded: {error}")
    return Feature("libbpf", Answer.YES)


def probe_cgroup(root: Path | None) -> Feature:
    path = root or find_cgroup2()
    if path is None:
        return Feature("cgroup2", Answer.NO, "no cgroup2 hierarchy is mounted")
    if not is_cgroup2(path):
        return Feature("cgroup2", Answer.NO, f"{path} is not a folder of a cgroup2 hierarchy")
    return Feature("cgroup2", Answer.YES, str(path))


def probe_bpffs(root: Path, mount_point: Path = BPFFS_MOUNT_POINT) -> Feature:
    try:
        if magic(nearest_existing(root)) == BPF_FS:
            return Feature("bpffs", Answer.YES, str(root))
        if is_mountable(root, mount_point):
            return Feature("bpffs", Answer.YES, f"not mounted yet; kbpf mounts it on {mount_point}")
    except OSError as error:
        return Feature("bpffs", Answer.UNKNOWN, f"{root}: {error.strerror}")
    return Feature("bpffs", Answer.NO, f"{root} is not on a bpffs")


def probe_bcc() -> Feature:
    try:
        bcc = loader.find_bcc()
    except LoadFailed as error:
        return Feature("bcc", Answer.NO, str(error))
    return Feature("bcc", Answer.YES, f"{bcc.version} under {bcc.interpreter}")
