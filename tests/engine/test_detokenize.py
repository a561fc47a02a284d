"""Text from tokens as they arrive equals the text of all tokens, also across split characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from medusa_core.text.streaming import TextStream


def byte_decode(tokens):
    """A tokenizer of single bytes: characters beyond ASCII are split over several tokens."""
    return bytes(tokens).decode("utf-8", errors="replace")


@given(st.text(max_size=30))
def test_pieces_add_up_to_the_text(text):
    stream = TextStream(byte_decode)
    assert "".join(stream.push(byte) for byte in text.encode()) == text


def test_an_unfinished_character_is_held_back():
    stream = TextStream(byte_decode)
    assert [stream.push(byte) for byte in "é!".encode()] == ["", "é", "!"]


def test_bytes_that_are_no_character_are_given_out_in_the_end():
    stream = TextStream(byte_decode)
    pieces = [stream.push(0xFF) for _ in range(8)]
    assert set("".join(pieces)) == {"\ufffd"}
