"""Medusa's drafter: the heads' best guesses, arranged as a tree.

The heads run on one hidden state a step, that of the last accepted node. Node (r1, …, rk) holds guess
number rk of head k. In the paper (§2.1) all steps have the same such nodes; a dynamic tree has in each step
those that the heads find likeliest.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from medusa_core.drafters._dynamic_tree import DynamicTree
from medusa_core.drafters._guess_tree import Guesses, GuessTree
from medusa_core.drafters._head_trees import TreeSettings, dynamic_nodes, is_dynamic
from medusa_core.drafters.medusa import NAME
from medusa_core.drafters.medusa.draft import MedusaDraft
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.drafters.medusa.native_heads import MOST_ROWS, NativeHeads
from medusa_core.llama.greedy import Guessing
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.model.target import Target
from medusa_core.trees.origin import Origin
from medusa_core.trees.token_tree import TokenTree
from medusa_core.trees.tree import TOP_K, Topology


def build(target: Target, draft: MedusaDraft, settings: TreeSettings) -> _HeadsDrafter:
    """The drafter by its settings. Raises MedusaError when the tree asks for more than the heads offer."""
    if is_dynamic(settings.tree):
        return DynamicDrafter(draft.heads, dynamic_nodes(settings.tree), target.device, draft.native)
    return MedusaDrafter(draft.heads, draft.tree(settings.tree), target.device, draft.native)


class _HeadsDrafter:
    """Fills a tree with the top guesses of each head."""

    features = LAST_HIDDEN

    def __init__(
        self, heads: MedusaHeads, tree: GuessTree | DynamicTree, nodes: int, native: NativeHeads | None
    ) -> None:
        """``nodes`` of the tree with its root; ``native`` are the same heads."""
        self.largest_tree = nodes
        self._heads, self._native, self._tree = heads, native, tree
        self._hidden: torch.Tensor  # hidden state of the last accepted token

    def begin(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """Remember the hidden state of the prompt's last token; ``features`` is [T, d]."""
        self._hidden = features[-1]

    def propose(self, root: int, depth: int) -> TokenTree:
        """The tree filled with the guesses made from the last accepted hidden state."""
        return self.propose_all([self], [root], [depth])[0]

    def propose_all(
        self, drafters: Sequence[_HeadsDrafter], roots: Sequence[int], depths: Sequence[int]
    ) -> list[TokenTree]:
        """Trees of several runs with these heads, which are asked once for all of them."""
        # Heads deeper than the trees are not asked: on a CPU reading their weights is most of their cost.
        # At the end of the context there is no room for a guess; one head is asked all the same.
        asked = max(1, *(min(depth, self._tree.depth) for depth in depths))
        hidden = torch.stack([drafter._hidden for drafter in drafters])  # [B, d]
        return self._tree.filled(roots, depths, self._guesses(hidden, asked))

    def _guesses(self, hidden: torch.Tensor, asked: int) -> Guesses:
        if self._native is not None and len(hidden) <= MOST_ROWS:
            return self._native.best(hidden, asked, self._tree.ranks)
        return Guesses.of(self._heads(hidden, asked).float(), self._tree.ranks)

    def observe(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """Remember the hidden state of the last accepted node; ``features`` is [1, d]."""
        self._hidden = features[-1]

    def truncate(self, length: int) -> None:
        """Nothing to forget: ``begin`` brings the hidden state to go on from."""


class DynamicDrafter(_HeadsDrafter):
    """Fills in each step a new tree with the combinations that the heads find likeliest."""

    def __init__(
        self, heads: MedusaHeads, nodes: int, device: torch.device, native: NativeHeads | None = None
    ) -> None:
        """``nodes`` with the root at most; ``native`` are the same heads."""
        ranks = min(TOP_K, heads.lm_weight.shape[-2])
        tree = DynamicTree(nodes - 1, heads.count, ranks, _origin, device)
        super().__init__(heads, tree, nodes, native)


class MedusaDrafter(_HeadsDrafter):
    """Fills the same tree in every step, which C can do too."""

    _tree: GuessTree

    def __init__(
        self,
        heads: MedusaHeads,
        tree: Topology,
        device: torch.device,
        native: NativeHeads | None = None,
    ) -> None:
        """``native`` are the same heads. Raises MedusaError when the tree asks for more than they offer."""
        tree.check(heads.count, min(TOP_K, heads.lm_weight.shape[-2]))
        super().__init__(heads, GuessTree(tree, _origin, device), tree.size, native)

    @property
    def shape(self) -> TokenTree:
        """The tree at its full depth; its tokens and their log-probabilities mean nothing."""
        return self._tree.shape()

    def guess(self, root: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and log-probabilities of the tree below ``root``."""
        return self._tree.on_device(root, self._guesses(features, max(1, self._tree.depth)))

    @property
    def guessing(self) -> Guessing | None:
        """The heads as C reads them; None where only ``guess`` can."""
        if self._native is None:
            return None
        tree = self._tree
        return Guessing(tree.places, self._native.in_c, max(1, tree.depth), tree.ranks)


def _origin(depth: int, rank: int) -> Origin:
    return Origin(NAME, depth, rank)
