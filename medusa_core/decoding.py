"""The decode loop, whole: propose, verify, accept, commit, observe, emit.

A generator of ``Step`` records. The app, the command line, the benchmark and the tests read this one
stream; plain decoding is the same loop with a drafter that proposes nothing. Each step feeds the root and
its drafts and emits the accepted path, root included; the bonus token is the next root. Paper §2.1.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from medusa_core.acceptance import AcceptanceRule
from medusa_core.acceptance.verdict import Verdict
from medusa_core.drafters import Drafter
from medusa_core.errors import MedusaError
from medusa_core.target.kv_cache import TreeCache
from medusa_core.target.model import Target
from medusa_core.trees.token_tree import TokenTree


@dataclass(frozen=True)
class PhaseTimes:
    """Milliseconds of one step by phase; ``total`` is their sum and what happened between them."""

    propose: float
    verify: float
    accept: float
    commit: float
    total: float


@dataclass(frozen=True)
class Step:
    """One decoding step. ``tree`` and ``logits`` [N, V] are valid until the next step."""

    index: int
    tree: TokenTree
    verdict: Verdict
    logits: torch.Tensor
    emitted: list[int]
    cache_length: int  # committed rows before the step
    ms: PhaseTimes
    finish_reason: str | None


class StopCheck(Protocol):
    """Where a run ends."""

    def cut(self, tokens: Sequence[int]) -> tuple[list[int], str | None]:
        """The tokens of a step that may be emitted, and the finish reason if they are the last."""
        ...


def decode(
    target: Target,
    drafter: Drafter,
    rule: AcceptanceRule,
    prompt: Sequence[int],
    stopper: StopCheck,
    budget: int,
    cache: TreeCache | None = None,
) -> Generator[Step, None, None]:
    """Decode after ``prompt`` (token ids) until the stopper or the context ends the run.

    A ``cache`` of an earlier run is continued, by the same drafter or a fresh one: its rows must be those of
    the prompt's first tokens, only the rest is read, and afterwards it holds what was committed. Without one
    the run has a cache of its own.
    The last step carries the finish reason: "eos", "stop", "length" or "context". Raises MedusaError when
    the prompt is empty or leaves no room in the context.
    """
    check_prompt(prompt, target)
    slots = min(len(prompt) + budget, target.context) + drafter.largest_tree
    with torch.inference_mode():
        if cache is None:
            cache = target.new_cache(slots)
        else:
            # The last token is read anew, for the logits and the hidden state that the run starts from.
            known = len(prompt) - 1
            if drafter.features.all_rows:
                known = min(known, drafter.length)  # it needs the features of what it has not read
            cache.truncate(known)
            cache.reserve(slots)
        drafter.truncate(cache.length)
        logits, features = target.prefill(prompt[cache.length :], cache, drafter.features)
        _check_output(logits, target)
        drafter.begin(prompt, features)
        root = int(rule.choose(logits[None])[0])
    index, finish = 0, None
    while finish is None:
        clock = _Clock(target.output_device)
        length = cache.length
        # Entered anew each step: a suspended generator must not leave its caller in inference mode.
        with torch.inference_mode():
            # A node's position is length + depth, so near the end of the context the tree gets shallower.
            tree = drafter.propose(root, target.context - 1 - length)
            clock.lap()
            logits, features = target.verify(tree, cache, drafter.features)
            clock.lap()
            verdict = rule(tree, logits)
            clock.lap()
            cache.commit(verdict.path)
            accepted = tree.tokens[verdict.path].tolist()
            drafter.observe(accepted, features[verdict.path])
            clock.lap()
        emitted, finish = stopper.cut(accepted)
        if finish is None and cache.length >= target.context:
            finish = "context"
        yield Step(index, tree, verdict, logits, emitted, length, clock.times(), finish)
        root = verdict.bonus
        index += 1


def check_prompt(prompt: Sequence[int], target: Target) -> None:
    """Raise MedusaError for a prompt that is empty, too long for the context or of another vocabulary."""
    if not prompt:
        raise MedusaError("the prompt is empty: give at least one token")
    if len(prompt) >= target.context:
        raise MedusaError(f"the prompt has {len(prompt)} tokens, {target.context_words}: shorten the prompt")
    if min(prompt) < 0 or max(prompt) >= target.vocab_size:
        raise MedusaError(
            f"prompt ids run from {min(prompt)} to {max(prompt)}, the vocabulary from 0 to "
            f"{target.vocab_size - 1}: use ids of this model's tokenizer"
        )


def _check_output(logits: torch.Tensor, target: Target) -> None:
    """Raise MedusaError when a model has read the prompt and says nothing: later steps would say it too."""
    largest = logits.amax()  # a NaN is carried along; -inf masks a token
    if not bool(torch.isfinite(largest)):
        kind = str(target.dtype).removeprefix("torch.")
        wider = "" if target.dtype == torch.float32 else f" or too large for {kind}, so use --dtype float32"
        raise MedusaError(
            f"the model's output is {float(largest)}, its weights are damaged{wider}: fetch them again"
        )


class _Clock:
    """Laps in milliseconds; waits for the device at each, so that a phase pays for its own kernels."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start = self._last = time.perf_counter()
        self._laps: list[float] = []

    def lap(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        self._laps.append((now - self._last) * 1000)
        self._last = now

    def times(self) -> PhaseTimes:
        propose, verify, accept, commit = self._laps
        return PhaseTimes(propose, verify, accept, commit, (time.perf_counter() - self._start) * 1000)
