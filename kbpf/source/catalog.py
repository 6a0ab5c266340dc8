"""The objects of all manifest files together, and what to tell the daemon when they change. Pure.

The manifest source puts readings in and takes events out. A file keeps the last good state of objects that its newest
text holds but breaks. An object that stands in several files is taken from the first; when it vanishes there, the next
file takes over.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kbpf.model.events import Event, Kind
from kbpf.source.object_key import Object, ObjectKey, event_of
from kbpf.source.reading import Entry, FileName, Reading, Remark


class ManifestProblem(NamedTuple):
    """One line for people. `line` 0 speaks of the file as a whole."""

    file: FileName
    line: int
    words: str
    is_notice: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.words}" if self.line else f"{self.file}: {self.words}"


class Catalog:
    """Its cost is that of the files that changed and the objects in them."""

    def __init__(self) -> None:
        self._files: dict[FileName, Mapping[ObjectKey, Entry]] = {}
        self._holders: dict[ObjectKey, list[FileName]] = {}
        self._delivered: dict[ObjectKey, Object] = {}
        self._touched: set[ObjectKey] = set()
        self._problems: dict[FileName | ObjectKey, tuple[ManifestProblem, ...]] = {}
        self._new_problems: list[ManifestProblem] = []

    def put(self, file: FileName, reading: Reading) -> None:
        """The newest text of a file."""
        self._replace(file, _with_last_good(reading, self._files.get(file, {})))
        self._report(file, [ManifestProblem(file, *remark) for remark in reading.remarks])

    def remove(self, file: FileName) -> None:
        self._replace(file, {})
        self._report(file, [])

    def cannot_read(self, file: FileName, words: str) -> None:
        """The file is there, what it says nobody knows: all of it stays as it was."""
        self._report(file, [ManifestProblem(file, *Remark(0, words))])

    def take_events(self) -> list[Event]:
        """What changed since the last call, in an order in which no Service is without its endpoints for a moment."""
        events: list[tuple[int, ObjectKey, Event]] = []
        for key in self._touched:
            self._report(key, self._duplicates(key))
            now, before = self._winner(key), self._delivered.pop(key, None)
            if now is not None:
                self._delivered[key] = now
            if now != before:
                events.append((_rank(key, now), key, event_of(key, now)))
        self._touched.clear()
        return [event for _, _, event in sorted(events, key=lambda ranked: _sort_key(ranked[0], ranked[1]))]

    def take_problems(self) -> list[ManifestProblem]:
        """Problems that were not there at the last call."""
        problems, self._new_problems = self._new_problems, []
        return sorted(problems)

    def _replace(self, file: FileName, entries: Mapping[ObjectKey, Entry]) -> None:
        before = self._files.get(file, {})
        for key in before.keys() - entries.keys():
            self._holders[key].remove(file)
            if not self._holders[key]:
                del self._holders[key]
        for key in entries.keys() - before.keys():
            holders = self._holders.setdefault(key, [])
            holders.append(file)
            holders.sort()
        self._touched.update(before, entries)
        if entries:
            self._files[file] = entries
        else:
            self._files.pop(file, None)

    def _winner(self, key: ObjectKey) -> Object | None:
        holders = self._holders.get(key)
        return self._files[holders[0]][key].object if holders else None

    def _duplicates(self, key: ObjectKey) -> list[ManifestProblem]:
        holders = self._holders.get(key, [])
        return [
            ManifestProblem(file, self._files[file][key].line, f"{key}: already in {holders[0]}, not applied")
            for file in holders[1:]
        ]

    def _report(self, where: FileName | ObjectKey, problems: Iterable[ManifestProblem]) -> None:
        known, now = self._problems.pop(where, ()), tuple(problems)
        if now:
            self._problems[where] = now
        self._new_problems += (problem for problem in now if problem not in known)


def _with_last_good(reading: Reading, before: Mapping[ObjectKey, Entry]) -> Mapping[ObjectKey, Entry]:
    kept = before.keys() if reading.is_partial else reading.broken & before.keys()
    return {key: before[key] for key in kept} | dict(reading.objects)


def _rank(key: ObjectKey, now: Object | None) -> int:
    """Endpoints come before their Service and leave after it."""
    if key.kind is Kind.ENDPOINT_SLICE:
        return 1 if now is not None else 3
    return 0 if key.kind is Kind.NODE else 2


def _sort_key(rank: int, key: ObjectKey) -> tuple[int, str, str]:
    return rank, key.namespace, key.name
