"""Which ports the kernel gives to sockets that ask for none. Asked by `server` once, for what it tells the operator."""

from pathlib import Path

SETTINGS = Path("/proc/sys/net/ipv4")
"""They count for IPv6 as well."""


def gives_out_any(ports: range, settings: Path = SETTINGS) -> bool:
    """May a socket of this network namespace get one of `ports` without having asked for it?"""
    try:
        low, high = map(int, (settings / "ip_local_port_range").read_text().split())
        reserved = _ranges((settings / "ip_local_reserved_ports").read_text())
    except (OSError, ValueError):
        return False
    return any(low <= port <= high and not any(port in each for each in reserved) for port in ports)


def _ranges(text: str) -> list[range]:
    """Of "8080,30000-32767"."""
    parts = (part.partition("-") for part in text.strip().split(",") if part)
    return [range(int(first), int(last or first) + 1) for first, _, last in parts]
