"""Durations in Go's syntax."""

import pytest

from kbpf.duration import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("1m30s", 90),
        ("500ms", 0.5),
        ("1h", 3600),
        ("0", 0),
        ("0s", 0),
        ("1.5h", 5400),
        ("-1s", -1),
        (".5s", 0.5),
    ],
)
def test_go_spellings_are_read(text: str, seconds: float):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "30", "s", "1x", "1m 30s", "one second", "1s;"])
def test_other_spellings_are_refused_with_an_example(text: str):
    with pytest.raises(ValueError, match="such as 30s"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text", ["30s", "1m30s", "500ms", "1h0m0s", "0s", "2h0m1s", "1.5s", "10µs", "250ns", "-1m0s", "1.5ms", "24h0m0.25s"]
)
def test_a_duration_is_written_as_it_is_read(text: str):
    assert format_duration(parse_duration(text)) == text
