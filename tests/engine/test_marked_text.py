"""Growing text in marked pieces: nothing is lost, nothing of a stop string gets out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from medusa_core.text.stopping import text_before_stop
from medusa_core.text.streamed_text import StreamedText, TextSpan
from ui.runs.chat import cut_to

LETTERS = "abcé€"  # the last two take several bytes, each a token of its own
BYTES = [bytes([byte]) for byte in sorted(set(LETTERS.encode()))]


def decode(tokens):
    return b"".join(BYTES[token] for token in tokens).decode("utf-8", errors="replace")


def tokens_of(text):
    return [BYTES.index(bytes([byte])) for byte in text.encode()]


@given(
    text=st.text(LETTERS, max_size=30),
    sizes=st.lists(st.integers(1, 5), min_size=60, max_size=60),
    stop=st.lists(st.text("abc", min_size=1, max_size=3), max_size=2),
)
def test_the_pieces_are_the_text_and_never_run_into_a_stop_string(text, sizes, stop):
    tokens, marked, shown = tokens_of(text), StreamedText(decode, stop), []
    whole = text_before_stop(text, stop)
    while tokens:
        size = sizes.pop()
        step, tokens = tokens[:size], tokens[size:]
        shown += marked.add(step, [False, *[True] * 5])
        assert whole.startswith("".join(piece.text for piece in shown))
    shown += marked.rest(whole)
    assert "".join(piece.text for piece in shown) == whole
    assert all(piece.text for piece in shown)


def test_a_piece_says_who_proposed_it():
    marked = StreamedText(decode)
    assert marked.add(tokens_of("abc"), [False, True, True, True]) == [
        TextSpan("a"), TextSpan("b", True), TextSpan("c", True),
    ]  # fmt: skip


def test_what_could_be_the_start_of_a_stop_string_waits():
    marked = StreamedText(decode, ["bc"])
    assert marked.add(tokens_of("ab"), [False, True]) == [TextSpan("a")]
    assert marked.add(tokens_of("a"), [False]) == [TextSpan("b", True)]
    assert marked.add(tokens_of("bc"), [False, True]) == [TextSpan("a")]
    assert marked.rest("aba") == []


def test_pieces_are_cut_to_the_words_that_are_kept():
    pieces = [
        TextSpan("\n"),
        TextSpan(" I", True),
        TextSpan(" am", True),
        TextSpan(""),
        TextSpan(" he"),
        TextSpan("re. "),
        TextSpan("U", True),
    ]
    assert cut_to("I am here.", pieces) == (TextSpan("I am", True), TextSpan(" here."))
    assert cut_to("", pieces) == ()
    assert cut_to("something else", pieces) == (TextSpan("something else"),)
