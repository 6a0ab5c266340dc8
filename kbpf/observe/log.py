"""Logging: one line a decision on standard error, as text for people or as JSON for machines."""

import logging
import sys

import structlog


def configure_logging(log_format: str, verbosity: int) -> None:
    """`log_format` is "text" or "json"; verbosity 0 shows decisions, 1 and more the steps between them."""
    render: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbosity else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
