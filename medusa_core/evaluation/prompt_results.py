"""The prompts of a file decoded several at once: a result for each line, whatever becomes of the others."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from medusa_core.config import GenerationConfig
from medusa_core.engine import Engine
from medusa_core.engine.summary import RunSummary
from medusa_core.errors import MedusaError
from medusa_core.evaluation.prompts import prompt_ids, prompt_text


@dataclass(frozen=True)
class Result:
    """What came of one prompt: its output, or why there is none."""

    prompt: str
    output: Mapping[str, Any] | None = None
    error: str = ""

    def line(self) -> str:
        """A line of JSON with the prompt and its output or error."""
        found = {"output": self.output} if self.output is not None else {"error": self.error}
        line = json.dumps({"prompt": self.prompt, **found}, ensure_ascii=False)
        # JSON may hold half of a surrogate pair, which no encoding writes; as an escape it stays what it was.
        return line.encode("utf-8", "backslashreplace").decode()

    def words(self) -> str:
        """The text or the error, for a person to read."""
        return str(self.output["text"]) if self.output is not None else f"error: {self.error}"


def decode_lines(
    engine: Engine, lines: list[str], config: GenerationConfig, size: int
) -> Iterator[tuple[int, Result]]:
    """The result of each line with its number from 0, as they are found; a failure ends its own line only."""
    waiting: deque[tuple[int, list[int]]] = deque()
    for number, line in enumerate(lines):
        try:
            waiting.append((number, prompt_ids(line, engine)))
        except MedusaError as error:
            yield number, Result(prompt_text(line), error=str(error))
    while waiting:
        yield from _until_failure(engine, lines, waiting, config, size)


def _until_failure(
    engine: Engine,
    lines: list[str],
    waiting: deque[tuple[int, list[int]]],
    config: GenerationConfig,
    size: int,
) -> Iterator[tuple[int, Result]]:
    """Decode what waits; where that fails, those that ran then have failed and the others still wait."""
    begun: list[int] = []
    running: dict[int, RunSummary] = {}

    def prompts() -> Iterator[list[int]]:
        while waiting:
            number, ids = waiting.popleft()
            begun.append(number)
            running[number] = engine.summary(config)
            yield ids

    try:
        for place, step in engine.stream_batch(prompts(), config, size):
            number = begun[place]
            running[number].add(step)
            if step.finish_reason is not None:
                summary = running.pop(number)
                output = summary.record() | {"distinct": summary.distinct()}
                yield number, Result(prompt_text(lines[number]), output)
    except MedusaError as error:
        for number in running:
            yield number, Result(prompt_text(lines[number]), error=str(error))


def in_order(results: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """The results by their numbers from 0, each as soon as those before it are known."""
    early: dict[int, Result] = {}
    wanted = 0
    for number, result in results:
        early[number] = result
        while wanted in early:
            yield early.pop(wanted)
            wanted += 1
