"""Which datapath runs, and why; and the change from one to the other, make before break."""

from collections.abc import Set

import structlog

from kbpf.datapath.interface import Answer, Datapath, Support, SyncReport
from kbpf.errors import DatapathError, DatapathUnavailable, LoadFailed, MapError
from kbpf.model.names import ServiceName
from kbpf.model.table import ServiceTable

log = structlog.get_logger()

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


class SwitchingDatapath:
    """Runs `first`; when it cannot run or keeps failing, `fallback` takes over before `first` is taken down.

    Whatever the datapath that does not run has left behind, in this process or an earlier one, is removed after the
    first sync of the one that does: at no moment is a service carried by neither.
    """

    def __init__(self, first: Datapath, other: Datapath, *, may_fall_back: bool) -> None:
        self._active = first
        self._idle = other
        self._may_fall_back = may_fall_back
        self._idle_is_clean = False
        self._failures = 0

    @property
    def name(self) -> str:
        return self._active.name

    def probe(self) -> Support:
        return self._active.probe()

    def sync(self, table: ServiceTable, dirty: Set[ServiceName], *, full: bool) -> SyncReport:
        try:
            report = self._active.sync(table, dirty, full=full)
        except DatapathError as error:
            if not self._should_fall_back(error):
                raise
            report = self._fall_back(table, error)
        self._failures = 0
        self._clean_idle()
        return report

    def dump(self) -> str:
        return self._active.dump()

    def cleanup(self) -> None:
        self._active.cleanup()
        self._idle.cleanup()

    def _clean_idle(self) -> None:
        if self._idle_is_clean:
            return
        self._idle_is_clean = True
        try:
            self._idle.cleanup()
        except DatapathError as error:
            log.warning(f"what the {self._idle.name} datapath left behind could not be removed: {error}")

    def _should_fall_back(self, error: DatapathError) -> bool:
        self._failures += 1
        is_broken = isinstance(error, LoadFailed) or (isinstance(error, MapError) and self._failures >= MAX_FAILURES)
        return self._may_fall_back and is_broken

    def _fall_back(self, table: ServiceTable, error: DatapathError) -> SyncReport:
        log.warning(f"running {self._idle.name}: {self._active.name} failed: {error}")
        report = self._idle.sync(table, frozenset(table.services), full=True)
        self._active, self._idle = self._idle, self._active
        self._may_fall_back = self._idle_is_clean = False
        return report
