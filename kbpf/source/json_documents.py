"""JSON text as documents: one object, or several one after another. Pure.

msgspec decodes each item of a list from its own bytes straight into structs, so one bad item harms no other and
100,000 endpoints take half a second. The standard decoder steps in only where text must be cut or an error be named.
"""

import json
from collections.abc import Iterator

import msgspec

from kbpf.source.document import Decoded, SyntaxProblem

UTF8_BOM = b"\xef\xbb\xbf"


class _WithItems(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class JsonDocument:
    def __init__(self, line: int, text: bytes) -> None:
        self.line, self._text = line, text

    def decode(self, type_: type[Decoded]) -> Decoded:
        return msgspec.json.decode(self._text, type=type_)

    def items(self) -> Iterator["JsonDocument"]:
        line, position = self.line, 0
        for raw in self.decode(_WithItems).items or ():
            item = bytes(raw)
            start = self._text.index(item, position)
            line += self._text.count(b"\n", position, start)
            yield JsonDocument(line, item)
            line += item.count(b"\n")
            position = start + len(item)

    def value(self) -> object:
        return msgspec.json.decode(self._text)


def json_documents(text: bytes) -> Iterator[JsonDocument]:
    """The documents of a text, until its end or a SyntaxProblem."""
    text = text.removeprefix(UTF8_BOM)
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        yield from _cut(text)
    else:
        blanks = len(text) - len(text.lstrip())
        yield JsonDocument(text.count(b"\n", 0, blanks) + 1, text[blanks:])


def _cut(text: bytes) -> Iterator[JsonDocument]:
    """Several documents one after another, or an error to be named."""
    try:
        characters = text.decode()
    except UnicodeDecodeError as error:
        raise SyntaxProblem(text.count(b"\n", 0, error.start) + 1, f"byte {error.start}: {error.reason}") from error
    # Only the extent of a document is wanted, and int() refuses very long numbers.
    decoder = json.JSONDecoder(parse_int=str, parse_float=str)
    line, seen, position = 1, 0, _skip_blanks(characters, 0)
    while position < len(characters):
        line += characters.count("\n", seen, position)
        seen = position
        try:
            _, end = decoder.raw_decode(characters, position)
        except json.JSONDecodeError as error:
            raise SyntaxProblem(error.lineno, error.msg) from error
        except RecursionError as error:
            raise SyntaxProblem(line, "nested too deeply") from error
        yield JsonDocument(line, characters[position:end].encode())
        position = _skip_blanks(characters, end)


def _skip_blanks(characters: str, position: int) -> int:
    while position < len(characters) and characters[position] in " \t\r\n":
        position += 1
    return position
