"""Lines out of chunks, wherever the chunks were cut."""

from hypothesis import given
from hypothesis import strategies as st

from kbpf.source.api.lines import lines_of


@given(
    st.lists(st.binary().filter(lambda line: b"\n" not in line)), st.lists(st.integers(0, 50)), st.binary(max_size=5)
)
def test_the_lines_are_the_same_however_they_were_cut(lines, cuts, rest):
    rest = rest.replace(b"\n", b"")
    text = b"".join(line + b"\n" for line in lines) + rest
    chunks, position = [], 0
    for cut in cuts:
        chunks.append(text[position : position + cut])
        position += cut
    chunks.append(text[position:])
    assert list(lines_of(chunks)) == lines + ([rest] if rest else [])


def test_a_line_is_there_as_soon_as_its_end_is():
    def chunks():
        yield b"one\ntw"
        raise AssertionError("asked for more than it needed")

    assert next(iter(lines_of(chunks()))) == b"one"
