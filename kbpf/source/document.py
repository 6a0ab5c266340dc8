"""One document of a manifest file, whatever it was written in; the reader asks it for typed objects."""

from collections.abc import Iterator
from typing import Protocol, TypeVar

Decoded = TypeVar("Decoded")


class Document(Protocol):
    line: int
    """Where it starts in its file, counted from 1."""

    def decode(self, type_: type[Decoded]) -> Decoded:
        """Raises msgspec.DecodeError, or RecursionError when it nests too deeply."""
        ...

    def items(self) -> Iterator["Document"]:
        """The members of `items`. Raises as `decode` does."""
        ...

    def value(self) -> object:
        """As plain dicts, lists and scalars, to show a value in a message. Raises as `decode` does."""
        ...


class SyntaxProblem(Exception):
    """The text is no YAML or JSON; never leaves this package."""

    def __init__(self, line: int, words: str) -> None:
        self.line, self.words = line, " ".join(words.split())
        super().__init__(f"{line}: {self.words}")
