"""Brings the maps and programs of a build into the kernel, pinned, by short-lived children that have BCC.

`ensure_loaded` does nothing when the pins already hold exactly this build. It may be killed at any moment: the next run
takes over maps one by one, and programs count only once their folder has its final name. Traffic meets nothing of this
before `links` attaches it.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from kbpf.datapath.ebpf import growth, libbpf, maps
from kbpf.datapath.ebpf.child import Reply, ask
from kbpf.datapath.ebpf.links import closing
from kbpf.datapath.ebpf.packing import MapSpec
from kbpf.datapath.ebpf.pins import Pins, remove
from kbpf.datapath.ebpf.source import Build, Unit, bpf_folder
from kbpf.errors import LoadFailed

log = logging.getLogger(__name__)

# BCC belongs to the distribution's Python; the daemon's may be another.
INTERPRETERS: tuple[str, ...] = tuple(dict.fromkeys((sys.executable, "/usr/bin/python3")))
# It needs two seconds of a processor. A node that is starting, or emulated, may not have them for minutes.
TIMEOUT_S = 300.0
_CHILD = Path(__file__).with_name("loader_child.py")
_LOADING = threading.Lock()
"""Pins are taken over one by one: who else in this process wants to load waits."""


class Loaded(msgspec.Struct, frozen=True):
    """`programs` is the folder of pinned programs; `is_new` says that the loader ran for it."""

    programs: Path
    is_new: bool


class Bcc(msgspec.Struct, frozen=True):
    interpreter: str
    version: str


def has_maps(pins: Pins, specs: Iterable[MapSpec[Any, Any]]) -> bool:
    """Is each of them pinned? Then they can be written, whether programs are loaded or not."""
    return all(_is_fit(spec, pins) for spec in specs)


def ensure_loaded(
    pins: Pins,
    build: Build,
    interpreters: tuple[str, ...] = INTERPRETERS,
    *,
    maps_are_made: Callable[[], None] = lambda: None,
) -> Loaded:
    """Have the programs of `build` pinned, with the maps they use. Raises LoadFailed.

    `maps_are_made` is called when the maps can be written; the programs take ten times as long.
    """
    with _LOADING:
        return _ensure_loaded(pins, build, interpreters, maps_are_made)


def is_loaded(pins: Pins, build: Build) -> bool:
    """Are all maps and programs of `build` pinned, and do the programs use these very maps?"""
    if not has_maps(pins, build.maps):
        return False
    map_ids = {info.id for spec in build.maps if (info := maps.pinned_info(pins.map(spec.name)))}
    folder = pins.program_folder(build.hash)
    programs = [_program_info(folder / program.name) for program in build.programs]
    return all(program is not None and map_ids.issuperset(program.map_ids) for program in programs)


def find_bcc(interpreters: tuple[str, ...] = INTERPRETERS) -> Bcc:
    """The interpreter that the loader would run under. Raises LoadFailed with what each one lacks."""
    return _first_with_bcc({}, interpreters)[0]


def _ensure_loaded(
    pins: Pins, build: Build, interpreters: tuple[str, ...], maps_are_made: Callable[[], None]
) -> Loaded:
    folder = pins.program_folder(build.hash)
    pins.make_folders()
    if is_loaded(pins, build):
        growth.carry_over(pins, build.maps)
        return Loaded(folder, is_new=False)
    remove(folder)
    _ensure_maps(pins, build, interpreters)
    maps_are_made()
    unfinished = pins.program_folder(f"unfinished-{build.hash}")
    remove(unfinished)
    unfinished.mkdir(mode=0o700)
    bcc = _load_side_by_side(build, unfinished, interpreters)
    unfinished.rename(folder)
    if not is_loaded(pins, build):
        raise LoadFailed(f"{folder} does not hold what was loaded into it: is another kbpf using {pins.root}?")
    pins.remove_programs_except(build.hash)
    log.info(f"loaded the programs, build {build.hash}, with BCC {bcc.version} of {bcc.interpreter}")
    return Loaded(folder, is_new=True)


def _ensure_maps(pins: Pins, build: Build, interpreters: tuple[str, ...]) -> None:
    """With the rows of those that had to be replaced."""
    growth.set_aside(pins, build.maps)
    if not has_maps(pins, build.maps):
        _load(build.map_unit, build.flags, pins.programs, interpreters)
    growth.carry_over(pins, build.maps)


def _load_side_by_side(build: Build, folder: Path, interpreters: tuple[str, ...]) -> Bcc:
    """The compiler is most of what a start waits for. All maps are there, so no two loaders make the same one."""
    loading = [_in_thread(partial(_load, unit, build.flags, folder, interpreters)) for unit in build.units]
    wait(loading)
    bcc, *_ = [each.result() for each in loading]
    return bcc


def _in_thread(work: Callable[[], Bcc]) -> Future[Bcc]:
    """A daemon thread, which those of an executor are not: a stop does not wait for the compiler."""
    future: Future[Bcc] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # whoever asks for the result gets it
            future.set_exception(error)

    threading.Thread(target=run, name="loader", daemon=True).start()
    return future


def _load(unit: Unit, flags: Sequence[str], folder: Path, interpreters: tuple[str, ...]) -> Bcc:
    """`folder`: where the programs of the unit are pinned."""
    question = {
        "parent": os.getpid(),
        "unit": unit,
        "flags": flags,
        "kernel": str(bpf_folder() / "kernel"),
        "folder": str(folder),
    }
    bcc, reply = _first_with_bcc(question, interpreters)
    if "error" in reply.answer:
        log.debug(f"the loader's own words: {reply.stderr}")
        raise LoadFailed(f"the programs could not be loaded: {essence(reply)}")
    return bcc


def _first_with_bcc(question: dict[str, Any], interpreters: tuple[str, ...]) -> tuple[Bcc, Reply]:
    lacking = []
    for interpreter in interpreters:
        if not Path(interpreter).exists():
            lacking.append(f"{interpreter}: not installed")
            continue
        reply = ask(interpreter, _CHILD, question, TIMEOUT_S)
        if "no_bcc" not in reply.answer:
            return Bcc(interpreter, str(reply.answer.get("version", ""))), reply
        lacking.append(f"{interpreter}: {reply.answer['no_bcc']}")
    raise LoadFailed(f"no Python with BCC (Debian: python3-bpfcc): {'; '.join(lacking)}")


def essence(reply: Reply) -> str:
    """One line out of a compiler's or verifier's many: the first error, else the last words before BCC's own."""
    lines = [line.strip() for line in reply.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if " error: " in line]
    verdicts = [line for line in lines if not line.startswith(("processed ", "HINT"))]
    words = errors[:1] or verdicts[-1:]
    return f"{reply.answer['error']}: {words[0]}" if words else str(reply.answer["error"])


def _is_fit(spec: MapSpec[Any, Any], pins: Pins) -> bool:
    info = maps.pinned_info(pins.map(spec.name))
    return info is not None and maps.mismatch(spec, info) is None


def _program_info(pin: Path) -> libbpf.ProgramInfo | None:
    try:
        with closing(libbpf.obj_get(pin)) as fd:
            return libbpf.program_info(fd)
    except FileNotFoundError:
        return None
