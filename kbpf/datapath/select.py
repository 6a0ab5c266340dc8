"""Which datapath runs, and why; and the change from one to the other, make before break.

server.py composes them: iptables alone is a ReplacingDatapath, eBPF is a FallingBackDatapath onto one.
"""

import logging
from collections.abc import Iterator, Set
from typing import Protocol

from msgspec.structs import replace

from kbpf.datapath.interface import Answer, Datapath, Support, SyncReport
from kbpf.errors import DatapathError, DatapathUnavailable, LoadFailed, MapError
from kbpf.model.names import ServiceName
from kbpf.model.table import ServiceTable

log = logging.getLogger(__name__)

MAX_FAILURES = 3
"""Syncs that may fail in a row before eBPF counts as broken on this node."""


def preferred(wish: str, allows_fallback: bool, support: Support) -> tuple[str, str]:
    """The datapath to start with, "ebpf" or "iptables", and the reason in words.

    `wish` is "auto", "ebpf" or "iptables"; `support` is what the eBPF probe found. "Cannot tell" counts as yes: the
    load and the self-test will tell. Raises DatapathUnavailable when eBPF cannot run and nothing may take its place.
    """
    if wish == "iptables":
        return "iptables", "asked for"
    if support.answer is not Answer.NO:
        return "ebpf", "asked for" if wish == "ebpf" else "every probe passed"
    if not allows_fallback:
        raise DatapathUnavailable(f"eBPF is unavailable here and --fallback=none: {support.reason}")
    return "iptables", f"eBPF is unavailable: {support.reason}"


class Retiring(Protocol):
    """A datapath that gives up its services."""

    @property
    def name(self) -> str: ...

    def retire(self) -> bool:
        """Take on no new connection, and go when those that live on it have ended. True: all is gone."""
        ...


class ReplacingDatapath:
    """A datapath that, once it carries every service, retires another one that was on this node.

    The other may be this process's own, given up a moment ago, or an earlier process's. It retires only after the first
    sync of its replacement: at no moment is a service carried by neither.
    """

    def __init__(self, datapath: Datapath, replaced: Retiring) -> None:
        self._datapath = datapath
        self._replaced: Retiring | None = replaced
        self._has_synced = False

    @property
    def name(self) -> str:
        return self._datapath.name

    def probe(self) -> Support:
        return self._datapath.probe()

    def sync(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> SyncReport:
        report = self._datapath.sync(table, dirty, full=full)
        if not self._has_synced:
            self._has_synced = True
            self._retire_replaced()
        return report

    def lost(self) -> tuple[str, ...]:
        """Asked once a sync period: connections of the other one may have ended by then."""
        self._retire_replaced()
        return self._datapath.lost()

    def examine(self) -> Iterator[tuple[str, ...]] | None:
        return self._datapath.examine()

    def dump(self) -> str:
        return self._datapath.dump()

    def cleanup(self) -> None:
        self._datapath.cleanup()

    def _retire_replaced(self) -> None:
        if self._replaced is None or not self._has_synced:
            return
        try:
            is_gone = self._replaced.retire()
        except DatapathError as error:
            log.warning(f"what the {self._replaced.name} datapath left behind could not be removed: {error}")
            is_gone = True
        if is_gone:
            self._replaced = None


class FallingBackDatapath:
    """Runs `first` until it proves broken on this node; `fallback` carries everything from then on."""

    def __init__(self, first: Datapath, fallback: Datapath) -> None:
        self._active = first
        self._fallback: Datapath | None = fallback
        self._failures = 0
        self._has_worked = False
        self._reason = ""
        """Why the fallback carries everything, once it does."""

    @property
    def name(self) -> str:
        return self._active.name

    def probe(self) -> Support:
        return self._active.probe()

    def sync(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> SyncReport:
        try:
            report = self._sync(table, dirty, full=full)
        except DatapathError as error:
            self._failures += 1
            if self._fallback is None or not self._is_broken(error):
                raise
            report = self._fall_back(self._fallback, table, error)
        self._failures, self._has_worked = 0, True
        return replace(report, fallback_reason=self._reason)

    def lost(self) -> tuple[str, ...]:
        return self._active.lost()

    def examine(self) -> Iterator[tuple[str, ...]] | None:
        return self._active.examine()

    def dump(self) -> str:
        return self._active.dump()

    def cleanup(self) -> None:
        self._active.cleanup()

    def _sync(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> SyncReport:
        """What has worked on this node and does not load now was taken away by somebody: that can be put right once."""
        try:
            return self._active.sync(table, dirty, full=full)
        except LoadFailed as error:
            if self._fallback is None or not self._has_worked or self._failures:
                raise
            log.warning(f"{self._active.name} is loaded anew: {error}")
            return self._active.sync(table, frozenset(table.services), full=True)

    def _is_broken(self, error: DatapathError) -> bool:
        """Programs that do not load never will; a map may refuse a write and take the next one."""
        return isinstance(error, LoadFailed) or (isinstance(error, MapError) and self._failures >= MAX_FAILURES)

    def _fall_back(self, fallback: Datapath, table: ServiceTable, error: DatapathError) -> SyncReport:
        reason = f"{self._active.name} failed: {error}"
        log.warning(f"running {fallback.name}: {reason}")
        report = fallback.sync(table, frozenset(table.services), full=True)
        self._active, self._fallback, self._reason = fallback, None, reason
        return report
