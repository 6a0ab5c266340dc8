"""Cutting a YAML stream at its document markers. Pure.

A marker at the start of a line cannot stand inside a scalar, so each chunk can be read on its own: a broken document
takes no other one with it, and of a changed file only the changed documents are read again.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

MARKER = re.compile(rb"^(?:---|\.\.\.)(?=[ \t\r\n]|\Z)", re.MULTILINE)


def yaml_chunks(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines before the chunk, and the chunk: whatever has more than comments, markers and directives in it."""
    starts = [0, *(match.start() for match in MARKER.finditer(text)), len(text)]
    lines = 0
    for start, end in pairwise(starts):
        chunk = text[start:end]
        if _says_something(chunk):
            yield lines, chunk
        lines += chunk.count(b"\n")


def _says_something(chunk: bytes) -> bool:
    for number, line in enumerate(chunk.splitlines()):
        words = MARKER.sub(b"", line).strip() if number == 0 else line.strip()
        if words and not words.startswith((b"#", b"%")):
            return True
    return False
