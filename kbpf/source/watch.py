"""The source behind `--manifests`: a thread that delivers what the files say and waits for them to change.

inotify wakes it through watchfiles. What inotify cannot see (a path whose directory does not exist yet, a network file
system, a link swapped further up) is found by looking once a second, which costs one stat a file.
"""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from kbpf.clock import Clock
from kbpf.model.events import Kind, Synced
from kbpf.source.interface import Emit
from kbpf.source.manifests import Manifests

DEBOUNCE_MS = 50
QUIET_MS = 20
LOOK_EVERY_S = 1.0
LOOK_AGAIN_S = 0.1
"""The end of a writer is no event of watchfiles."""

log = logging.getLogger(__name__)


class ManifestSource:
    """`Synced` waits until every path exists, so that a mount that comes late does not look like an empty cluster."""

    def __init__(self, paths: Sequence[str], node_name: str, clock: Clock | None = None) -> None:
        self._paths = tuple(paths)
        self._manifests = Manifests(paths, node_name, clock)
        self._stopped = threading.Event()
        self._is_synced = False
        self._thread: threading.Thread | None = None

    def start(self, emit: Emit) -> None:
        # A daemon thread: reading standard input or a pipe cannot be interrupted.
        self._thread = threading.Thread(target=self._run, args=(emit,), name="manifests", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout=LOOK_EVERY_S)

    def _run(self, emit: Emit) -> None:
        while not self._stopped.is_set():
            directories = watched_directories(self._paths)
            with Watcher(directories) as watcher:
                while not self._stopped.is_set():
                    self._deliver(emit)
                    # A directory that was replaced, or that appeared, needs a watch of its own.
                    if watched_directories(self._paths) != directories:
                        break
                    watcher.wait(LOOK_AGAIN_S if self._manifests.has_unfinished_files else LOOK_EVERY_S, self._stopped)

    def _deliver(self, emit: Emit) -> None:
        events = self._manifests.refresh()
        for problem in self._manifests.take_problems():
            if problem.is_notice:
                log.info(str(problem))
            else:
                log.warning(str(problem))
        if self._stopped.is_set():
            return
        for event in events:
            emit(event)
        if not self._is_synced and self._manifests.is_complete:
            self._is_synced = True
            for kind in Kind:
                emit(Synced(kind))


class WatchedDirectory(NamedTuple):
    path: str
    device: int
    inode: int


def watched_directories(paths: Sequence[str]) -> frozenset[WatchedDirectory]:
    """Where changes of the paths show: in them, beside them (they may be replaced), and where links lead."""
    wanted: set[Path] = set()
    for text in paths:
        if text == "-":
            continue
        path = Path(text).absolute()
        wanted |= {path, path.parent}
        try:
            wanted.add(path.resolve().parent)
        except (OSError, RuntimeError, ValueError):  # RuntimeError: links that lead in a circle
            continue
    return frozenset(directory for path in wanted for directory in _directory(path))


def _directory(path: Path) -> Sequence[WatchedDirectory]:
    try:
        status = path.stat()
        is_directory = path.is_dir()
    except (OSError, ValueError):
        return ()
    return (WatchedDirectory(str(path), status.st_dev, status.st_ino),) if is_directory else ()


class Watcher:
    """Waits for something to happen in the directories, or just for the time to pass where inotify is not to be had."""

    def __init__(self, directories: frozenset[WatchedDirectory]) -> None:
        self._notify: RustNotify | None = None
        if not directories:
            return
        try:
            self._notify = RustNotify([directory.path for directory in directories], False, False, 1000, False, True)
        except FileNotFoundError:  # gone again already; the next look will tell
            return
        except (OSError, WatchfilesRustInternalError) as error:
            log.warning(f"manifests: inotify: {error}: changes are looked for every {LOOK_EVERY_S:g} s instead")

    def __enter__(self) -> "Watcher":
        return self

    def __exit__(self, *_: object) -> None:
        if self._notify is not None:
            self._notify.close()

    def wait(self, seconds: float, stopped: threading.Event) -> None:
        if self._notify is None:
            stopped.wait(seconds)
        else:
            self._notify.watch(DEBOUNCE_MS, QUIET_MS, int(seconds * 1000), stopped)
