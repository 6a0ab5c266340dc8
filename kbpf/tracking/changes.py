"""A change tracker: the newest state of each object, and which of them changed since the last good sync.

Generic over what it tracks. A checkout consumes nothing: only `commit`, called after a sync that succeeded, forgets
what was checked out, so a failed sync leaves its changes pending and changes that arrive meanwhile belong to the next.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class ChangeTracker(Generic[Key, Value]):
    """`pending` holds, per key, the value at the last good sync; a key whose value returns to it erases itself."""

    def __init__(self) -> None:
        self.current: dict[Key, Value] = {}
        self._pending: dict[Key, Value | None] = {}

    def update(self, key: Key, value: Value | None) -> bool:
        """Take the newest value (None: gone). True when the key differs from what was last synced."""
        before = self.current.get(key)
        if value is None:
            self.current.pop(key, None)
        else:
            self.current[key] = value
        synced = self._pending.get(key, before)
        if value == synced:
            self._pending.pop(key, None)
            return False
        self._pending[key] = synced
        return True

    @property
    def pending(self) -> dict[Key, Value | None]:
        return self._pending

    def checkout(self) -> "Checkout[Key, Value]":
        """What differs now from the last good sync, with the values that this checkout shows."""
        return Checkout({key: self.current.get(key) for key in self._pending}, dict(self._pending))

    def commit(self, checkout: "Checkout[Key, Value]") -> None:
        """The kernel holds what `checkout` showed: a key is done unless it changed again since."""
        for key, shown in checkout.shown.items():
            if self.current.get(key) == shown:
                self._pending.pop(key, None)
            else:
                self._pending[key] = shown
        if not self._pending:
            self._pending = {}  # a dictionary does not shrink when it is emptied


class Checkout(Generic[Key, Value]):
    """`shown`: the values of the changed keys now; `synced`: their values at the last good sync."""

    __slots__ = ("shown", "synced")

    def __init__(self, shown: dict[Key, Value | None], synced: dict[Key, Value | None]) -> None:
        self.shown = shown
        self.synced = synced
