"""The differences that are wanted: differences.yaml as values."""

import re
from pathlib import Path

import msgspec


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    why: str
    scenario: str = ""
    setting: str = ""
    """One of the two is named."""
    lines: tuple[str, ...] = ()
    chance: bool = False

    def surprises(self, found: list[str]) -> list[str]:
        """The lines of a comparison that no pattern accounts for."""
        return [line for line in found if not any(re.search(pattern, line) for pattern in self.lines)]

    def missing(self, found: list[str]) -> list[str]:
        """The patterns that no line of any comparison has matched."""
        return [pattern for pattern in self.lines if not any(re.search(pattern, line) for line in found)]


def load() -> dict[str, Wanted]:
    """By the name of the scenario or of the setting."""
    text = Path(__file__).with_name("differences.yaml").read_bytes()
    entries = msgspec.yaml.decode(text, type=list[Wanted])
    return {entry.scenario or entry.setting: entry for entry in entries}
