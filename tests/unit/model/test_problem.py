"""Values from outside in one line of a log."""

import pytest

from kbpf.model.problem import MAX_SHOWN, Problem, shown


@pytest.mark.parametrize(
    "value", ["a\nb", "\x1b[31m", "a\0", "ü\u202e", 'a"; rm -rf /', "x" * 10_000, None, 5, ["a\n"]]
)
def test_a_shown_value_is_one_short_printable_line(value: object):
    text = shown(value)
    assert text.isprintable()
    assert len(text) <= MAX_SHOWN + 1


def test_a_problem_names_object_field_value_and_what_happens():
    problem = Problem("Service shop/web", "spec.ports[0].port", shown(0), "is not a port number, port skipped")
    assert str(problem) == "Service shop/web: spec.ports[0].port: 0: is not a port number, port skipped"
