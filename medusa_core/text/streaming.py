"""Tokens to text while they arrive: each token's text, held back while its last character is incomplete."""

from __future__ import annotations

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"


class TextStream:
    """Incremental decoding with a bounded window, so that long runs cost no more a token.

    ``tokenizers.decoders.DecodeStream`` waits for ever where bytes are no character, and takes no tokenizer
    that is written in Python.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._window = 0  # first token of the window
        self._read = 0  # first token whose text was not given out
        self._unfinished = 0  # last tokens that ended inside a character

    def push(self, token: int) -> str:
        """The text that ``token`` adds; "" while it ends inside a character."""
        self._tokens.append(token)
        known = self._decode(self._tokens[self._window : self._read])
        text = self._decode(self._tokens[self._window :])
        if text.endswith(REPLACEMENT) and self._unfinished < 3:
            self._unfinished += 1
            return ""
        self._unfinished = 0
        if len(text) <= len(known):
            # A special token. With it alone in the window the next piece begins a text without a space.
            return ""
        # The last piece stays in the window: some tokenizers join pieces by looking at the one before.
        self._window, self._read = self._read, len(self._tokens)
        return text[len(known) :]
