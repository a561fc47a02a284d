"""Acceptance under transformers' logits processors: each node is judged by its own prefix's processed logits.

``ProcessedMatch`` walks down from the root and draws at one node after the other, as plain decoding would:
the processors see the same prefixes in the same order and the random numbers are used in the same order, so
a seed gives the text of plain sampling and processors that remember are right too. Nothing off the path is
processed. ``ProcessedTypical`` must judge all nodes (paper §2.3.1) and takes no processor with a memory.

N nodes · V vocabulary · L tokens so far
"""

from __future__ import annotations

from typing import cast

import torch
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation import logits_process

from medusa_core.acceptance.logits.penalty import weakened
from medusa_core.acceptance.match import matched
from medusa_core.acceptance.sampling import largest
from medusa_core.acceptance.typical import Settings, TypicalRule
from medusa_core.acceptance.verdict import Verdict
from medusa_core.config import check_settings
from medusa_core.errors import MedusaError
from medusa_core.trees.token_tree import TokenTree

_NOT_ASKED = -1  # no token, for nodes off the path
# Processors of transformers whose scores depend on the calls before.
_REMEMBERING = ("UnbatchedClassifierFreeGuidanceLogitsProcessor", "SynthIDTextWatermarkLogitsProcessor")


class PenaltyProcessor(LogitsProcessor):
    """The contextual penalty as one of transformers' logits processors; ``window`` is at least 1."""

    def __init__(self, penalty: float, window: int) -> None:
        self._penalty = penalty
        self._window = window

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Scores [B, V] after each text of ``input_ids`` [B, L]."""
        last = input_ids[:, -self._window :].to(scores.device)
        # A token that stands there twice gets the same number twice.
        found = scores.scatter(1, last, weakened(scores.gather(1, last), self._penalty))
        return cast("torch.FloatTensor", found)


class ProcessedMatch:
    """Greedy acceptance and exact sampling of the processed distribution."""

    by_argmax = False  # processors need each node's context

    def __init__(self, processors: LogitsProcessorList, prompt: torch.Tensor, *, sample: bool) -> None:
        """``prompt`` [1, L] stands where transformers keeps ids; ``sample`` draws, else the argmax counts."""
        self._processors = processors
        self._ids = prompt
        self._sample = sample

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """The token after the prompt, [1], from its ``logits`` [1, V]."""
        return torch.tensor([self._next(self._ids, logits[0])])

    def __call__(self, tree: TokenTree, logits: torch.Tensor) -> Verdict:
        """Follow the tokens chosen one after the other as far as the tree has them; ``logits`` [N, V]."""
        tokens, choices = tree.tokens.tolist(), [_NOT_ASKED] * tree.size
        nodes = [0]  # of one depth; several where a drafter guessed the same token twice
        while nodes:
            self._ids = torch.cat([self._ids, self._ids.new_tensor([[tokens[nodes[0]]]])], dim=1)
            chosen = self._next(self._ids, logits[nodes[0]])
            for node in nodes:
                choices[node] = chosen
            nodes = [n for n in range(tree.size) if tree.parents[n] in nodes and tokens[n] == chosen]
        return matched(tree, tokens, choices)

    def _next(self, ids: torch.Tensor, logits: torch.Tensor) -> int:
        """transformers' own choice after ``ids`` [1, L] with ``logits`` [V]."""
        scores = _processed(self._processors, ids, logits)
        if not self._sample:
            return int(largest(scores))
        return int(torch.multinomial(scores.softmax(dim=-1), num_samples=1))


class ProcessedTypical:
    """Typical acceptance by the processed distribution of every node."""

    by_argmax = False  # processors need each node's context

    def __init__(
        self, processors: LogitsProcessorList, prompt: torch.Tensor, epsilon: float, delta: float
    ) -> None:
        """Raises MedusaError for processors that remember, and for ε or δ out of range."""
        for processor in processors:
            kind = type(processor)
            if kind is PenaltyProcessor:
                continue
            if kind.__module__ != logits_process.__name__ or kind.__name__ in _REMEMBERING:
                raise MedusaError(
                    f"typical acceptance asks {kind.__name__} about every node of a tree, and it may "
                    'remember its calls: use medusa_acceptance="match"'
                )
        settings = Settings(epsilon, delta)
        check_settings(settings)
        # The temperature is one of the processors.
        self._rule = TypicalRule(1.0, settings, torch.default_generator)
        self._processors = processors
        self._ids = prompt

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """The token after the prompt, [1], from its ``logits`` [1, V]."""
        return self._rule.choose(_processed(self._processors, self._ids, logits[0]))

    def __call__(self, tree: TokenTree, logits: torch.Tensor) -> Verdict:
        """Judge every node; ``logits`` [N, V]."""
        prefixes: list[torch.Tensor] = []
        for token, parent in zip(tree.tokens.tolist(), tree.parents, strict=True):
            before = prefixes[parent] if parent >= 0 else self._ids
            prefixes.append(torch.cat([before, before.new_tensor([[token]])], dim=1))
        rows = [_processed(self._processors, ids, row) for ids, row in zip(prefixes, logits, strict=True)]
        verdict = self._rule(tree, torch.cat(rows))
        self._ids = prefixes[verdict.path[-1]]
        return verdict


def _processed(processors: LogitsProcessorList, ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Scores [1, V] after ``ids`` [1, L], made from a copy as transformers makes them."""
    scores = logits[None].to(copy=True, dtype=torch.float32, device=ids.device)
    return processors(cast("torch.LongTensor", ids), cast("torch.FloatTensor", scores))
