"""Tokens to text while they arrive: each token's text, held back while its last character is incomplete."""

from __future__ import annotations

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"


class TextStream:
    """Incremental decoding with a bounded window, so that long runs cost no more a token."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._window = 0  # first token of the window
        self._read = 0  # first token whose text was not given out

    def push(self, token: int) -> str:
        """The text that ``token`` adds; "" while it ends inside a character."""
        self._tokens.append(token)
        known = self._decode(self._tokens[self._window : self._read])
        text = self._decode(self._tokens[self._window :])
        if text.endswith(REPLACEMENT) and len(self._tokens) - self._read < 4:
            return ""
        # The last piece stays in the window: some tokenizers join pieces by looking at the one before.
        self._window, self._read = self._read, len(self._tokens)
        return text[len(known) :]
