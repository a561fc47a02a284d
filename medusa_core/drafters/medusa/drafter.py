"""Medusa's drafter: the heads' best guesses, arranged as a tree.

The heads run on one hidden state a step, that of the last accepted node. Node (r1, …, rk) holds guess
number rk of head k. In the paper (§2.1) all steps have the same such nodes; a dynamic tree has in each step
those that the heads find likeliest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch

from medusa_core.drafters import Drafter
from medusa_core.drafters._dynamic_tree import DynamicTree
from medusa_core.drafters._guess_tree import Guesses, GuessTree
from medusa_core.drafters._head_trees import TreeSettings, dynamic_nodes, is_dynamic
from medusa_core.drafters.medusa import NAME
from medusa_core.drafters.medusa.draft import MOST_ROWS, MedusaDraft
from medusa_core.llama.greedy import Guessing
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.model.target import Target
from medusa_core.trees.origin import Origin
from medusa_core.trees.token_tree import TokenTree
from medusa_core.trees.tree import TOP_K


class MedusaDrafter(Drafter):
    """Fills a tree with the top guesses of each head."""

    features = LAST_HIDDEN

    def __init__(self, target: Target, draft: MedusaDraft, settings: TreeSettings) -> None:
        """Raises MedusaError when the tree asks for more than the heads offer."""
        heads, name = draft.heads, settings.tree
        ranks = min(TOP_K, heads.lm_weight.shape[-2])
        self._tree: GuessTree | DynamicTree
        if is_dynamic(name):
            self.largest_tree = dynamic_nodes(name)
            self._tree = DynamicTree(self.largest_tree - 1, heads.count, ranks, _origin, target.device)
        else:
            tree = draft.tree(name)
            tree.check(heads.count, ranks)
            self.largest_tree, self._tree = tree.size, GuessTree(tree, _origin, target.device)
        self._heads, self._native = heads, draft.native
        self._hidden: torch.Tensor  # hidden state of the last accepted token

    def propose(self, root: int, depth: int) -> TokenTree:
        """The tree filled with the guesses made from the last accepted hidden state."""
        return self.propose_all([self], [root], [depth])[0]

    def propose_all(
        self, drafters: Sequence[Self], roots: Sequence[int], depths: Sequence[int]
    ) -> list[TokenTree]:
        """Trees of several runs with these heads, which are asked once for all of them."""
        # Heads deeper than the trees are not asked: on a CPU reading their weights is most of their cost.
        # At the end of the context there is no room for a guess; one head is asked all the same.
        asked = max(1, *(min(depth, self._tree.depth) for depth in depths))
        hidden = torch.stack([drafter._hidden for drafter in drafters])  # [B, d]
        return self._tree.filled(roots, depths, self._guesses(hidden, asked))

    def _guesses(self, hidden: torch.Tensor, asked: int) -> Guesses:
        if self._native is not None and len(hidden) <= MOST_ROWS:
            return Guesses(*self._native.best(hidden, asked, self._tree.ranks))
        return Guesses.of(self._heads(hidden, asked).float(), self._tree.ranks)

    def observe(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        self._hidden = features[-1]

    @property
    def guessing(self) -> Guessing | None:
        """The heads as C reads them; None for a tree that changes, and where C does not compute them."""
        tree = self._tree
        if self._native is None or not isinstance(tree, GuessTree):
            return None
        return Guessing(tree.shape(), tree.places, self._native, max(1, tree.depth), tree.ranks)


def _origin(depth: int, rank: int) -> Origin:
    return Origin(NAME, depth, rank)
