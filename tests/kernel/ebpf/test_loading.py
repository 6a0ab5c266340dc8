"""The loader: once for each build, without kernel headers, killed at any moment."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from errno import ENETUNREACH
from pathlib import Path

import pytest

from kbpf.datapath.ebpf import growth, libbpf, links, loader, source, store
from kbpf.datapath.ebpf.filesystem import ensure_bpffs
from kbpf.datapath.ebpf.maps import Maps
from kbpf.datapath.ebpf.pins import Pins, remove
from kbpf.datapath.ebpf.rows import Rows
from kbpf.datapath.ebpf.shapes import (
    AffinityKey,
    AffinityValue,
    IndexKey,
    OwnerValue,
    Reason,
    SlotKey,
    SlotValue,
    Translation,
)
from kbpf.errors import LoadFailed
from kbpf.model.address import Address, packed
from tests.kernel.ebpf.builds import SMALL, describe
from tests.kernel.ebpf.world import BACKENDS4, UDP, VIP4, Frontend, Pod, backends, put_service

pytestmark = pytest.mark.root

REPOSITORY = Path(__file__).parents[3]
NO_INTERPRETER = ("/nonexistent/python",)
OWNER = OwnerValue(bytes(4), 1500)
RECORD = Translation(packed(Address(VIP4)), packed(Address(BACKENDS4[0])), 80, 8080, 7, 1, 0)
LOAD = """
import sys
from pathlib import Path
from kbpf.datapath.ebpf import loader
from kbpf.datapath.ebpf.pins import Pins
from tests.kernel.ebpf.builds import describe
pins = Pins(Path(sys.argv[1]))
loader.ensure_loaded(pins, describe(pins, {}))
"""


@pytest.fixture
def own_pins(root: Path) -> Iterator[Pins]:
    """A root of its own: these tests break what the others share."""
    own = root.with_name(f"{root.name}-loading")
    ensure_bpffs(own)
    yield Pins(own)
    remove(own)


def small_build(pins: Pins) -> source.Build:
    return describe(pins, SMALL)


def map_id(pins: Pins, name: str) -> int:
    with links.closing(libbpf.obj_get(pins.map(name))) as fd:
        return libbpf.map_info(fd).id


def test_the_loader_does_not_run_for_what_is_loaded(own_pins: Pins) -> None:
    build = small_build(own_pins)
    assert loader.ensure_loaded(own_pins, build).is_new
    again = loader.ensure_loaded(own_pins, build, NO_INTERPRETER)
    assert (again.programs, again.is_new) == (own_pins.program_folder(build.hash), False)


def test_maps_can_be_written_while_the_programs_are_compiled(own_pins: Pins) -> None:
    build, written = small_build(own_pins), []

    def write() -> None:
        assert loader.has_maps(own_pins, build.maps)
        assert not any(own_pins.programs.iterdir())
        written.append((filled(own_pins), {spec.name: map_id(own_pins, spec.name) for spec in build.maps}))

    assert loader.ensure_loaded(own_pins, build, maps_are_made=write).is_new
    maps = Maps.open(own_pins)
    assert written == [(store.observe(maps), {spec.name: map_id(own_pins, spec.name) for spec in build.maps})]
    maps.close()


def test_who_wants_larger_maps_than_are_just_being_loaded_waits_and_gets_them(own_pins: Pins) -> None:
    small, larger = small_build(own_pins), sized(own_pins, slots=8192)
    with ThreadPoolExecutor(1) as threads:
        others: list[Future[loader.Loaded]] = []
        loader.ensure_loaded(
            own_pins,
            small,
            maps_are_made=lambda: others.append(threads.submit(loader.ensure_loaded, own_pins, larger)),
        )
    assert [other.result().is_new for other in others] == [True]
    assert loader.is_loaded(own_pins, larger)


def test_who_loads_while_another_thread_does_finds_it_done(own_pins: Pins) -> None:
    build = small_build(own_pins)
    with ThreadPoolExecutor(2) as threads:
        loaded = [*threads.map(lambda _: loader.ensure_loaded(own_pins, build), range(2))]
    assert sorted(each.is_new for each in loaded) == [False, True]


def test_another_build_takes_over_the_maps_with_their_entries(own_pins: Pins) -> None:
    loader.ensure_loaded(own_pins, small_build(own_pins))
    maps = Maps.open(own_pins)
    put_service(maps, 7, [Frontend(VIP4)], backends(BACKENDS4))
    build = describe(own_pins, SMALL, node_sockets_only=True)
    assert loader.ensure_loaded(own_pins, build).is_new
    with_new = Maps.open(own_pins)
    assert len(with_new.slots.entries()) == len(BACKENDS4)
    assert [path.name for path in own_pins.programs.iterdir()] == [build.hash]
    maps.close()
    with_new.close()


def sized(pins: Pins, **sizes: int) -> source.Build:
    return describe(pins, {**SMALL, **sizes})


def filled(pins: Pins) -> Rows:
    """What the pinned maps hold, with a service and a connection in them."""
    maps = Maps.open(pins)
    put_service(maps, 7, [Frontend(VIP4)], backends(BACKENDS4))
    slot = IndexKey(OWNER.socket_cookie % SMALL["connections"])
    maps.connections.update({slot: RECORD})
    maps.owners.update({slot: OWNER})
    rows = store.observe(maps)
    maps.close()
    return rows


def test_a_larger_map_holds_what_the_smaller_one_held_and_no_other_is_replaced(own_pins: Pins) -> None:
    loader.ensure_loaded(own_pins, small_build(own_pins))
    rows = filled(own_pins)
    names = ("slots", "connections", "owners", "frontends", "affinity", "sock")
    before = {name: map_id(own_pins, name) for name in names}
    loader.ensure_loaded(own_pins, sized(own_pins, slots=8192, connections=2048))
    changed = {name for name, number in before.items() if map_id(own_pins, name) != number}
    assert changed == {"slots", "connections", "owners"}
    maps = Maps.open(own_pins)
    assert store.observe(maps) == rows
    slot = IndexKey(OWNER.socket_cookie)
    assert (maps.owners.lookup(slot), maps.connections.lookup(slot)) == (OWNER, RECORD)
    maps.close()
    growth.finish(own_pins, sized(own_pins).maps)
    assert not any(own_pins.outgrown_maps.iterdir())


def test_what_old_programs_write_until_the_new_ones_are_in_force_follows(own_pins: Pins) -> None:
    loader.ensure_loaded(own_pins, small_build(own_pins))
    old = Maps.open(own_pins)
    build = sized(own_pins, affinity=2048, slots=8192)
    loader.ensure_loaded(own_pins, build)
    client = AffinityKey(bytes(16), 7)
    old.affinity.update({client: AffinityValue(1, 2, 7)})
    old.slots.update({SlotKey(1, 1, 0, 0): SlotValue(1, 1, 1, bytes(20))})
    growth.finish(own_pins, build.maps)
    new = Maps.open(own_pins)
    assert new.affinity.lookup(client) == AffinityValue(1, 2, 7)
    assert not new.slots.entries(), "lists are user space's, which has written them anew"
    old.close()
    new.close()


@pytest.mark.parametrize("died", ["before the load", "before the rows were copied", "before the switch"])
def test_a_growth_that_died_is_finished_by_the_next_load(own_pins: Pins, died: str) -> None:
    loader.ensure_loaded(own_pins, small_build(own_pins))
    rows, build = filled(own_pins), sized(own_pins, slots=8192, membership=8192)
    growth.set_aside(own_pins, build.maps)
    if died != "before the load":
        with pytest.MonkeyPatch.context() as patch:
            if died == "before the rows were copied":
                patch.setattr(growth, "carry_over", lambda *_: None)
            loader.ensure_loaded(own_pins, build)
    loader.ensure_loaded(own_pins, build)
    maps = Maps.open(own_pins)
    assert store.observe(maps) == rows
    maps.close()


def test_a_growth_that_failed_leaves_everything_as_it_was(own_pins: Pins) -> None:
    build = small_build(own_pins)
    loader.ensure_loaded(own_pins, build)
    rows = filled(own_pins)
    with pytest.raises(LoadFailed):
        loader.ensure_loaded(own_pins, sized(own_pins, slots=8192), NO_INTERPRETER)
    growth.take_back(own_pins)
    assert not loader.ensure_loaded(own_pins, build, NO_INTERPRETER).is_new
    maps = Maps.open(own_pins)
    assert store.observe(maps) == rows
    maps.close()


def test_a_smaller_map_replaces_all_that_share_ids_and_no_other(own_pins: Pins) -> None:
    loader.ensure_loaded(own_pins, small_build(own_pins))
    names = ("frontends", "services", "affinity", "config", "sock")
    before = [map_id(own_pins, name) for name in names]
    loader.ensure_loaded(own_pins, sized(own_pins, slots=2048))
    same = [map_id(own_pins, name) == old for name, old in zip(names, before, strict=True)]
    assert same == [False, False, False, True, True]


def test_a_program_whose_maps_are_not_the_pinned_ones_is_loaded_anew(own_pins: Pins) -> None:
    build = small_build(own_pins)
    loader.ensure_loaded(own_pins, build)
    own_pins.map("frontends").unlink()
    assert not loader.is_loaded(own_pins, build)
    assert loader.ensure_loaded(own_pins, build).is_new


@pytest.mark.parametrize("share", [0.1, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9])
def test_a_load_that_is_killed_is_finished_by_the_next(own_pins: Pins, share: float) -> None:
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", LOAD, own_pins.root], cwd=REPOSITORY, check=True)
    whole_s = time.monotonic() - start
    remove(own_pins.root)
    own_pins.root.mkdir()
    with subprocess.Popen([sys.executable, "-c", LOAD, own_pins.root], cwd=REPOSITORY) as process:
        time.sleep(share * whole_s)
        process.kill()
    build = describe(own_pins, {})
    loader.ensure_loaded(own_pins, build)
    assert loader.is_loaded(own_pins, build)
    assert [path.name for path in own_pins.programs.iterdir()] == [build.hash]
    Maps.open(own_pins).close()


def test_without_set_retval_a_frontend_without_backends_passes(
    own_pins: Pins, cgroup: Path, pods: Callable[[], Pod]
) -> None:
    """Such a kernel can only answer EPERM; user space defers such frontends, and until then the call goes its way."""
    loaded = loader.ensure_loaded(own_pins, describe(own_pins, SMALL, has_set_retval=False))
    maps = Maps.open(own_pins)
    put_service(maps, 7, [Frontend(VIP4)], (), protocols=[UDP])
    links.attach(own_pins, loaded.programs, cgroup)
    assert pods().ask("connects", VIP4, 80, 3) == {f"errno {ENETUNREACH}": 3}
    assert maps.stats.read()[Reason.REJECT_PASSED] == 3
    links.detach(own_pins.links)
    maps.close()


def test_no_header_of_the_system_is_needed(own_pins: Pins) -> None:
    hide = 'for d in /lib/modules /usr/src /usr/include; do mkdir -p $d; mount -t tmpfs none $d; done; exec "$@"'
    command = ["unshare", "--mount", "sh", "-ec", hide, "sh", sys.executable, "-c", LOAD, str(own_pins.root)]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    assert loader.is_loaded(own_pins, describe(own_pins, {}))


def test_a_mistake_in_the_c_code_is_named_with_file_and_line(own_pins: Pins, tmp_path: Path) -> None:
    for path in source.bpf_folder().glob("*.[ch]"):
        (tmp_path / path.name).write_text(path.read_text())
    broken = tmp_path / "lb.h"
    lines = broken.read_text().splitlines()
    lines.insert(len(lines) - 1, "int mistake(void) { return no_such_name; }")
    broken.write_text("\n".join(lines))
    build = describe(own_pins, SMALL, folder=tmp_path)
    with pytest.raises(LoadFailed) as failure:
        loader.ensure_loaded(own_pins, build)
    assert f"lb.h:{len(lines) - 1}:" in str(failure.value)
    assert "no_such_name" in str(failure.value)
    assert "\n" not in str(failure.value)
