"""Where the contextual penalty put another token before the one that the model itself finds likeliest.

R recorded rows · V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from medusa_core.decoding import Step


@dataclass(frozen=True)
class Penalised:
    """The model's likeliest token at a place, and how many copies of it stand in the window there."""

    row: int  # index among the recorded rows
    token: int
    copies: int


class PenalisedChoices:
    """Follows the text of a run, whose windows the copies are counted in."""

    def __init__(self, prompt: Sequence[int], window: int) -> None:
        self._text = list(prompt)
        self._window = window

    def of(
        self, step: Step, logits: torch.Tensor, nodes: Sequence[int], index: torch.Tensor
    ) -> list[Penalised]:
        """Penalised choices of a step; ``logits`` [R, V] are the processed ones of ``nodes`` [R]."""
        if step.logits is step.model_logits:
            return []
        own = step.model_logits.index_select(0, index).max(dim=-1).indices
        both = torch.stack([own, logits.max(dim=-1).indices]).tolist()
        tokens, parents = step.tree.tokens.tolist(), step.tree.parents
        found = [
            Penalised(row, mine, self._copies(tokens, parents, nodes[row], mine))
            for row, (mine, chosen) in enumerate(zip(*both, strict=True))
            if mine != chosen
        ]
        self._text += [tokens[node] for node in step.verdict.path]
        return found

    def _copies(self, tokens: Sequence[int], parents: Sequence[int], node: int, token: int) -> int:
        """Copies of ``token`` in the window after ``node``."""
        path: list[int] = []
        while node >= 0:
            path.append(tokens[node])
            node = parents[node]
        path = path[: self._window]
        rest = self._window - len(path)
        return path.count(token) + (self._text[-rest:].count(token) if rest else 0)
