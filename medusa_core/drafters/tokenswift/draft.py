"""TokenSwift's heads as they are loaded for a target, with the tree and the accuracies beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from medusa_core.drafters._head_trees import HeadsDraft, budget_tree, named_tree
from medusa_core.drafters._own_settings import tree_and_accuracies
from medusa_core.drafters.tokenswift.files import read_heads
from medusa_core.drafters.tokenswift.heads import TokenSwiftHeads
from medusa_core.model.features import BEFORE_NORM, Features
from medusa_core.model.target import Target
from medusa_core.trees.search import assumed_accuracies
from medusa_core.trees.tree import TOP_K, Topology, cartesian

UNNORMED = Features((BEFORE_NORM,))  # input of the heads
_WIDTH = 3  # guesses of each head in the paper's tree, one of the model itself before them
_SURE = [1.0] + [0.0] * (TOP_K - 1)  # the model's own guess, over the whole text: what it will say


@dataclass(frozen=True)
class TokenSwiftDraft(HeadsDraft):
    """TokenSwift's heads, which share the model's LM head."""

    kind = "TokenSwift"
    heads: TokenSwiftHeads

    @property
    def depth(self) -> int:
        """Tokens of the longest path: the model's own guess, and one of each head."""
        return self.count + 1

    @torch.inference_mode()
    def guesses(self, target: Target, tokens: Sequence[int], ranks: int, start: int = 0) -> torch.Tensor:
        _, hidden = target.read(tokens, UNNORMED)
        return self.heads(hidden[start:].to(self.heads.linear)).topk(ranks, dim=-1).indices

    def is_untrained(self, target: Target) -> bool:
        return not bool(self.heads.linear.any())

    def tree(self, name: str | Topology) -> Topology:
        """The tree that a setting names (``named_tree``), else the paper's: widths 1, 3, 3, 3 for 3 heads."""
        usual = self.default_tree or cartesian([1] + [_WIDTH] * min(self.count, 3))
        return named_tree(name, self.depth, usual)

    def budget_tree(self, nodes: int) -> Topology:
        """The best tree of ``nodes`` drafted nodes: the model's guess, and the heads' by their accuracies."""
        heads = self.accuracies or assumed_accuracies(self.count)
        return budget_tree(nodes, self.depth, [_SURE[: len(heads[0])], *heads])


def load(folder: Path, target: Target) -> TokenSwiftDraft:
    """Read heads, tree and accuracies. Raises MedusaError when they do not fit the target."""
    heads = read_heads(folder, target.held.lm_head(), target.config)
    return TokenSwiftDraft(
        heads.requires_grad_(False).eval(),
        *tree_and_accuracies(folder, heads.count, target.output_device),
    )
