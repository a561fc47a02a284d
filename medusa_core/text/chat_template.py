"""Chat templates rendered within bounds: a template is a foreign program and may never end.

transformers renders in the process that asks, in a sandbox that keeps a template from files and from Python
but not from using up time and memory: two nested loops of 100,000 turns take hours, ``9**(9**9)`` cannot be
interrupted by anything in Python, and doubling a text forty times takes all memory. No count of loops or
lines catches all three, and signals work in the main thread alone. So one process beside this one renders for
all threads, by transformers' own function. It ends itself after some seconds, and the next request starts
another. The first request costs half a second, later ones hardly more than rendering here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import monotonic
from typing import IO, Any, cast

from transformers import PreTrainedTokenizerBase

from medusa_core.errors import MedusaError, reason_of

SECONDS = 5.0  # for one conversation; a long one takes some milliseconds
_WORKER = Path(__file__).with_name("chat_template_worker.py")


def render_chat(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, str]],
    *,
    answer_next: bool = False,
    whose: str = "the tokenizer's chat template",
    fix: str = "give texts",
) -> str:
    """The conversation as the tokenizer's chat template writes it, as ``apply_chat_template`` would.

    With ``answer_next`` it ends where the next answer begins. Raises MedusaError that names the template
    ``whose`` and what would ``fix`` it.
    """
    special = {name: _plain(value) for name, value in tokenizer.special_tokens_map.items()}
    try:
        template = tokenizer.get_chat_template()
        if not isinstance(template, str):
            raise ValueError("it is not a string")
        return _renderer().render(template, messages, special | {"add_generation_prompt": answer_next})
    except ValueError as error:
        raise MedusaError(f"{whose} cannot write this ({reason_of(error)}): {fix}") from error


def chat_ids(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, str]], **words: str
) -> list[int]:
    """Token ids of the conversation, up to where the next answer begins.

    Raises MedusaError in the ``words`` of ``render_chat``.
    """
    text = render_chat(tokenizer, messages, answer_next=True, **words)
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


class Renderer:
    """The process that renders, started when it is needed, and again after it has ended or after a fork."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._reset()

    def render(
        self, template: str, messages: Sequence[Mapping[str, str]], variables: Mapping[str, Any]
    ) -> str:
        """The text of a template. Raises ValueError with the reason why there is none."""
        if self._owner != os.getpid():  # a fork shares the pipes, and maybe a lock that is held
            self._reset()
        turns = [dict(message) for message in messages]
        asked = {"template": template, "messages": turns, "variables": dict(variables)}
        request = json.dumps(asked).encode() + b"\n"
        with self._lock:
            reply = self._ask(request)
        if "text" not in reply:
            raise ValueError(reply["fault"])
        return reply["text"]

    def _ask(self, request: bytes) -> dict[str, str]:
        process = self._process = self._process or self._start()
        stdin, stdout = _pipes(process)
        started = monotonic()
        try:
            stdin.write(request)
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = b""
        except BaseException:  # interrupted: its answer would be taken for that to the next request
            self._end()
            raise
        if line.endswith(b"\n"):
            return json.loads(line)
        self._end()
        if monotonic() - started >= self._seconds:
            return {"fault": f"it takes longer than {self._seconds:g} seconds"}
        return {"fault": "Python ends while it is rendered"}

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(
                # -P: the folder of the worker holds modules that are called as some of Python's own.
                [sys.executable, "-P", str(_WORKER), str(self._seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is meant for this process, even while that one imports
            )
        except OSError as error:
            raise ValueError(f"no process could be started to render it ({reason_of(error)})") from error
        self._close = weakref.finalize(self, _close, process, self._owner)
        return process

    def _end(self) -> None:
        self._close()
        self._process = None

    def _reset(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._process = None


@cache
def _renderer() -> Renderer:
    """One for the whole process: it keeps compiled templates for all callers."""
    return Renderer()


def _close(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:  # and not in a fork that ends
        process.kill()
        process.wait()
    for pipe in _pipes(process):
        with suppress(OSError):  # the worker has ended: what was not written yet is of no use
            pipe.close()


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    """The process's standard input and output."""
    return cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)


def _plain(value: object) -> Any:
    """Special tokens as JSON holds them: they are strings, records with a text, or lists of these."""
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else str(value)
