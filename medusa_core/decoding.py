"""The whole decode loop: propose, verify, accept, commit, observe, emit.

A generator of ``Step`` records. The app, the command line, the benchmark and the tests read this one
stream; plain decoding is the same loop with a drafter that proposes nothing. Each step feeds the root and
its drafts and emits the accepted path, root included; the bonus token is the next root. Paper §2.1.

Several texts go through the same loop as a batch: each is a ``Run`` with its own drafter, rule, cache and
stop, and only the forward is shared, which reads the weights once for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import torch

from medusa_core.acceptance import AcceptanceRule
from medusa_core.acceptance.logits.processor import LogitsProcessor
from medusa_core.acceptance.match import matched
from medusa_core.acceptance.sampling import not_a_number, require_drawn
from medusa_core.acceptance.verdict import Verdict
from medusa_core.drafters import Drafter
from medusa_core.errors import MedusaError
from medusa_core.llama.forward import LlamaForward
from medusa_core.llama.greedy import GreedySteps
from medusa_core.model.clock import Clock, PhaseTimes, clock_for
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.target import Target
from medusa_core.trees.token_tree import TokenTree


@dataclass(frozen=True)
class Step:
    """One decoding step. ``tree`` and both kinds of logits [N, V] are valid until the next step.

    ``logits`` are those the rule judged by, ``model_logits`` the model's own: the same tensor unless the run
    changes logits, as by a penalty or top-k.
    """

    index: int
    tree: TokenTree
    verdict: Verdict
    logits: torch.Tensor
    emitted: list[int]
    cache_length: int  # committed rows before the step
    ms: PhaseTimes
    finish_reason: str | None
    model_logits: torch.Tensor


@dataclass(frozen=True)
class Judged:
    """A tree, what the model says of it, and the rule's verdict."""

    tree: TokenTree
    logits: torch.Tensor  # [N, V], that the rule judged by
    model_logits: torch.Tensor  # [N, V]
    features: torch.Tensor  # [N, F·d]
    verdict: Verdict


class StopCheck(Protocol):
    """Where a run ends."""

    def cut(self, tokens: Sequence[int]) -> tuple[list[int], str | None]:
        """The tokens of a step that may be emitted, and the finish reason if they are the last."""
        ...


@dataclass(eq=False)
class Run:
    """One text that is being decoded: its own parts, and how far it is.

    A ``cache`` of an earlier run is continued, by the same drafter or a fresh one: its rows must be those of
    the prompt's first tokens, only the rest is read, and afterwards it holds what was committed. Without one
    the run has a cache of its own. Raises MedusaError when the prompt is empty or leaves no room in the
    context.
    """

    target: Target
    drafter: Drafter
    rule: AcceptanceRule
    prompt: Sequence[int]
    stopper: StopCheck
    budget: int
    cache: TreeCache | None = None
    processor: LogitsProcessor | None = None  # changes the logits before the rule sees them
    fused: GreedySteps | None = field(default=None, init=False)  # where a step is one call of C
    steps: int = field(default=0, init=False)
    finish_reason: str | None = field(default=None, init=False)
    root: int = field(default=-1, init=False)  # the token that the next step begins with

    def __post_init__(self) -> None:
        check_prompt(self.prompt, self.target)
        if self.processor is None:
            self.fused = greedy_steps(self.target, self.drafter, self.rule)

    @property
    def own_cache(self) -> TreeCache:
        """The cache, once ``open_cache`` has made it."""
        assert self.cache is not None
        return self.cache

    def open_cache(self) -> Sequence[int]:
        """Make room in the cache; return the part of the prompt that is to be read into it."""
        slots = rows_of_run(self.target, self.drafter, len(self.prompt), self.budget)
        if self.cache is None:
            self.cache = self.target.new_cache(slots)
        else:
            # The last token is read anew, for the logits and the hidden state that the run starts from.
            known = len(self.prompt) - 1
            if self.drafter.features.all_rows:
                known = min(known, self.drafter.length)  # it needs the features of all further tokens
            self.cache.truncate(known)
            self.cache.reserve(slots)
        self.drafter.read_cache(self.cache)
        self.drafter.truncate(self.cache.length)
        self.drafter.reserve(slots)
        return self.prompt[self.cache.length :]

    def begin(self, logits: torch.Tensor, features: torch.Tensor) -> None:
        """Choose the first root by the logits [V] of the prompt's last token."""
        _check_output(logits, self.target)
        self.drafter.begin(self.prompt, features)
        if self.processor is not None:
            logits = self.processor.begin(self.prompt, logits)
        self.root = int(self.rule.choose(logits[None])[0])
        require_drawn([self.root], logits.shape[-1])

    @property
    def depth_left(self) -> int:
        """How deep a node may stand: near the end of the context the tree gets shallower."""
        # A node's position is length + depth.
        return self.target.context - 1 - self.own_cache.length

    def processed(self, tree: TokenTree, logits: torch.Tensor) -> torch.Tensor:
        """The logits [N, V] that the rule is to judge by."""
        return logits if self.processor is None else self.processor(logits, tree)

    def commit(self, judged: Judged, *, in_place: bool) -> None:
        """Keep the accepted path. ``in_place``: its rows of the cache are where they belong already."""
        verdict, features, path = judged.verdict, judged.features, judged.verdict.path
        self.own_cache.commit(range(len(path)) if in_place else path)
        every, last = self.drafter.features.all_rows, features[path[-1] :][:1]
        self.drafter.observe(verdict.accepted, features[path] if every else last)
        if self.fused is not None and not in_place:
            self.fused.restart()
        if self.processor is not None:
            self.processor.observe(verdict.accepted)
        self.root = verdict.bonus

    def emit(self, accepted: list[int]) -> list[int]:
        """End the step; return its tokens that belong to the text, which may end with them."""
        emitted, self.finish_reason = self.stopper.cut(accepted)
        if self.finish_reason is None and self.own_cache.length >= self.target.context:
            self.finish_reason = "context"
        self.steps += 1
        return emitted


def decode(run: Run) -> Generator[Step, None, None]:
    """Decode until the stopper or the context ends the run.

    The last step carries the finish reason: "eos", "stop", "length" or "context". Raises MedusaError.
    """
    for _, step in decode_batch(run.target, [run], 1):
        yield step


def decode_batch(target: Target, runs: Iterable[Run], size: int) -> Generator[tuple[Run, Step], None, None]:
    """Decode ``runs`` of one ``target``, at most ``size`` at once; where one ends the next begins.

    Their drafters must ask for the same ``features``: those of the first run are computed for all. Yields the
    step of each in turn. Raises MedusaError.
    """
    waiting = iter(runs)
    running: list[Run] = []
    while True:
        if begun := list(islice(waiting, size - len(running))):
            with torch.inference_mode():
                _begin(target, begun)
            running += begun
        if not running:
            return
        lengths = [run.own_cache.length for run in running]
        clock = clock_for(target.output_device)
        # Entered anew each step: a suspended generator must not leave its caller in inference mode.
        with torch.inference_mode():
            fused = _fused_step(running[0], clock) if len(running) == 1 else None
            judged = _by_phases(target, running, clock) if fused is None else [fused]
            for run, one in zip(running, judged, strict=True):
                run.commit(one, in_place=fused is not None)
            clock.lap()
        emitted = [run.emit(one.verdict.accepted) for run, one in zip(running, judged, strict=True)]
        ms = clock.times()
        for run, one, tokens, length in zip(running, judged, emitted, lengths, strict=True):
            step = Step(
                index=run.steps - 1, tree=one.tree, verdict=one.verdict, logits=one.logits,
                model_logits=one.model_logits, emitted=tokens, cache_length=length, ms=ms,
                finish_reason=run.finish_reason,
            )  # fmt: skip
            yield run, step
        for run in running:
            if run.finish_reason is not None:
                # The next run may take its memory; the loops here and in the caller still hold this run.
                run.cache = run.fused = None
                del run.drafter  # it may hold that cache, and often has one of its own
        running = [run for run in running if run.finish_reason is None]


def _by_phases(target: Target, running: Sequence[Run], clock: Clock) -> list[Judged]:
    """One step of each run."""
    drafters = [run.drafter for run in running]
    trees = drafters[0].propose_all(
        drafters, [run.root for run in running], [run.depth_left for run in running]
    )
    clock.lap()
    results = target.verify_all(trees, [run.own_cache for run in running], running[0].drafter.features)
    clock.lap()
    judged = []
    for run, tree, (own, features) in zip(running, trees, results, strict=True):
        logits = run.processed(tree, own)
        judged.append(Judged(tree, logits, own, features, run.rule(tree, logits)))
    clock.lap()
    return judged


def _fused_step(run: Run, clock: Clock) -> Judged | None:
    """One step of a run in one call of C; None where that cannot be."""
    if run.fused is None or not run.fused.fits(run.own_cache, run.depth_left):
        return None
    made = run.fused.run(run.own_cache, run.root)
    verdict = matched(made.tree, made.tokens, made.choices, made.path)
    if not math.isfinite(made.logits[verdict.path[-1], verdict.bonus]):
        raise not_a_number()  # in a step by phases the rule checks
    clock.lap_fused(made.propose_ms, made.verify_ms)
    return Judged(made.tree, made.logits, made.logits, made.features, verdict)


def greedy_steps(target: Target, drafter: Drafter, rule: AcceptanceRule) -> GreedySteps | None:
    """Steps of one call of C each; None where rule, drafter or forward need Python between the phases."""
    if not rule.by_argmax or not isinstance(forward := target.forward, LlamaForward):
        return None
    guessing = drafter.guessing
    return None if guessing is None else GreedySteps(forward, guessing, drafter.propose)


def rows_of_run(target: Target, drafter: Drafter, prompt: int, budget: int) -> int:
    """Rows of the cache that a run after ``prompt`` tokens needs until its end, with its largest tree."""
    return min(prompt + budget, target.context) + drafter.largest_tree


def read_prompt(run: Run) -> None:
    """Read the prompt into the run's cache and drafter, as its first step would. Raises MedusaError."""
    with torch.inference_mode():
        _begin(run.target, [run])


def _begin(target: Target, runs: Sequence[Run]) -> None:
    """Read the prompts, in one forward where they are short."""
    texts = [run.open_cache() for run in runs]
    read = target.prefill_all(texts, [run.own_cache for run in runs], runs[0].drafter.features)
    for run, (logits, features) in zip(runs, read, strict=True):
        run.begin(logits, features)


def check_prompt(prompt: Sequence[int], target: Target) -> None:
    """Raise MedusaError for a prompt that is empty, too long for the context or of another vocabulary."""
    if not prompt:
        raise MedusaError("the prompt is empty: give at least one token")
    if len(prompt) >= target.context:
        fix = f" or have the model loaded with {target.context_fix}" if target.context_fix else ""
        raise MedusaError(
            f"the prompt has {len(prompt)} tokens, {target.context_words}: shorten the prompt{fix}"
        )
    if min(prompt) < 0 or max(prompt) >= target.vocab_size:
        raise MedusaError(
            f"prompt ids run from {min(prompt)} to {max(prompt)}, the vocabulary from 0 to "
            f"{target.vocab_size - 1}: use ids of this model's tokenizer"
        )


def _check_output(logits: torch.Tensor, target: Target) -> None:
    """Raise MedusaError when the largest logit after the prompt is not finite."""
    largest = logits.amax()  # a NaN is carried along; -inf masks a token
    if not bool(torch.isfinite(largest)):
        kind = str(target.dtype).removeprefix("torch.")
        wider = "" if target.dtype == torch.float32 else f" or too large for {kind}, so use --dtype float32"
        raise MedusaError(
            f"the model's output is {float(largest)}, its weights are damaged{wider}: fetch them again"
        )
