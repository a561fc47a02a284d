"""One visitor's conversation as plain data, and the page's limits on it.

Frozen records: a reply makes a new ``ChatState`` and leaves the old one alone. They hold no cache: what a
model has read is found again by ``id``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from medusa_core.errors import MedusaError
from medusa_core.text.streamed_text import TextSpan
from ui.records.settings import MAX_PROMPT_CHARACTERS

# Limits of one conversation, which stays in memory while its page is open.
MOST_TURNS = 60
MOST_CHARACTERS = 100_000


@dataclass(frozen=True)
class Turn:
    """One message. ``read`` is False when the context has no room for it any more."""

    role: str  # "user" or "assistant"
    pieces: tuple[TextSpan, ...]
    figures: str = ""  # how a reply was made, in one line
    read: bool = True

    @property
    def text(self) -> str:
        """The message without its marks."""
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True)
class ChatState:
    """The first reply sets ``id``, which cannot be guessed; the visitor keeps it."""

    id: str = ""
    system: str = ""
    turns: tuple[Turn, ...] = ()

    @property
    def read(self) -> list[Turn]:
        """The turns that the model still reads."""
        return [turn for turn in self.turns if turn.read]

    def without_oldest(self, count: int) -> ChatState:
        """The state in which the ``count`` oldest read turns are no longer read, but stay visible."""
        gone = [number for number, turn in enumerate(self.turns) if turn.read][:count]
        turns = (replace(turn, read=turn.read and n not in gone) for n, turn in enumerate(self.turns))
        return replace(self, turns=tuple(turns))

    def with_turns(self, *turns: Turn) -> ChatState:
        return replace(self, turns=(*self.turns, *turns))


@dataclass
class ChatHolder:
    """Holds one visitor's conversation from reply to reply; a new one may replace it."""

    state: ChatState = ChatState()


def check_message(text: str, state: ChatState) -> None:
    """Raises MedusaError for a message, system prompt or conversation beyond the page's limits."""
    if not text or not text.strip():
        raise MedusaError("The message is empty: write a few words, or choose one of the examples.")
    for name, words in (("message", text), ("system prompt", state.system)):
        if len(words) > MAX_PROMPT_CHARACTERS:
            raise MedusaError(
                f"The {name} has {len(words)} characters, the page takes {MAX_PROMPT_CHARACTERS}: shorten it."
            )
    length = len(text) + sum(len(turn.text) for turn in state.turns)
    if length > MOST_CHARACTERS:
        raise MedusaError(
            f"With this message the conversation has {length} characters, the page keeps {MOST_CHARACTERS}: "
            "start a new one."
        )
    if len(state.turns) + 2 > MOST_TURNS:
        raise MedusaError(
            f"The conversation has {len(state.turns)} messages, the page keeps {MOST_TURNS}: start a new one."
        )
