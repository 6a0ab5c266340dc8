"""Bad input as a value: one line that names the object, the field, the value and what was done instead."""

import msgspec

MAX_SHOWN = 80


class Problem(msgspec.Struct, frozen=True, gc=False):
    """`subject` is "Service shop/web", `field` a path like "spec.ports[0].port", `action` what happened instead."""

    subject: str
    field: str
    value: str
    action: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.field}: {self.value}: {self.action}"


def shown(value: object) -> str:
    """A value from outside, safe for one log line: control characters escaped, length bounded."""
    text = ascii(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
