"""Text from tokens as they arrive equals the text of all tokens, also across split characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

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


def test_a_special_token_between_words_takes_no_space_away():
    """Tokenizers such as Llama 2's write a word with its space, and leave it out where a text begins."""
    vocabulary = {"<unk>": 0, "▁Hi": 1, "▁you": 2, "</s>": 3} | {
        f"<0x{byte:02X}>": 4 + byte for byte in range(256)
    }
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    accent = [4 + byte for byte in "é".encode()]
    for tokens in (
        [1, 3, 2],
        [1, 3, 3, 3, 3, 3, *accent, 2],
        [3, 1, accent[0], 3, accent[1]],
        [1, *accent, 3, 2],
    ):
        stream = TextStream(tokenizer.decode)
        assert "".join(stream.push(token) for token in tokens) == tokenizer.decode(tokens)
