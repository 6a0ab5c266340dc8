"""The manifest paths of the command line as one set of objects, brought up to date by `refresh`.

`ManifestSource` refreshes it whenever something moved on disk; `load_manifests` does so once, for commands that read
manifests without watching them.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from kbpf.clock import Clock, SystemClock
from kbpf.errors import ManifestError
from kbpf.model.events import Event
from kbpf.source.catalog import Catalog, ManifestProblem
from kbpf.source.files import BeingWritten, Signature, files_of, is_stream, read_file, signature
from kbpf.source.object_key import printable
from kbpf.source.reader import ManifestReader
from kbpf.source.reading import FileName

PATIENCE_S = 5.0
"""How long a file may be kept open for writing before it is read as it is."""


@dataclass(slots=True)
class _FileState:
    signature: Signature | None = None
    digest: bytes = b""
    waiting_since: float | None = None


class Manifests:
    def __init__(self, paths: Iterable[str], node_name: str, clock: Clock | None = None) -> None:
        self._paths = tuple(dict.fromkeys(paths))
        self._clock = clock or SystemClock()
        self._reader = ManifestReader(node_name)
        self._catalog = Catalog()
        self._states: dict[FileName, _FileState] = {}
        self._streams: set[FileName] = set()
        self.missing: tuple[str, ...] = ()
        self.has_unfinished_files = False

    @property
    def is_complete(self) -> bool:
        """Every path is there and everything in it has been looked at."""
        return not self.missing and not self.has_unfinished_files

    def refresh(self) -> list[Event]:
        """Look at everything that may have changed on disk. Cheap when nothing did: one stat a file."""
        self.has_unfinished_files = False
        found, unknown = self._find()
        for file in self._states.keys() - found - unknown:
            self._forget(file)
        for file in sorted(found):
            self._look_at(file)
        return self._catalog.take_events()

    def take_problems(self) -> list[ManifestProblem]:
        """Problems that were not there at the last call."""
        return self._catalog.take_problems()

    def _find(self) -> tuple[set[FileName], set[FileName]]:
        """The files that are there now, and those that may be: their path cannot be looked at.

        A file that two paths lead to belongs to the first.
        """
        found: dict[str, FileName] = {}
        unknown: set[FileName] = set()
        missing: list[str] = []
        for order, path in enumerate(self._paths):
            whole = FileName(order, path)
            try:
                if whole in self._streams or is_stream(path):
                    self._read_stream(whole)
                    continue
                names = files_of(path)
            except (FileNotFoundError, NotADirectoryError):
                missing.append(path)
                self._catalog.cannot_read(whole, "does not exist, read when it appears")
            except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
                self._catalog.cannot_read(whole, f"cannot be read: {_reason(error)}")
                unknown |= self._set_aside(order)
            else:
                if whole not in self._states:
                    self._catalog.remove(whole)  # what was said about the path itself
                for name in names:
                    found.setdefault(name, FileName(order, name))
        self.missing = tuple(missing)
        return set(found.values()), unknown

    def _set_aside(self, order: int) -> set[FileName]:
        """The files of a path that cannot be looked at; they are read anew when it can be again."""
        files = {file for file in self._states if file.order == order}
        self._states.update((file, _FileState()) for file in files)
        return files

    def _read_stream(self, file: FileName) -> None:
        if file in self._streams:
            return
        self._streams.add(file)
        if file.path == "-" and sys.stdin is None:
            self._catalog.cannot_read(file, "is closed")
            return
        text = sys.stdin.buffer.read() if file.path == "-" else Path(file.path).read_bytes()
        self._catalog.put(file, self._reader.read(file.path, text))

    def _look_at(self, file: FileName) -> None:
        state = self._states.setdefault(file, _FileState())
        try:
            if signature(file.path) == state.signature:
                return
            seen, text = read_file(file.path, even_if_being_written=self._is_out_of_patience(state))
        except FileNotFoundError:
            self._forget(file)
        except BeingWritten:
            self.has_unfinished_files = True
            state.waiting_since = state.waiting_since or self._clock.monotonic()
        except OSError as error:
            self._catalog.cannot_read(file, f"cannot be read: {_reason(error)}")
            self._states[file] = _FileState()
        else:
            self._take(file, state, seen, text)

    def _is_out_of_patience(self, state: _FileState) -> bool:
        since = state.waiting_since
        return since is not None and self._clock.monotonic() - since > PATIENCE_S

    def _take(self, file: FileName, state: _FileState, seen: Signature, text: bytes) -> None:
        digest = blake2b(text, digest_size=16).digest()
        if digest != state.digest:
            self._catalog.put(file, self._reader.read(file.path, text))
        self._states[file] = _FileState(None if seen.is_fresh else seen, digest)

    def _forget(self, file: FileName) -> None:
        self._states.pop(file, None)
        self._reader.forget(file.path)
        self._catalog.remove(file)


def load_manifests(paths: Sequence[str], node_name: str) -> tuple[list[Event], list[ManifestProblem]]:
    """What the paths hold now. Raises ManifestError when one of them does not exist."""
    manifests = Manifests(paths, node_name)
    events = manifests.refresh()
    if manifests.missing:
        raise ManifestError(f"--manifests {printable(manifests.missing[0])}: does not exist")
    return events, manifests.take_problems()


def _reason(error: OSError | ValueError) -> str:
    return printable(getattr(error, "strerror", None) or str(error))
