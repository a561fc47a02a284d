"""Text from tokens, in marked pieces, in circles, and with numbers and their nouns."""

from __future__ import annotations

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from trace_factory import make_trace

from medusa_core.config import GenerationConfig
from medusa_core.engine.summary import distinct_n
from medusa_core.errors import counted
from medusa_core.text.stopping import text_before_stop
from medusa_core.text.streamed_text import StreamedText, TextSpan, TextStream
from ui.runs.chat import cut_to
from ui.runs.decode import step_words, summary


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


# --- Growing text in marked pieces: nothing is lost, nothing of a stop string gets out.


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


def test_a_token_whose_end_could_begin_a_stop_string_waits_whole():
    marked = StreamedText("".join, ["girls"])
    assert marked.add(["a ", "girl"], [False, True]) == [TextSpan("a ")]
    assert marked.add([" isnt"], [False]) == [TextSpan("girl", True)]
    assert marked.rest("a girl i") == [TextSpan(" i")]


def test_pieces_are_cut_to_the_words_that_are_kept():
    pieces = [
        TextSpan("\n"), TextSpan(" I", True), TextSpan(" am", True), TextSpan(""), TextSpan(" he"),
        TextSpan("re. "), TextSpan("U", True),
    ]  # fmt: skip
    assert cut_to("I am here.", pieces) == (TextSpan("I am", True), TextSpan(" here."))
    assert cut_to("", pieces) == ()
    assert cut_to("something else", pieces) == (TextSpan("something else"),)


# --- Distinct-n, and that it tells a text in circles from one that goes on.


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(1, 4))
def test_it_is_the_share_of_n_grams_that_differ(tokens, n):
    grams = [tuple(tokens[place : place + n]) for place in range(len(tokens) - n + 1)]
    assert distinct_n([tokens], n) == (len(set(grams)) / len(grams) if grams else None)


def test_a_text_in_circles_has_few_and_the_penalty_makes_more(engine):
    shares = []
    for settings in ({}, {"penalty": 1.6, "penalty_window": 20}):
        config = GenerationConfig.of(max_new_tokens=80, method="ngram", **settings)
        summary = engine.summary(config)
        for step in engine.stream(tiny.PROMPT, config):
            summary.add(step)
        assert summary.distinct() == [
            pytest.approx(distinct_n([summary.token_ids], n), abs=1e-4) for n in range(1, 5)
        ]
        shares.append(summary.distinct())
    assert all(with_penalty > without for without, with_penalty in zip(*shares, strict=True))


# --- Numbers and their nouns, and the sentences of the page that hold them.


def test_the_noun_goes_with_the_number():
    steps = [counted(number, "step") for number in (0, 1, 2, 1000)]
    assert steps == ["0 steps", "1 step", "2 steps", "1000 steps"]
    assert [counted(number, "guess", "guesses") for number in (1, 2)] == ["1 guess", "2 guesses"]


def test_a_run_of_one_step_is_told_in_the_singular():
    trace = make_trace(["Hello"])
    assert summary(trace, 0.1).startswith("1 token in 1 step, 1.00 a step")
    assert " steps, 1.00 a step" in summary(make_trace(heads=0), 0.1)


def test_the_root_does_not_count_as_a_guess(engine):
    step = tiny.run(engine, tree="cartesian-3x1", max_new_tokens=8)[1]
    kept = counted(len(step.emitted), "token")
    assert step_words(step) == f"Step 2: {kept} kept, 6 guesses checked"
    plain = tiny.run(engine, method="none", max_new_tokens=2)[0]
    assert step_words(plain) == "Step 1: 1 token kept, 0 guesses checked"
