"""When to sync: not too often, never forgotten, again after a failure. It decides; the control loop in server.py waits.

Semantics of kube-proxy's BoundedFrequencyRunner (1.34): the minimum interval counts from the end of a run, so a slow
write gets its rest; many requests become one run; a request made during a run causes one more; a failure is retried
sooner than the periodic run. `burst` runs may follow each other at once before the minimum interval applies (as until
1.33), so that a lone change never waits. A run that failed for want of the right moment only is retried after a few
seconds, twice as many after each such failure in a row, but never later than any other failed run.
"""

import msgspec

from kbpf.clock import Clock

SOON_S = 2.0
"""The first wait of `retry_soon`."""


class RunnerIntervals(msgspec.Struct, frozen=True):
    """Seconds. `max_interval_s`: a run even if nothing was asked; `retry_interval_s`: after a failed run."""

    min_interval_s: float
    retry_interval_s: float
    max_interval_s: float
    burst: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.min_interval_s <= self.max_interval_s:
            raise ValueError("the minimum interval must lie between 0 and the maximum interval")
        if self.retry_interval_s <= 0 or self.burst < 1:
            raise ValueError("the retry interval and the burst must be positive")


class BoundedFrequencyRunner:
    """Ask `request()`; poll `is_due()` or wait `seconds_until_due()`; wrap each run in `started()` and `finished()`."""

    def __init__(self, intervals: RunnerIntervals, clock: Clock) -> None:
        self._intervals = intervals
        self._clock = clock
        self._requested = False
        self._tokens = float(intervals.burst)
        self._refilled_at = clock.monotonic()
        self._next_forced_at = clock.monotonic() + intervals.max_interval_s
        self._soon_s = SOON_S

    def request(self) -> None:
        """There is something to do. Requests before the next run starts collapse into it."""
        self._requested = True

    def retry_soon(self) -> None:
        """The run that has just failed may well succeed a moment later, as when a lock was held."""
        self._next_forced_at = min(self._next_forced_at, self._clock.monotonic() + self._soon_s)
        self._soon_s = min(2 * self._soon_s, self._intervals.retry_interval_s)

    def seconds_until_due(self) -> float:
        """Zero or less when a run is due now; never more than the maximum interval."""
        now = self._clock.monotonic()
        forced = self._next_forced_at - now
        if not self._requested:
            return forced
        return min(forced, (1 - self._available(now)) * self._intervals.min_interval_s)

    @property
    def is_requested(self) -> bool:
        """False for a run that is due only by the maximum or the retry interval."""
        return self._requested

    def set_intervals(self, intervals: RunnerIntervals) -> None:
        """Other intervals from now on: another datapath may want another rest."""
        self._intervals = intervals

    def is_due(self) -> bool:
        return self.seconds_until_due() <= 0

    def started(self) -> None:
        """A run begins and serves every request made so far."""
        self._requested = False

    def finished(self, succeeded: bool) -> None:
        """A run ended; the intervals count from here."""
        now = self._clock.monotonic()
        intervals = self._intervals
        self._tokens = max(0.0, self._available(now) - 1) if intervals.burst > 1 else 0.0
        self._refilled_at = now
        wait = intervals.max_interval_s if succeeded else min(intervals.retry_interval_s, intervals.max_interval_s)
        self._next_forced_at = now + wait
        if succeeded:
            self._soon_s = SOON_S

    def _available(self, now: float) -> float:
        """Tokens: one a minimum interval, at most `burst`; a run takes one."""
        if self._intervals.min_interval_s == 0:
            return float(self._intervals.burst)
        refill = (now - self._refilled_at) / self._intervals.min_interval_s
        return min(float(self._intervals.burst), self._tokens + refill)
