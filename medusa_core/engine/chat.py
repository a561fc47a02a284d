"""A conversation: the tokenizer's chat template, the end of a turn, and a KV cache kept between turns.

The whole conversation is rendered anew for each reply, and the cache is cut to the tokens that it still
begins with, so that what is decoded is what a fresh run on the same text would decode. The cache belongs to
the conversation, never to the model: two of them on one engine cannot meet. A model without a template
continues a text instead, and ``notice`` says so.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import cast

from medusa_core.config import GenerationConfig
from medusa_core.decoding import Step
from medusa_core.engine import Engine, RunState
from medusa_core.errors import MedusaError
from medusa_core.text.chat_template import render_chat
from medusa_core.text.prompt_check import check_characters, check_text

_MARK, _NEXT = "medusaanswer", "medusaquestion"  # plain words that no template changes
_ROOM = 4  # old messages go when less than a 4th of the context, or the budget, is left for the reply


@dataclass(frozen=True)
class Message:
    """One message: ``role`` is "user" or "assistant", the system prompt stands on its own."""

    role: str
    content: str


@dataclass(frozen=True)
class TurnEnd:
    """What ends a reply beside the model's own end-of-text: a special token, or text of the template."""

    tokens: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()


@dataclass(eq=False)
class Reply:
    """One reply while it is made: iterate for its steps, each a ``Step`` of the decode loop.

    ``messages`` end with the question, ``prompt`` are the token ids of all of them, ``config`` the settings
    with the end of a turn among the stop strings, ``reused`` how many of the prompt's tokens are in the
    cache, ``dropped`` how many old messages the context had no room for. The conversation changes when the
    iteration starts; when it ends or is broken off, the conversation has the text.
    """

    conversation: Conversation
    messages: list[Message]
    prompt: list[int]
    config: GenerationConfig
    reused: int
    dropped: int

    def __post_init__(self) -> None:
        # Its text ends before the end of the turn.
        self.summary = self.conversation.engine.summary(self.config)

    def __iter__(self) -> Generator[Step, None, None]:
        """Decode. Raises MedusaError when the run cannot start."""
        yield from self.conversation.decode(self)


class Conversation:
    """Messages, a system prompt and the cache of what was read so far, on an engine that others may share."""

    def __init__(
        self,
        engine: Engine,
        system: str = "",
        messages: Iterable[Message] = (),
        read: RunState | None = None,
    ) -> None:
        """Go on after ``messages``, with what the same target has ``read`` of them where that was kept.

        Raises MedusaError when there is no tokenizer or the template takes no system prompt.
        """
        self.engine = engine
        self.messages: list[Message] = list(messages)
        self.templated = bool(engine.require_tokenizer().chat_template)
        self.turn_end = turn_end(engine) if self.templated else TurnEnd()
        self.system = system
        self._read = read or RunState(engine.target.new_cache(0))

    @property
    def notice(self) -> str | None:
        """What a user must know about this model's chats, or None."""
        if self.templated:
            return None
        base = self.engine.info.base
        return f"{base} has no chat template: it continues the text you write instead of answering it"

    @property
    def system(self) -> str:
        """The system prompt; setting it keeps the messages."""
        return self._system

    @system.setter
    def system(self, text: str) -> None:
        if text and self.templated and not _takes_system(self.engine):
            raise MedusaError(
                f"the chat template of {self.engine.info.base} has no system prompt: "
                "write it into the first message"
            )
        self._system = check_characters(text, "the system prompt")

    @property
    def cached_tokens(self) -> int:
        """Tokens of this conversation that need not be read again."""
        return len(self._read.tokens)

    def reset(self) -> None:
        """Forget the messages and what was read of them; the system prompt stays."""
        self.messages.clear()
        self._read = RunState(self.engine.target.new_cache(0))

    def reply(self, text: str, config: GenerationConfig) -> Reply:
        """A reply to ``text``, to be iterated; the oldest messages go when the context has no room for them.

        Raises MedusaError when the text is empty or does not fit the context even alone; the conversation is
        then as it was.
        """
        kept = [*self.messages, Message("user", check_text(text if text.strip() else "", "the message"))]
        dropped = 0
        context = self.engine.target.context
        room = min(config.max_new_tokens, context // _ROOM)
        while len(prompt := self.render(kept)) + room > context and len(kept) > 2:
            kept, dropped = kept[2:], dropped + 2  # a question goes with its answer
        if len(prompt) >= context:
            raise MedusaError(
                f"the message makes {len(prompt)} tokens, {self.engine.target.context_words}: shorten it"
            )
        # Found from these messages, since a template may name the speakers by what they say.
        ends = turn_end(self.engine, kept).stop if self.turn_end.stop and not config.ignore_eos else ()
        config = replace(config, stop=(*config.stop, *ends))
        return Reply(self, kept, prompt, config, self._known(prompt), dropped)

    def render(self, messages: list[Message]) -> list[int]:
        """Token ids of the whole conversation, up to where the next answer starts. Raises MedusaError."""
        if not self.templated:
            # One text: each message goes on a new line after the answer before it.
            return self.engine.tokenize(self._system + "".join(_continued(messages, bool(self._system))))
        text = _render(self.engine, self._system, messages, True)
        return self.engine.tokenize(text, special=False)  # the template has written them

    def decode(self, reply: Reply) -> Generator[Step, None, None]:
        """The steps of ``reply``, kept in it and in the conversation as they come."""
        summary = reply.summary
        if summary.steps:
            raise MedusaError("this reply was made already: ask for a new one")
        before, self.messages = self.messages, list(reply.messages)
        # First our notes, then the cache, so that a run that fails while it reads leaves both in agreement.
        read = self._read
        del read.tokens[self._known(reply.prompt) :]
        read.cache.truncate(len(read.tokens))
        steps = self.engine.stream(reply.prompt, reply.config, state=read, end_tokens=self.turn_end.tokens)
        try:
            for step in steps:
                if not summary.steps:
                    read.tokens[:] = reply.prompt
                read.tokens += step.verdict.accepted
                summary.add(step)
                yield step
        finally:
            steps.close()
            if summary.steps:
                text = summary.text.strip() if self.templated else summary.text
                self.messages.append(Message("assistant", text))
            else:
                self.messages = before

    def _known(self, prompt: list[int]) -> int:
        """How many tokens of ``prompt`` the cache begins with; its last one is read anew in any case."""
        same = zip(self._read.tokens, prompt[:-1], strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], same))


def turn_end(engine: Engine, messages: Sequence[Message] = (Message("user", "a"),)) -> TurnEnd:
    """How the template goes on after an answer to the last of ``messages``: with a special token, or with
    the text of the next question.

    Read from the template itself, since models name their end-of-turn token only in part of their configs.
    """
    text = _render(engine, "", [*messages, Message("assistant", _MARK), Message("user", _NEXT)], False)
    between = engine.tokenize(text.partition(_MARK)[2].partition(_NEXT)[0], special=False)
    added = engine.require_tokenizer().added_tokens_decoder
    first = next((place for place, token in enumerate(between) if token in added), len(between))
    # Spaces at the end of a header, "\nUser: ", belong to the question.
    header = engine.require_tokenizer().decode(between[:first], clean_up_tokenization_spaces=False)
    header = cast("str", header).rstrip()
    if header:
        return TurnEnd(stop=(header,))
    return TurnEnd(tokens=frozenset(between[first : first + 1]))


def _render(engine: Engine, system: str, messages: list[Message], answer_next: bool) -> str:
    entries = [{"role": message.role, "content": message.content} for message in messages]
    if system:
        entries.insert(0, {"role": "system", "content": system})
    whose = f"the chat template of {engine.info.base}"
    fix = "write it another way, or take a model with another template"
    return render_chat(engine.require_tokenizer(), entries, answer_next=answer_next, whose=whose, fix=fix)


def _takes_system(engine: Engine) -> bool:
    """Whether the template has a place for a system prompt: some refuse it or take it for an answer."""
    question = [Message("user", _NEXT)]
    try:
        text = _render(engine, _MARK, question, True)
    except MedusaError:
        return False
    try:
        as_answer = _render(engine, "", [Message("assistant", _MARK), *question], True)
    except MedusaError:  # templates may refuse to begin with an answer
        return _MARK in text
    return _MARK in text and text != as_answer


def _continued(messages: list[Message], after_system: bool) -> Iterator[str]:
    for place, message in enumerate(messages):
        if message.role == "user" and (place or after_system):
            yield "\n"
        yield message.content
