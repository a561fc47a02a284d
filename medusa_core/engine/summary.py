"""What a run has made so far, added up once for every reader of the loop's steps.

Two rates, never one word for both: *decode* tokens per second count the time inside steps, *end-to-end*
tokens per second the whole call with the reading of the prompt and whatever the reader did between steps.

Distinct-n says how much a text repeats itself (Li et al., 2016, arXiv 1510.03055; TokenSwift, §3.1).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from medusa_core.decoding import Step
from medusa_core.text.stopping import text_before_stop

PHASES = ("propose", "verify", "accept", "commit")
TIMES = (*PHASES, "total")
MOST_N = 4  # distinct-n is counted for n from 1 to this


class RunSummary:
    """Tokens, steps, times and text of a run; ``add`` each step as it comes."""

    def __init__(self, decode_text: Callable[[Sequence[int]], str], stop: Sequence[str]) -> None:
        """``stop`` are the texts that end the run. The end-to-end clock starts here."""
        self.token_ids: list[int] = []  # new tokens only
        self.steps = 0
        self.phase_ms = dict.fromkeys(TIMES, 0.0)
        self.nodes = 0  # size of the largest tree so far, with the root
        self.rows = 0  # of all trees together
        self.positions = 0  # committed before each step, all steps together
        self.finish_reason: str | None = None  # None while it runs, and when it was broken off
        self.elapsed = 0.0  # seconds from the start to the end of the last step
        self._decode_text = decode_text
        self._stop = stop
        self._start = time.perf_counter()

    def add(self, step: Step) -> None:
        """Count a step."""
        self.token_ids += step.emitted
        self.steps += 1
        self.nodes = max(self.nodes, step.tree.size)
        self.rows += step.tree.size
        self.positions += step.cache_length
        for phase, milliseconds in vars(step.ms).items():
            self.phase_ms[phase] += milliseconds
        self.finish_reason = step.finish_reason
        self.elapsed = time.perf_counter() - self._start

    @property
    def text(self) -> str:
        """The text so far, cut before the end-of-text token or a stop string."""
        tokens = self.token_ids[:-1] if self.finish_reason == "eos" else self.token_ids
        return text_before_stop(self._decode_text(tokens), self._stop)

    @property
    def seconds(self) -> float:
        """Time inside steps; reading the prompt is not counted."""
        return self.phase_ms["total"] / 1000

    @property
    def tokens_per_step(self) -> float:
        """New tokens over steps, 0 before the first; plain decoding has 1.0."""
        return len(self.token_ids) / self.steps if self.steps else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """New tokens over the time inside steps, 0 before the first."""
        return len(self.token_ids) / self.seconds if self.seconds else 0.0

    @property
    def end_to_end_tokens_per_second(self) -> float:
        """New tokens over the time of the whole run, 0 before the first step."""
        return len(self.token_ids) / self.elapsed if self.elapsed else 0.0

    def distinct(self) -> list[float | None]:
        """Distinct-n of the new tokens for n from 1 to 4."""
        shares = (distinct_n([self.token_ids], n) for n in range(1, MOST_N + 1))
        return [share if share is None else round(share, 4) for share in shares]

    def record(self) -> dict[str, Any]:
        """The run so far as the output object of a trace; one that was broken off is "cancelled"."""
        return {
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": self.finish_reason or "cancelled",
            "new_tokens": len(self.token_ids),
            "steps": self.steps,
            "tokens_per_step": round(self.tokens_per_step, 4),
            "tokens_per_second": round(self.decode_tokens_per_second, 2),
            "seconds": round(self.seconds, 4),
        }


def distinct_n(texts: Iterable[Sequence[int]], n: int) -> float | None:
    """Distinct n-grams over all n-grams, each counted within its text; None where no text has any.

    1 where none comes twice in a text.
    """
    different = total = 0
    for text in texts:
        grams = list(zip(*(text[start:] for start in range(n)), strict=False))
        different, total = different + len(set(grams)), total + len(grams)
    return different / total if total else None
