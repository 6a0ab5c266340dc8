"""Logging: one line a decision on standard error, as text for people or as JSON for machines.

Modules log through the standard library. Libraries made for logging take longer to import than all the rest of kbpf.
"""

import logging
import sys
from datetime import UTC, datetime

import msgspec

ROOT = logging.getLogger("kbpf")


def configure_logging(log_format: str, verbosity: int) -> None:
    """`log_format` is "text" or "json"; verbosity 0 shows decisions, 1 and more the steps between them."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    ROOT.handlers = [handler]
    ROOT.setLevel(logging.DEBUG if verbosity else logging.INFO)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} [{record.levelname.lower():9}] {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {"event": record.getMessage(), "level": record.levelname.lower(), "timestamp": _time(record)}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
