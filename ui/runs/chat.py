"""One reply of a chat: its steps for the linked view, as in a completion, and its words for the transcript.

Plain data comes in and goes out, so that a reply may be made in another process.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from medusa_core.errors import MedusaError
from medusa_core.text.streamed_text import StreamedText, TextSpan
from ui.records.conversation import ChatState, Turn, check_message
from ui.records.messages import message_grow, message_show
from ui.records.settings import LONGEST_RUN, RunSettings, make_config
from ui.records.updates import StopFlag, Update
from ui.records.words import Words, amount, joined
from ui.runs.decode import ViewRequest, ready, shown_steps
from ui.serving.engines import Engines

if TYPE_CHECKING:
    from medusa_core.decoding import Step
    from medusa_core.engine import Engine
    from medusa_core.engine.chat import Reply

EMBEDDED = (
    "The embedded model is tiny: it has learned booking dialogues, sums in words and chats about stories, "
    "and takes everything else for one of these. Not every sum is right."
)
NOT_SENT = "Stopped before the reply began: the message was not sent."
STOPPED = "Stopped; the reply so far is kept."
DONE = "The reply is done; the view shows each of its steps."
ENDS = {
    "eos": "the model ended its turn",
    "stop": "the model ended its turn",
    "length": "cut: the token budget is used up",
    "context": "cut: the model’s context is full",
    None: "stopped",
}


@dataclass(frozen=True)
class ChatUpdate(Update):
    """``transcript`` is a message of the transcript; ``state`` comes once, with the finished reply."""

    messages: ClassVar[tuple[str, ...]] = ("message", "transcript")
    transcript: str | None = None
    state: ChatState | None = None


@dataclass(frozen=True)
class ChatRequest(ViewRequest):
    """A message to be answered within a conversation."""

    text: str
    state: ChatState
    settings: RunSettings

    def most_tokens(self) -> float:
        """Raises MedusaError for a message or settings beyond the page's limits."""
        check_message(self.text, self.state)
        return make_config(self.settings, LONGEST_RUN).max_new_tokens

    def run(self, engines: Engines, flag: StopFlag) -> Generator[Update, None, None]:
        """The reply; the last update has its trace and the new conversation."""
        from medusa_core.engine.chat import Conversation, Message  # noqa: PLC0415 - pulls in transformers

        engine, config = yield from ready(engines, self.settings)
        if flag.stopped:  # while the message waited for the engine
            yield Update(status=NOT_SENT)
            return
        state = replace(self.state, id=self.state.id or uuid.uuid4().hex)
        heard = [Message(turn.role, turn.text) for turn in state.read]
        cache = engines.conversations.get(engine, state.id)
        conversation = Conversation(engine, state.system.strip(), heard, cache)
        # After the end of its turn the model would write the visitor's next message.
        reply = conversation.reply(self.text, config.changed(ignore_eos=False))
        question = Turn("user", (TextSpan(reply.messages[-1].content),))
        state = state.without_oldest(reply.dropped).with_turns(question)
        run, words = uuid.uuid4().hex, _ReplyText(engine, reply)
        steps = conversation.decode(reply)
        with closing(shown_steps(engine, reply.prompt, reply.config, flag, steps, words.add)) as updates:
            for update in updates:
                if update.trace is not None:
                    answer = words.finished(conversation.messages[-1].content)
                    state = state.with_turns(Turn("assistant", answer, figures(reply)))
                    status = STOPPED if reply.summary.finish_reason is None else DONE
                    shown = {"transcript": message_show(run, state.turns), "state": state, "status": status}
                elif reply.summary.steps:
                    shown = {"transcript": message_grow(run, reply.summary.steps, words.new())}
                else:
                    shown = {"transcript": message_show(run, state.turns, live=True)}
                yield ChatUpdate(**(vars(update) | shown))


def chat_notice(engine: Engine) -> str:
    """What a visitor should know before the first message to this model; empty when there is nothing."""
    from medusa_core.engine.chat import Conversation  # noqa: PLC0415 - pulls in transformers

    try:
        return Conversation(engine).notice or (EMBEDDED if engine.info.base == "embedded" else "")
    except MedusaError as error:
        return str(error)


def figures(reply: Reply) -> str:
    """How a reply was made, in one line."""
    summary = reply.summary
    parts = [
        Words(
            "{0} in {1}, {2} a step",
            amount(len(summary.token_ids), "token"),
            amount(summary.steps, "step"),
            f"{summary.tokens_per_step:.2f}",
        ),
        f"{summary.decode_tokens_per_second:,.0f} tokens/s",
        Words("{0} of {1} reused from the cache", reply.reused, amount(len(reply.prompt), "prompt token")),
    ]
    if reply.dropped:
        one = reply.dropped == 1
        oldest = "the oldest message" if one else f"the oldest {reply.dropped} messages"
        parts.append(f"{oldest} no longer {'fits' if one else 'fit'} the context")
    return joined(" · ", [*parts, ENDS[summary.finish_reason]])


def cut_to(text: str, pieces: Sequence[TextSpan]) -> tuple[TextSpan, ...]:
    """The part of ``pieces`` that makes up ``text``, neighbours of one origin joined."""
    start = "".join(piece.text for piece in pieces).find(text)
    if start < 0:  # the run ended inside a character: the marks are lost, never the words
        return (TextSpan(text),)
    kept: list[TextSpan] = []
    end = start + len(text)
    for piece in pieces:
        part = piece.text[max(start, 0) : max(end, 0)]
        start, end = start - len(piece.text), end - len(piece.text)
        if kept and kept[-1].drafted == piece.drafted:
            part = kept.pop().text + part
        if part:
            kept.append(TextSpan(part, piece.drafted))
    return tuple(kept)


class _ReplyText:
    """The text of a reply in pieces, collected step by step."""

    def __init__(self, engine: Engine, reply: Reply) -> None:
        self._reply = reply
        self._text = StreamedText(engine.decode_text, reply.config.stop)
        self._pieces: list[TextSpan] = []
        self._seen = 0

    def add(self, step: Step) -> None:
        drafted = [node > 0 for node in step.verdict.path]
        self._pieces += self._text.add(step.emitted, drafted)

    def new(self) -> list[TextSpan]:
        """The pieces since the last call."""
        seen, self._seen = self._seen, len(self._pieces)
        return self._pieces[seen:]

    def finished(self, text: str) -> tuple[TextSpan, ...]:
        """The pieces of the whole reply, which is ``text``."""
        return cut_to(text, [*self._pieces, *self._text.rest(self._reply.summary.text)])
