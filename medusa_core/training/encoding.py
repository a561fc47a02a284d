"""Examples in, token ids out, each with a mark whether predicting it counts.

In a plain text every token counts, in a conversation those of the assistant's turns with the token that ends
them. The turns are found by rendering the tokenizer's chat template up to each answer and up to its end, so
the template needs no marks of its own.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from transformers import PreTrainedTokenizerBase

from medusa_core.errors import MedusaError
from medusa_core.text.chat_template import render_chat
from medusa_core.training.examples import Example, Message

_PIECE_CHARACTERS = 2**18  # a longer text is encoded in pieces: the lists of one are 100 times its size
_OTHER_ANSWER = "\ue000"  # private use: no answer starts with it


@dataclass(frozen=True)
class TokenArrays:
    """Tokens of an example or of a corpus [n], and which of them count [n]."""

    tokens: np.ndarray  # uint16 or uint32
    trained: np.ndarray  # bool

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: slice) -> TokenArrays:
        return TokenArrays(self.tokens[index], self.trained[index])

    @staticmethod
    def joined(parts: Sequence[TokenArrays]) -> TokenArrays:
        """One array after the other."""
        return TokenArrays(
            np.concatenate([part.tokens for part in parts]), np.concatenate([part.trained for part in parts])
        )


@dataclass(frozen=True)
class _Rendered:
    """A conversation as text, and the answers' spans (begin, end) in characters."""

    text: str
    answers: tuple[tuple[int, int], ...]
    place: str


def end_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """The token that ends a text. Raises MedusaError when the tokenizer names none."""
    if tokenizer.eos_token_id is None:
        raise MedusaError("the tokenizer names no end-of-text token: set eos_token in tokenizer_config.json")
    return int(tokenizer.eos_token_id)


class Encoder:
    """Encodes examples with a tokenizer. Raises MedusaError when the tokenizer has no end-of-text token."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self.end = end_token(tokenizer)
        ids = tokenizer.get_vocab().values()
        self.dtype = np.dtype(np.uint16 if max(ids) < 2**16 else np.uint32)
        added = tokenizer.added_tokens_decoder.items()
        special = {*tokenizer.all_special_ids, *(i for i, token in added if token.special)}
        self._special = special - {tokenizer.unk_token_id}  # tokens that may end a turn
        begin = tokenizer.bos_token_id
        begins = begin is not None and tokenizer("a", verbose=False)["input_ids"][:1] == [begin]
        # Where one token is both, the end of one document begins the next, and only a corpus needs the token.
        self._begin = [begin] if begins and begin != self.end else []
        self.opening = self._arrays([begin], [False]) if begins and begin == self.end else None

    @cached_property
    def fingerprint(self) -> str:
        """A hash that changes when the same text could come out as other tokens."""
        tokenizer = self._tokenizer
        vocabulary = (
            tokenizer.backend_tokenizer.to_str()
            if tokenizer.is_fast
            else sorted(tokenizer.get_vocab().items())
        )
        parts = [
            type(tokenizer).__name__,
            vocabulary,
            tokenizer.chat_template,
            self.end,
            tokenizer.bos_token_id,
        ]
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()

    def encode(self, examples: Sequence[Example]) -> list[TokenArrays]:
        """Tokens of each example, closed by end-of-text; of no length when the text makes no token.

        A conversation ends with its last answer: what follows has nothing to train. A template that rewrites
        earlier turns (leaving out old reasoning, say) makes one document of each answer.
        """
        pieces = [[] if example.text is None else _pieces(example.text) for example in examples]
        rendered = [self._rendered(example) if example.text is None else [] for example in examples]
        plain = iter(self._encoded([piece for texts in pieces for piece in texts]))
        answered = iter(self._answered([document for documents in rendered for document in documents]))
        return [
            self._plain([next(plain) for _ in texts])
            if texts
            else TokenArrays.joined([next(answered) for _ in documents])
            for texts, documents in zip(pieces, rendered, strict=True)
        ]

    def _encoded(self, texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        return self._tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)[
            "input_ids"
        ]

    def _arrays(self, ids: Sequence[int], trained: Sequence[bool]) -> TokenArrays:
        return TokenArrays(np.asarray(ids, dtype=self.dtype), np.asarray(trained, dtype=bool))

    def _plain(self, pieces: list[list[int]]) -> TokenArrays:
        ids = [token for piece in pieces for token in piece]
        if not ids:
            return self._arrays([], [])
        if ids[-1] != self.end:
            ids.append(self.end)
        return self._arrays([*self._begin, *ids], [*[False] * len(self._begin), *[True] * len(ids)])

    def _answered(self, documents: list[_Rendered]) -> list[TokenArrays]:
        if not documents:
            return []
        texts = [document.text for document in documents]
        if not self._tokenizer.is_fast:
            ids = self._encoded(texts)
            ranges = [self._ranges_by_prefix(*pair) for pair in zip(documents, ids, strict=True)]
        else:
            encoding = self._tokenizer(
                texts,
                add_special_tokens=False,
                return_attention_mask=False,
                return_offsets_mapping=True,
                verbose=False,
            )
            ids = encoding["input_ids"]
            ranges = [
                _ranges_by_offset(*pair) for pair in zip(documents, encoding["offset_mapping"], strict=True)
            ]
        return [self._closed(*triple) for triple in zip(documents, ids, ranges, strict=True)]

    def _ranges_by_prefix(self, document: _Rendered, ids: list[int]) -> list[tuple[int, int]]:
        """Token ranges of the answers, without offsets: what the text before them shares with all of it."""

        def tokens_before(position: int) -> int:
            return _shared(self._encoded([document.text[:position]])[0], ids)

        return [(tokens_before(begin), tokens_before(end)) for begin, end in document.answers]

    def _closed(self, document: _Rendered, ids: list[int], ranges: list[tuple[int, int]]) -> TokenArrays:
        """Mark the answers and close the document with end-of-text, which may be there already."""
        trained = np.zeros(len(ids), dtype=bool)
        for begin, end in ranges:
            trained[begin : self._turn_end(ids, begin, end)] = True
        if not trained.any():
            raise MedusaError(f"{document.place}: the answer makes no token: check the chat template")
        last = int(np.flatnonzero(trained)[-1])
        if ids[last] == self.end:
            ids, trained = ids[: last + 1], trained[: last + 1]
        else:
            ids, trained = [*ids, self.end], np.append(trained, True)
        before = [] if ids[:1] == self._begin else self._begin
        return self._arrays([*before, *ids], [*[False] * len(before), *trained])

    def _turn_end(self, ids: list[int], begin: int, end: int) -> int:
        """Where the model stops: behind the token that ends the turn, not behind the blanks after it."""
        stop = end
        while stop > begin and ids[stop - 1] not in self._special and self._is_blank(ids[stop - 1]):
            stop -= 1
        return stop if stop > begin and ids[stop - 1] in self._special else end

    def _is_blank(self, token: int) -> bool:
        return cast("str", self._tokenizer.decode([token])).isspace()

    def _rendered(self, example: Example) -> list[_Rendered]:
        """The conversation up to its last answer as one text or, when its turns do not add up, as several."""
        messages, place = example.messages, example.place
        answers = [index for index, message in enumerate(messages) if message.role == "assistant"]
        if not answers:
            raise MedusaError(f"{place} has no answer to train on: add one, or self-distil it first")
        if not self._tokenizer.chat_template:
            if not example.paired:
                raise MedusaError(
                    f"{place} has messages, and the tokenizer has no chat template to write them with: "
                    'give {"prompt", "response"} or {"text"}'
                )
            prompt, response = (message.content for message in messages)
            text = prompt + response
            return [_Rendered(text, ((len(prompt), len(text)),), place)]
        texts = [self._render(messages[: index + 1], place) for index in answers]
        spans = [
            (self._answer_begin(messages[: index + 1], text, place), len(text))
            for index, text in zip(answers, texts, strict=True)
        ]
        if all(texts[-1].startswith(text) for text in texts):
            return [_Rendered(texts[-1], tuple(spans), place)]
        return [_Rendered(text, (span,), place) for text, span in zip(texts, spans, strict=True)]

    def _answer_begin(self, messages: Sequence[Message], text: str, place: str) -> int:
        """Where the last message begins in ``text``: behind what the model is given when it has to answer.

        Some templates give more than they keep (an opened block of reasoning), and a conversation may begin
        with an answer. Then it is where another answer would make a difference.
        """
        if len(messages) > 1:
            given = self._render(messages[:-1], place, add_generation_prompt=True)
            if text.startswith(given):
                return len(given)
        other = self._render((*messages[:-1], Message("assistant", _OTHER_ANSWER)), place)
        return _shared(other, text)

    def _render(self, messages: Sequence[Message], place: str, *, add_generation_prompt: bool = False) -> str:
        turns = [message._asdict() for message in messages]
        whose, fix = f"{place}: the tokenizer's chat template", "change its roles or their order"
        return render_chat(self._tokenizer, turns, answer_next=add_generation_prompt, whose=whose, fix=fix)


def _shared(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Length of the common prefix."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _pieces(text: str) -> list[str]:
    """Cut a long text behind line ends, or before blanks where its lines are long too."""
    pieces: list[str] = []
    begin = 0
    while len(text) - begin > _PIECE_CHARACTERS:
        limit = begin + _PIECE_CHARACTERS
        cut = max(text.rfind("\n", begin, limit) + 1, text.rfind(" ", begin + 1, limit))
        pieces.append(text[begin : cut if cut > begin else limit])
        begin += len(pieces[-1])
    return [*pieces, text[begin:]]


def _ranges_by_offset(document: _Rendered, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Token ranges of the answers: a token belongs where its first character stands that is not blank."""
    text = document.text
    starts = [end - len(text[begin:end].lstrip() or text[begin:end]) for begin, end in offsets]
    return [(bisect_left(starts, begin), bisect_left(starts, end)) for begin, end in document.answers]
