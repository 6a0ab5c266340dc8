"""YAML as kubectl understands it, minus the surprises."""

import pytest
import yaml

from kbpf.source.document import SyntaxProblem
from kbpf.source.yaml_documents import MAX_ALIASED, MAX_DEPTH, yaml_documents


def value_of(text: str | bytes) -> object:
    (document,) = yaml_documents(text.encode() if isinstance(text, str) else text)
    return document.value()


def problem_of(text: str | bytes) -> SyntaxProblem:
    with pytest.raises(SyntaxProblem) as caught:
        list(yaml_documents(text.encode() if isinstance(text, str) else text))
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("80", 80),
        ("-1", -1),
        ("0", 0),
        ("0x50", 80),
        ("1.5", 1.5),
        ("80.", 80.0),
        ("1e3", 1000.0),
        ("080", "080"),
        ("010", "010"),
        ("-010", "-010"),
        ("00.5", "00.5"),
        ("0.5", 0.5),
        ("1_000", "1_000"),
        ("10.0.0.1", "10.0.0.1"),
        ("1.2.3", "1.2.3"),
        ("-", "-"),
        ("12:30:45", "12:30:45"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("true", True),
        ("Yes", True),
        ("OFF", False),
        ("y", "y"),
        ("tRUE", "tRUE"),
        ("~", None),
        ("null", None),
        ("NULL", None),
        ("None", "None"),
        ("'80'", "80"),
        ('"yes"', "yes"),
        ('""', ""),
        ("!!str 80", "80"),
        ("fd96::10", "fd96::10"),
    ],
)
def test_scalars_mean_what_they_mean_to_kubectl(text: str, value: object):
    assert value_of(f"- {text}" if text != "-" else '- "-"') == [value]


def test_a_number_that_is_too_long_for_a_port_is_still_no_error():
    assert value_of("port: " + "9" * 5000) == {"port": float("inf")}


def test_keys_are_text_whatever_they_look_like():
    assert value_of("{on: 1, yes: 2, 80: 3, ~: 4, 2026-01-01: 5}") == {
        "on": 1, "yes": 2, "80": 3, "~": 4, "2026-01-01": 5,
    }  # fmt: skip


def test_block_scalars_are_text():
    assert value_of("a: |\n  80\nb: >\n  yes\n  no\n") == {"a": "80\n", "b": "yes no\n"}


def test_anchors_and_merge_keys_work():
    text = "base: &base {a: 1, b: 2}\none: *base\ntwo: {<<: *base, b: 3}\nthree: {<<: [*base, {c: 4}]}\n"
    assert value_of(text) == {
        "base": {"a": 1, "b": 2},
        "one": {"a": 1, "b": 2},
        "two": {"a": 1, "b": 3},
        "three": {"a": 1, "b": 2, "c": 4},
    }


def test_an_alias_bomb_is_refused_in_its_line():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    problem = problem_of("\n".join(lines))
    assert problem.words == f"aliases repeat more than {MAX_ALIASED} values"
    assert problem.line == 5  # 10 + 110 + 1,110 + 11,110 values in lines 1 to 4


def test_aliases_within_bounds_are_counted_by_document():
    text = "a: &a [" + "x, " * 1000 + "]\nb: [" + "*a, " * 90 + "]\n"
    assert len(list(yaml_documents(f"{text}---\n{text}".encode()))) == 2


@pytest.mark.parametrize("text", ["a: *nobody", "&a [*a]", "&a {b: *a}"])
def test_an_alias_that_stands_before_the_end_of_its_anchor_is_refused(text: str):
    assert "before the end of what it names" in problem_of(text).words


def test_deep_nesting_is_refused():
    assert problem_of("[" * (MAX_DEPTH + 1)).words == f"nested more than {MAX_DEPTH} deep"
    assert problem_of("\n".join(" " * n + "a:" for n in range(500))).words == f"nested more than {MAX_DEPTH} deep"


@pytest.mark.parametrize("text", ["? [a]\n: 1", "? {a: 1}\n: 1", "a: &x [1]\n? *x\n: 2"])
def test_only_text_is_a_key(text: str):
    assert problem_of(text).words == "a key must be text"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: [1,\nc: 2\n", 4, "did not find expected ',' or ']'"),
        ("a: 1\n\tb: 2\n", 2, "found a tab character that violates indentation"),
        ('a: 1\nb: "open\n', 3, "found unexpected end of stream"),
        ("a: 1\nb: \x00\n", 2, "byte 8: control characters are not allowed"),
        (b"a: 1\nb: \xff\n", 2, "byte 8: invalid leading UTF-8 octet"),
        ("a: b: c\n", 1, "mapping values are not allowed in this context"),
    ],
)
def test_a_syntax_error_has_a_line_and_one_line_of_words(text: str | bytes, line: int, words: str):
    problem = problem_of(text)
    assert (problem.line, problem.words) == (line, words)


def test_documents_before_an_error_are_still_given():
    documents = yaml_documents(b"a: 1\n---\nb: [\n")
    assert next(documents).value() == {"a": 1}
    with pytest.raises(SyntaxProblem):
        next(documents)


def test_a_document_and_its_items_know_their_lines():
    documents = list(yaml_documents(b"# comment\nkind: A\n---\n\nkind: List\nitems:\n- kind: B\n- kind: C\n"))
    assert [document.line for document in documents] == [2, 5]
    assert [item.line for item in documents[1].items()] == [7, 8]


def test_plain_data_survives_a_round_trip():
    data = {"a": [1, -2, 1.5, True, None, "x", "80", "yes", "010", "multi\nline"], "b": {"c": {}, "d": []}}
    assert value_of(yaml.safe_dump(data)) == data


def test_the_python_loader_gives_the_same(monkeypatch: pytest.MonkeyPatch):
    text = "a: &x {b: [80, 'yes', on]}\nc: *x\n"
    expected = value_of(text)
    monkeypatch.setattr("kbpf.source.yaml_documents.Loader", yaml.SafeLoader)
    assert value_of(text) == expected
    assert problem_of("a: [\n").line == 2
    assert "special characters are not allowed" in problem_of("a: \x00").words
    assert problem_of(b"a: 1\nb: \xff").line == 2
    assert problem_of('"\\U99999999"').words == "an escape names no character"
