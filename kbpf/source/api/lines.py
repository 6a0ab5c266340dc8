"""Chunks of bytes into lines. Pure."""

from collections.abc import Iterable, Iterator


def lines_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Each line without its end, once it is complete. What is left at the end counts as one."""
    parts: list[bytes] = []
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        if not others:
            continue
        # A line of a megabyte comes in hundreds of chunks: they are joined once.
        yield b"".join(parts)
        parts = [others.pop()]
        yield from others
    if rest := b"".join(parts):
        yield rest
