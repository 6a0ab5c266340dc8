"""Durations in Go's syntax ("1m30s"), the spelling of kube-proxy's flags and configuration files."""

import re

UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")
SMALL_UNITS_NS = {"ms": 10**6, "µs": 10**3, "ns": 1}


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
    """As Go prints it, to the nanosecond: 24h0m0s, 1m30s, 500ms, 0s."""
    nanoseconds = round(abs(seconds) * 10**9)
    sign = "-" if seconds < 0 and nanoseconds else ""
    if 0 < nanoseconds < 10**9:
        unit, size = next((unit, size) for unit, size in SMALL_UNITS_NS.items() if nanoseconds >= size)
        return f"{sign}{_shortest(nanoseconds / size)}{unit}"
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    larger = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{larger}{_shortest(rest / 10**9)}s"


def _shortest(number: float) -> str:
    return f"{number:.9f}".rstrip("0").rstrip(".")
