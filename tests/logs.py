"""What kbpf logs while a test looks: `with capture_logs() as logs:`, then `logs` is told line by line."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kbpf.observe.log import ROOT


class Recorder(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.entries: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        entry: dict[str, Any] = {"event": record.getMessage(), "log_level": record.levelname.lower()}
        self.entries.append(entry | ({"exc_info": True} if record.exc_info else {}))


@contextmanager
def capture_logs() -> Iterator[list[dict[str, Any]]]:
    """Of every level, and nowhere else."""
    recorder, handlers, level = Recorder(), ROOT.handlers, ROOT.level
    ROOT.handlers = [recorder]
    ROOT.setLevel(logging.DEBUG)
    try:
        yield recorder.entries
    finally:
        ROOT.handlers = handlers
        ROOT.setLevel(level)
