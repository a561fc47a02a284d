"""Proposes nothing: a tree of one node, which makes the decode loop plain decoding."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.target.model import Target
from medusa_core.trees.token_tree import TokenTree
from medusa_core.trees.tree import Topology


class Drafter:
    """The root alone, every step."""

    largest_tree = 1

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._mask = torch.ones(1, 1, dtype=torch.bool, device=device)
        self._logp = torch.zeros(1, device=device)

    @classmethod
    def build(
        cls, target: Target, heads: MedusaHeads | None, tree: Topology | None, config: GenerationConfig
    ) -> Drafter:
        """Needs the target's device and nothing else."""
        return cls(target.device)

    def begin(self, tokens: Sequence[int], hidden: torch.Tensor) -> None:
        """Plain decoding remembers nothing."""

    def propose(self, root: int, depth: int) -> TokenTree:
        """A tree of the root."""
        return TokenTree(
            tokens=torch.tensor([root], device=self._device),
            parents=[-1],
            depths=[0],
            heads=[0],
            ranks=[0],
            mask=self._mask,
            draft_logp=self._logp,
        )

    def observe(self, tokens: Sequence[int], hidden: torch.Tensor) -> None:
        """Plain decoding remembers nothing."""
