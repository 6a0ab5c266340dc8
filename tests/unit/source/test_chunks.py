"""A stream is cut at its document markers and nowhere else."""

import pytest

from kbpf.source.chunks import yaml_chunks


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        (b"", []),
        (b"\n# comment\n\n", []),
        (b"---\n---\n# nothing\n...\n", []),
        (b"%YAML 1.2\n---\na: 1\n", [(1, b"---\na: 1\n")]),
        (b"a: 1\n", [(0, b"a: 1\n")]),
        (b"a: 1\n---\nb: 2\n", [(0, b"a: 1\n"), (1, b"---\nb: 2\n")]),
        (b"a: 1\r\n---\r\nb: 2\r\n", [(0, b"a: 1\r\n"), (1, b"---\r\nb: 2\r\n")]),
        (b"--- {a: 1}\n---\tb\n", [(0, b"--- {a: 1}\n"), (1, b"---\tb\n")]),
        (b"a: 1\n...\nb: 2\n", [(0, b"a: 1\n"), (1, b"...\nb: 2\n")]),
        (b"a: |\n  ---\n  b\n", [(0, b"a: |\n  ---\n  b\n")]),
        (b"---a: 1\n----\n", [(0, b"---a: 1\n----\n")]),
        (b"a: 1\n---", [(0, b"a: 1\n")]),
    ],
)
def test_chunks_and_the_lines_before_them(text: bytes, chunks: list[tuple[int, bytes]]):
    assert list(yaml_chunks(text)) == chunks
