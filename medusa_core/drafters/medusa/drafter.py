"""Medusa's drafter: the heads' best guesses, arranged as a tree of fixed shape.

The heads run on one hidden state a step, that of the last accepted node. Node (r1, …, rk) holds guess
number rk of head k. Paper §2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.errors import MedusaError
from medusa_core.target.model import Target
from medusa_core.trees.token_tree import TokenTree, ancestor_mask
from medusa_core.trees.tree import TOP_K, Topology


@dataclass(frozen=True)
class _Shape:
    """A topology with its mask and its look-up into the heads' guesses, on the device."""

    topology: Topology
    mask: torch.Tensor  # bool [N, N]
    head: torch.Tensor  # [N - 1], 0-based head of each drafted node
    rank: torch.Tensor  # [N - 1]


class Drafter:
    """Fills a fixed tree with the top guesses of each head."""

    def __init__(self, heads: MedusaHeads, tree: Topology, device: torch.device) -> None:
        tree.check(heads.count, min(TOP_K, heads.lm_weight.shape[-2]))
        self.largest_tree = tree.size
        self._heads = heads
        self._device = device
        self._tree = tree
        self._top = max(tree.ranks) + 1
        self._shapes: dict[int, _Shape] = {}
        self._hidden: torch.Tensor | None = None

    @classmethod
    def build(
        cls, target: Target, heads: MedusaHeads | None, tree: Topology | None, config: GenerationConfig
    ) -> Drafter:
        """Raises MedusaError when there are no heads or the tree asks for more than they offer."""
        if heads is None:
            raise MedusaError("method medusa needs heads: name them with --heads, or use --method none")
        if tree is None:
            raise MedusaError("method medusa needs a tree: name one with --tree")
        return cls(heads, tree, target.device)

    def begin(self, tokens: Sequence[int], hidden: torch.Tensor) -> None:
        """Remember the hidden state [d] of the prompt's last token."""
        self._hidden = hidden

    def propose(self, root: int, depth: int) -> TokenTree:
        """The tree filled with the guesses made from the last accepted hidden state."""
        shape = self._shape(min(depth, max(self._tree.depths)))
        topology = shape.topology
        # Heads deeper than the tree are not asked: on a CPU reading their weights is most of their cost.
        logits = self._heads(self._hidden[None], max(topology.depths))[:, 0].float()  # [depth, V]
        values, guesses = logits.topk(self._top, dim=-1)
        logp = values - logits.logsumexp(dim=-1, keepdim=True)
        root_token = torch.tensor([root], device=guesses.device)
        return TokenTree(
            tokens=torch.cat([root_token, guesses[shape.head, shape.rank]]).to(self._device),
            parents=topology.parents,
            depths=topology.depths,
            heads=topology.depths,  # depth k is head k's guess
            ranks=topology.ranks,
            mask=shape.mask,
            draft_logp=torch.cat([logp.new_zeros(1), logp[shape.head, shape.rank]]),
        )

    def observe(self, tokens: Sequence[int], hidden: torch.Tensor) -> None:
        """Remember the hidden state of the last accepted node; ``hidden`` is [A, d]."""
        self._hidden = hidden[-1]

    def _shape(self, depth: int) -> _Shape:
        if depth not in self._shapes:
            topology = self._tree.limited(depth)
            device = self._heads.block_weight.device
            self._shapes[depth] = _Shape(
                topology,
                ancestor_mask(topology.parents).to(self._device),
                torch.tensor(topology.depths[1:], dtype=torch.long, device=device) - 1,
                torch.tensor(topology.ranks[1:], dtype=torch.long, device=device),
            )
        return self._shapes[depth]
