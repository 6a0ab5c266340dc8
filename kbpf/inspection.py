"""When to look whether the kernel still holds what was written: others flush tables, delete rules and detach programs.

It decides, as the runner does for changes; the control loop looks. Each period comes a cheap look (`Datapath.lost`), or
a full sync where that costs little: one may take a hundredth of the time, whatever the size of the cluster. kube-proxy
rewrites everything once an hour, and never in large clusters; between those it sees no more than the cheap look.
"""

from kbpf.clock import Clock

SHARE = 100
"""One part in so many of the time may go to full syncs that nobody asked for."""


class InspectionSchedule:
    """Poll `is_due()` or wait `seconds_until_due()`; tell it of every look and of every full sync."""

    def __init__(self, period_s: float, clock: Clock) -> None:
        self._period_s = period_s
        self._clock = clock
        self._next_at = clock.monotonic() + period_s
        self._next_full_at = self._next_at

    def seconds_until_due(self) -> float:
        return self._next_at - self._clock.monotonic()

    def is_due(self) -> bool:
        return self.seconds_until_due() <= 0

    @property
    def may_be_full(self) -> bool:
        """Whether a full sync is worth its price now."""
        return self._clock.monotonic() >= self._next_full_at

    def looked(self) -> None:
        """The next look comes in one period."""
        self._next_at = self._clock.monotonic() + self._period_s

    def synced_fully(self, duration_s: float) -> None:
        """A full sync of this duration has just ended; it saw everything, so the next look can wait as well."""
        self.looked()
        self._next_full_at = self._clock.monotonic() + max(self._period_s, SHARE * duration_s)
