"""Durations in Go's syntax ("1m30s"), the spelling of kube-proxy's flags and configuration files."""

import re

UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")


def parse_duration(text: str) -> float:
    """Seconds. A bare "0" is the only number that needs no unit, as in Go. Raises ValueError."""
    body = text.strip()
    sign, body = (-1.0, body[1:]) if body.startswith("-") else (1.0, body.removeprefix("+"))
    if body == "0":
        return 0.0
    if not body or not re.fullmatch(f"({PART.pattern})+", body):
        raise ValueError(f"{text!r} is not a duration such as 30s, 1m30s or 500ms")
    return sign * sum(float(number) * UNITS_S[unit] for number, unit in PART.findall(body))


def format_duration(seconds: float) -> str:
    """The shortest spelling that `parse_duration` reads back to the same number of milliseconds."""
    milliseconds = round(seconds * 1000)
    if milliseconds % 1000:
        return f"{milliseconds}ms"
    hours, rest = divmod(milliseconds // 1000, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{number}{unit}" for number, unit in ((hours, "h"), (minutes, "m"), (rest, "s")) if number]
    return "".join(parts) or "0s"
