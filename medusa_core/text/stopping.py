"""Where a run ends: end-of-text, stop strings, the token budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence

STOP_TAIL = 64  # tokens decoded to look for a stop string, at least


class Stopper:
    """Cuts the tokens of a step at the first reason to stop.

    The end-of-text token and the token that completes a stop string are kept among the tokens; the text of
    a run ends before them.
    """

    def __init__(
        self,
        end_tokens: frozenset[int],
        stop: Sequence[str],
        budget: int,
        decode: Callable[[Sequence[int]], str],
        before: Sequence[int] = (),
    ) -> None:
        """``before`` are tokens of the same text from a run before, with which a stop string may begin."""
        self._end_tokens = end_tokens
        self._stop = tuple(text for text in stop if text)
        self._left = budget
        self._decode = decode
        # A character takes at most four byte tokens.
        self._tail_length = max([STOP_TAIL, *(4 * len(text) for text in self._stop)])
        self._tail: list[int] = list(before[-self._tail_length :])

    def cut(self, tokens: Sequence[int]) -> tuple[list[int], str | None]:
        """The tokens that may be emitted and the finish reason: "eos", "stop", "length" or None."""
        kept: list[int] = []
        for token in tokens:
            kept.append(token)
            self._left -= 1
            if token in self._end_tokens:
                return kept, "eos"
            if self._stop and self._completes_stop(token):
                return kept, "stop"
            if self._left == 0:
                return kept, "length"
        return kept, None

    def _completes_stop(self, token: int) -> bool:
        self._tail = [*self._tail, token][-self._tail_length :]
        text = self._decode(self._tail)
        return any(stop in text for stop in self._stop)


def text_before_stop(text: str, stop: Sequence[str]) -> str:
    """The text up to the first stop string."""
    places = [place for s in stop if s and (place := text.find(s)) >= 0]
    return text[: min(places)] if places else text
