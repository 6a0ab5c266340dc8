"""The control loop: the one thread that owns trackers, table and datapath.

Sources put events into its queue; it feeds them to the proxier, and syncs when the runner says so. A failed sync is one
log line and a retry; nothing but `stop` and the end of its source ends the loop.
"""

import logging
import queue
from collections.abc import Callable

from kbpf.datapath.interface import SyncReport
from kbpf.errors import KbpfError, RulesLocked
from kbpf.inbox import Inbox
from kbpf.inspection import InspectionSchedule
from kbpf.model.events import Event, SourceFailed
from kbpf.proxier import Proxier
from kbpf.publisher import Publisher
from kbpf.runner import BoundedFrequencyRunner, RunnerIntervals

log = logging.getLogger(__name__)


class ControlLoop:
    """Takes events out of `inbox`.

    `intervals` gives the rhythm of a datapath by its name: rules want rest between writes, maps do not.
    """

    def __init__(
        self,
        inbox: Inbox,
        proxier: Proxier,
        runner: BoundedFrequencyRunner,
        inspections: InspectionSchedule,
        publisher: Publisher,
        intervals: Callable[[str], RunnerIntervals],
    ) -> None:
        self._inbox = inbox
        self._proxier = proxier
        self._runner = runner
        self._inspections = inspections
        self._publisher = publisher
        self._intervals = intervals
        self._datapath_name = ""
        self._is_stopping = False

    def put(self, event: Event | SourceFailed) -> None:
        """Called by the threads of sources, in the order in which things happened. May wait."""
        self._inbox.put(event)

    def stop(self) -> None:
        """Finish the running sync, then return from `run`. Safe in a signal handler."""
        self._inbox.interrupt()

    def run(self) -> None:
        try:
            while not self._is_stopping:
                self._take_events(self._seconds_until_due())
                if not self._is_stopping and self._seconds_until_due() == 0:
                    self._act()
        finally:
            self._inbox.close()

    def run_once(self) -> SyncReport:
        """Wait for the initial lists, sync once. Raises KbpfError when the kernel does not hold the wanted state."""
        try:
            while not self._proxier.is_ready and not self._is_stopping:
                self._take_events(None)
            if self._is_stopping:
                raise KbpfError("stopped before the initial lists were complete")
            return self._proxier.sync()
        finally:
            self._inbox.close()

    def _act(self) -> None:
        """A sync that is due goes before the next step of a look."""
        if self._inspections.has_steps and self._seconds_until_sync() > 0:
            self.step()
        else:
            self.sync()

    def step(self) -> None:
        """One step of a look at the kernel; what it finds is put right at once."""
        try:
            found = self._inspections.step()
        except KbpfError as error:
            found = (str(error),)
        if found:
            self.sync(found)

    def sync(self, found: tuple[str, ...] = ()) -> None:
        """One run of the line: its sentence or its error in the log, its result in the health and the runner.

        `found`: what others altered, as a look has just found.
        """
        is_asked_for = self._runner.is_requested
        self._runner.started()
        self._publisher.syncing()
        try:
            looks_closer, lost = (False, found) if found else self._inspect()
            report = self._proxier.sync(full=looks_closer or bool(lost))
        except KbpfError as error:
            self._runner.finished(False)
            self._publisher.failed(error)
            if isinstance(error, RulesLocked):
                self._runner.retry_soon()
            log.error(f"sync failed, trying again in {self._runner.seconds_until_due():.0f} s: {error}")
            return
        except Exception:
            # A defect of ours. The kernel keeps its last good state, and the next full sync may well succeed.
            self._runner.finished(False)
            self._publisher.failed(None)
            log.exception("sync failed unexpectedly; please report this")
            return
        self._use_intervals_of(report.datapath)
        self._runner.finished(True)
        if report.full:
            self._inspections.synced_fully(report.duration_s)
        self._tell(report, lost, is_asked_for)

    def _seconds_until_due(self) -> float | None:
        """None: nothing can be done before the initial lists are complete."""
        if not self._proxier.is_ready:
            return None
        return 0.0 if self._inspections.has_steps else self._seconds_until_sync()

    def _seconds_until_sync(self) -> float:
        return max(0.0, min(self._runner.seconds_until_due(), self._inspections.seconds_until_due()))

    def _inspect(self) -> tuple[bool, tuple[str, ...]]:
        """When it is time to: whether to sync everything, and if not, what a cheap look finds gone.

        Where the datapath can look at everything in steps, they begin after this sync.
        """
        if not self._inspections.is_due():
            return False, ()
        self._inspections.looked()
        steps = self._proxier.examine()
        if steps is None and self._inspections.may_be_full:
            return True, ()
        if steps is not None and self._inspections.may_begin:
            self._inspections.begin(steps)
        return False, self._proxier.lost()

    def _take_events(self, timeout_s: float | None) -> None:
        """Wait for an event, then take all that are there: many events, one sync."""
        try:
            event = self._inbox.take(timeout_s)
            if not self._proxier.is_ready:
                self._inbox.gather()
            while True:
                self._take(event)
                event = self._inbox.take(0)
        except queue.Empty:
            pass
        self._publisher.took(self._proxier.change_counts, is_eligible=self._proxier.node_is_eligible)

    def _take(self, event: Event | SourceFailed | None) -> None:
        if event is None:
            self._is_stopping = True
        elif isinstance(event, SourceFailed):
            raise event.error
        elif self._proxier.take(event):
            self._publisher.queued()
            self._runner.request()

    def _use_intervals_of(self, datapath_name: str) -> None:
        if datapath_name != self._datapath_name:
            self._datapath_name = datapath_name
            self._runner.set_intervals(self._intervals(datapath_name))

    def _tell(self, report: SyncReport, lost: tuple[str, ...], is_asked_for: bool) -> None:
        """A look that found everything in place is no news; a datapath may know better than we what was gone."""
        say = log.info if is_asked_for or report.writes else log.debug
        say(report.sentence)
        for warning in report.warnings:
            log.warning(warning)
        if lost and not report.warnings:
            log.warning(f"another program took away: {'; '.join(lost)}; it is back")
