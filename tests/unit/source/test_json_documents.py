"""JSON text: one document, several, none, or broken."""

import pytest

from kbpf.source.document import SyntaxProblem
from kbpf.source.json_documents import json_documents


def problem_of(text: bytes) -> SyntaxProblem:
    with pytest.raises(SyntaxProblem) as caught:
        list(json_documents(text))
    return caught.value


def test_one_document_starts_where_its_text_starts():
    (document,) = json_documents(b'\n\n {"a": 1}\n')
    assert (document.line, document.value()) == (3, {"a": 1})


def test_several_documents_may_follow_each_other():
    documents = list(json_documents(b'{"a": 1}\n{"b": 2} {"c": 99999999999999999999}\n\n{"d": 4}'))
    assert [document.line for document in documents] == [1, 2, 2, 4]
    assert [document.value() for document in documents[:2]] == [{"a": 1}, {"b": 2}]


def test_items_know_their_lines_even_when_they_are_alike():
    (document,) = json_documents(b'{"items": [\n  {"a": 1},\n  {"a": 1},\n\n  {"b": 2}\n]}')
    assert [item.line for item in document.items()] == [2, 3, 5]


def test_a_byte_order_mark_is_passed_over():
    (document,) = json_documents(b"\xef\xbb\xbf{}")
    assert document.value() == {}


def test_nothing_holds_no_document():
    assert list(json_documents(b" \n ")) == []


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (b'{"a": 1,\n"b" 2}', 2, "Expecting ':' delimiter"),
        (b'{"a":\n', 2, "Expecting value"),
        (b'{"a": 1}\n{"b":\n', 3, "Expecting value"),
        (b'{"a":\n"\xff"}\n{', 2, "byte 7: invalid start byte"),
        (b'{"a": "\x01"}', 1, "Invalid control character at"),
        (b"[" * 100_000, 1, "nested too deeply"),
    ],
)
def test_an_error_has_a_line_and_one_line_of_words(text: bytes, line: int, words: str):
    problem = problem_of(text)
    assert (problem.line, problem.words) == (line, words)


def test_documents_before_an_error_are_still_given():
    documents = json_documents(b'{"a": 1}\n{"b"')
    assert next(documents).value() == {"a": 1}
    with pytest.raises(SyntaxProblem):
        next(documents)
