"""One line a decision: for people with its time and level in front, for machines as JSON."""

import json
import logging
from collections.abc import Iterator

import pytest

from kbpf.observe.log import ROOT, configure_logging

log = logging.getLogger("kbpf.somewhere")


@pytest.fixture(autouse=True)
def logging_of_its_own() -> Iterator[None]:
    yield
    ROOT.handlers = []


def test_text_has_time_level_and_message(capsys: pytest.CaptureFixture[str]):
    configure_logging("text", 0)
    log.warning("100% of %s")
    time, rest = capsys.readouterr().err.split(" ", 1)
    assert time.endswith("Z")
    assert len(time) == len("2026-01-01T00:00:00.000000Z")
    assert rest == "[warning  ] 100% of %s\n"


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]):
    configure_logging("json", 0)
    log.info('two\nlines and "quotes"')
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    entry = json.loads(lines[0])
    assert entry.pop("timestamp").endswith("Z")
    assert entry == {"event": 'two\nlines and "quotes"', "level": "info"}


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_defect_shows_where_it_is(log_format: str, capsys: pytest.CaptureFixture[str]):
    configure_logging(log_format, 0)
    try:
        raise KeyError("gone")
    except KeyError:
        log.exception("failed unexpectedly")
    words = capsys.readouterr().err
    assert "failed unexpectedly" in words
    assert "test_log.py" in words
    assert "KeyError: 'gone'" in words


def test_steps_show_when_asked_for(capsys: pytest.CaptureFixture[str]):
    configure_logging("text", 0)
    log.debug("a step")
    assert capsys.readouterr().err == ""
    configure_logging("text", 1)
    log.debug("a step")
    assert capsys.readouterr().err.count("a step") == 1
