"""``chat``: talk with a model; replies stream with accepted drafts marked, figures follow each.

Commands: /reset forgets the conversation, /system TEXT sets the system prompt, /stats sums it up, /quit ends.
Lines come from the keyboard or from a pipe; Ctrl-C breaks a reply off.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from medusa_core.cli.commands.generate import add_marks_flag
from medusa_core.cli.flags import add_run_settings, add_settings, read_run_settings
from medusa_core.cli.signals import Terminated
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.errors import MedusaError, counted
from medusa_core.library_messages import importing

if TYPE_CHECKING:
    from medusa_core.engine.chat import Conversation, Reply
    from medusa_core.engine.summary import RunSummary


def register(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "chat", help="talk with a model", description=__doc__, usage="%(prog)s [OPTION …]"
    )
    parser.add_argument("--system", default="", metavar="TEXT", help="system prompt")
    add_settings(parser, LoadConfig)
    add_run_settings(parser)
    add_marks_flag(parser)
    parser.set_defaults(run=f"{__name__}:run")


_COMMANDS = "/reset, /system TEXT, /stats, /quit"


def run(args: argparse.Namespace) -> None:
    """Talk until /quit or the end of the input. Raises MedusaError for bad flags, not for a bad message."""
    with importing():
        from medusa_core.cli.load import headline, load_for_run
        from medusa_core.engine.chat import Conversation

    engine, config, notes = load_for_run(args, read_run_settings(args))
    engine.fixed_tree(config)  # a tree that does not exist ends the command, not each message
    chat = _Chat(Conversation(engine, args.system), config, args.marks)
    _say("\n".join([headline(engine, config), *notes]))
    if chat.conversation.notice:
        _say(f"note: {chat.conversation.notice}")
    _say(f"commands: {_COMMANDS}")
    for line in _lines():
        if line.split()[:1] == ["/quit"]:
            return
        try:
            chat.take(line)
        except MedusaError as error:
            _say("error: " + " ".join(str(error).split()))


@dataclass
class _Chat:
    """A conversation on the terminal, with the replies that /stats sums up."""

    conversation: Conversation
    config: GenerationConfig
    marks: str
    replies: list[RunSummary] = field(default_factory=list)

    def take(self, line: str) -> None:
        """One line of input: a command or a message. Raises MedusaError."""
        word, *rest = line.split(maxsplit=1) or [""]
        if not word:
            return
        if word == "/reset":
            self.conversation.reset()
            _say("the conversation is forgotten")
        elif word == "/system":
            if rest:
                self.conversation.system = rest[0].strip()
            _say(f"system prompt: {self.conversation.system or 'none'}")
        elif word == "/stats":
            _say(self._stats())
        elif word.startswith("/"):
            raise MedusaError(f"there is no command {word}: use {_COMMANDS}")
        else:
            self._answer(line)

    def _answer(self, line: str) -> None:
        from medusa_core.cli.generate import TextPrinter

        reply = self.conversation.reply(line, self.config)
        if reply.dropped:
            _say(f"note: the context is full, the oldest {reply.dropped} messages were dropped")
        printer = TextPrinter(self.conversation.engine, reply.config.stop, self.marks)
        steps = iter(reply)
        stopped: KeyboardInterrupt | None = None
        try:
            for step in steps:
                printer.step(step.emitted, [node > 0 for node in step.verdict.path])
        except KeyboardInterrupt as stop:
            steps.close()
            stopped = stop
        printer.finish(reply.summary.text)
        self.replies.append(reply.summary)
        _say(self._figures(reply))
        # After Ctrl-C a person at the keyboard goes on with another message; a script ends.
        if stopped is not None and (isinstance(stopped, Terminated) or not sys.stdin.isatty()):
            raise stopped

    def _figures(self, reply: Reply) -> str:
        summary = reply.summary
        end: dict[str | None, str] = {
            None: "interrupted",
            "length": f"cut by --max-new-tokens {self.config.max_new_tokens}",
            "context": "the context is full",
        }
        parts = [
            f"{counted(len(summary.token_ids), 'token')} in {counted(summary.steps, 'step')}: "
            f"{summary.tokens_per_step:.2f} a step",
            f"{summary.decode_tokens_per_second:,.0f} tokens/s",
            f"{reply.reused} of {counted(len(reply.prompt), 'prompt token')} reused",
            end.get(summary.finish_reason, ""),
        ]
        return ", ".join(filter(None, parts))

    def _stats(self) -> str:
        conversation = self.conversation
        context = conversation.engine.target.context
        sums = f"replies: {len(self.replies)}"
        tokens = sum(len(one.token_ids) for one in self.replies)
        if steps := sum(one.steps for one in self.replies):
            rate = tokens / sum(one.seconds for one in self.replies)
            sums += f", {counted(tokens, 'token')} in {counted(steps, 'step')}: {tokens / steps:.2f} a step"
            sums += f", {rate:,.0f} tokens/s"
        kept = counted(len(conversation.messages), "message")
        cached = counted(conversation.cached_tokens, "token")
        return f"{sums}; {kept}, {cached} in the cache, the context holds {context}"


def _lines() -> Iterator[str]:
    """Lines of input; with a prompt on a terminal."""
    typed = sys.stdin.isatty()
    while True:
        try:
            line = input("> ") + "\n" if typed else sys.stdin.readline()
        except EOFError:
            return
        except UnicodeDecodeError as error:
            raise MedusaError(f"the input is not UTF-8 text ({error.reason}): convert it") from error
        if not line:
            return
        yield line.rstrip("\r\n")


def _say(text: str) -> None:
    """Print to stderr, so that a pipe gets the replies alone."""
    print(text, file=sys.stderr, flush=True)
