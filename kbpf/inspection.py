"""When to look whether the kernel still holds what was written: others flush tables, delete rules and detach programs.

It decides, as the runner does for changes; the control loop looks. Each period comes a cheap look (`Datapath.lost`),
and where its price allows one that sees everything: that may take a hundredth of the time, whatever the size of the
cluster. Where the datapath can, it is made in steps, so that a change never waits for more than one of them; elsewhere
it is a full sync. kube-proxy rewrites everything once an hour, and never in large clusters; between those it sees no
more than the cheap look.
"""

from collections.abc import Iterator

from kbpf.clock import Clock

SHARE = 100
"""One part in so many of the time may go to looks that see everything."""


class InspectionSchedule:
    """Poll `is_due()` or wait `seconds_until_due()`; tell it of every look and of every full sync."""

    def __init__(self, period_s: float, clock: Clock) -> None:
        self._period_s = period_s
        self._clock = clock
        self._next_at = clock.monotonic() + period_s
        self._next_full_at = self._next_steps_at = self._next_at
        self._steps: Iterator[tuple[str, ...]] | None = None
        self._steps_s = 0.0

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
        self._next_full_at = self._after(duration_s)
        self._steps, self._next_steps_at = None, self._after(0)

    # -- a look in steps ---------------------------------------------------------------------------------------------

    @property
    def may_begin(self) -> bool:
        """Whether a look in steps is worth its price now."""
        return self._clock.monotonic() >= self._next_steps_at and not self.has_steps

    def begin(self, steps: Iterator[tuple[str, ...]]) -> None:
        """Each step says what it found altered."""
        self._steps, self._steps_s = steps, 0.0

    @property
    def has_steps(self) -> bool:
        """A look has begun and is not over."""
        return self._steps is not None

    def step(self) -> tuple[str, ...]:
        """Go on with the look; returns what this step found. Raises KbpfError."""
        started = self._clock.monotonic()
        found = next(self._steps, None) if self._steps else None
        self._steps_s += self._clock.monotonic() - started
        if found is None:
            self._steps, self._next_steps_at = None, self._after(self._steps_s)
        return found or ()

    def _after(self, duration_s: float) -> float:
        """When what took so long may be done again."""
        return self._clock.monotonic() + max(self._period_s, SHARE * duration_s)
