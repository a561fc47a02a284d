"""The text of a run while it grows, in pieces that say whether heads had guessed them.

Each token's text is held back while its last character is incomplete, and what could be the start of a stop
string, so that nothing shown has to be taken back. Knows tokens and their text, nothing of models, terminals
or pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from medusa_core.text.stopping import text_before_stop

REPLACEMENT = "\ufffd"


class TextStream:
    """Incremental decoding with a bounded window, so that long runs cost no more a token.

    ``tokenizers.decoders.DecodeStream`` waits forever where bytes are not a character, and takes no tokenizer
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


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Text of one origin: ``drafted`` when a draft was accepted, else it is the model's own choice."""

    text: str
    drafted: bool = False


class StreamedText:
    """Pieces of a run's text, given out as soon as they are sure."""

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str] = ()) -> None:
        self._stream = TextStream(decode)
        self._stop = tuple(stop)
        self._hold = max((len(text) for text in self._stop), default=1) - 1
        self._text = ""
        self._waiting: list[TextSpan] = []  # not given out yet
        self._given = 0  # characters

    def add(self, tokens: Iterable[int], drafted: Iterable[bool]) -> list[TextSpan]:
        """Take one step's tokens; ``drafted`` may be longer. Returns what has become sure."""
        new = [
            TextSpan(self._stream.push(token), guess) for token, guess in zip(tokens, drafted, strict=False)
        ]
        self._waiting += new
        self._text += "".join(piece.text for piece in new)
        return self._take(min(len(self._text) - self._hold, len(text_before_stop(self._text, self._stop))))

    def rest(self, text: str) -> list[TextSpan]:
        """The rest of the run's whole ``text``, which a stop string may end inside a token."""
        taken = self._take(len(text))
        if self._waiting and self._given < len(text):
            last = self._waiting.pop(0)
            taken.append(TextSpan(last.text[: len(text) - self._given], last.drafted))
            self._given = len(text)
        return taken

    def _take(self, end: int) -> list[TextSpan]:
        """Take whole tokens, since one in two parts would look like two."""
        taken: list[TextSpan] = []
        while self._waiting and self._given + len(self._waiting[0].text) <= end:
            piece = self._waiting.pop(0)
            self._given += len(piece.text)
            if piece.text:
                taken.append(piece)
        return taken
