"""Medusa's drafter: the heads' best guesses, arranged as a tree of fixed shape.

The heads run on one hidden state a step, that of the last accepted node. Node (r1, …, rk) holds guess
number rk of head k. Paper §2.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from medusa_core.drafters._guess_tree import Guesses, GuessTree
from medusa_core.drafters._head_trees import TreeSettings
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


class MedusaDrafter:
    """Fills a fixed tree with the top guesses of each head."""

    features = LAST_HIDDEN
    cache_bytes = 0
    length = 0  # it keeps nothing of the text but the last hidden state

    def __init__(
        self,
        heads: MedusaHeads,
        tree: Topology,
        device: torch.device,
        native: NativeHeads | None = None,
    ) -> None:
        """``native`` are the same heads. Raises MedusaError when the tree asks for more than they offer."""
        tree.check(heads.count, min(TOP_K, heads.lm_weight.shape[-2]))
        self.largest_tree = tree.size
        self._heads, self._native = heads, native
        self._guessed = GuessTree(tree, lambda depth, rank: Origin(NAME, depth, rank), device)
        self._hidden: torch.Tensor  # hidden state of the last accepted token

    @classmethod
    def build(cls, target: Target, draft: MedusaDraft, settings: TreeSettings) -> MedusaDrafter:
        """Raises MedusaError when the tree asks for more than the heads offer."""
        return cls(draft.heads, draft.tree(settings.tree), target.device, draft.native)

    def begin(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """Remember the hidden state of the prompt's last token; ``features`` is [T, d]."""
        self._hidden = features[-1]

    def propose(self, root: int, depth: int) -> TokenTree:
        """The tree filled with the guesses made from the last accepted hidden state."""
        return self.propose_all([self], [root], [depth])[0]

    def propose_all(
        self, drafters: Sequence[MedusaDrafter], roots: Sequence[int], depths: Sequence[int]
    ) -> list[TokenTree]:
        """Trees of several runs with these heads, which are asked once for all of them."""
        # Heads deeper than the trees are not asked: on a CPU reading their weights is most of their cost.
        # At the end of the context there is no room for a guess, and one is asked for nothing.
        asked = max(1, *(min(depth, self._guessed.depth) for depth in depths))
        hidden = torch.stack([drafter._hidden for drafter in drafters])  # [B, d]
        return self._guessed.filled(roots, depths, self._guesses(hidden, asked))

    @property
    def shape(self) -> TokenTree:
        """The tree at its full depth; its tokens and their log-probabilities mean nothing."""
        return self._guessed.shape()

    def guess(self, root: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and log-probabilities of the tree below ``root``."""
        guesses = self._guesses(features, max(1, self._guessed.depth))
        return self._guessed.on_device(root, guesses)

    @property
    def guessing(self) -> Guessing | None:
        """The heads as C reads them; None where only ``guess`` can."""
        if self._native is None:
            return None
        tree = self._guessed
        return Guessing(tree.places, self._native.in_c, max(1, tree.depth), tree.ranks)

    def _guesses(self, hidden: torch.Tensor, asked: int) -> Guesses:
        if self._native is not None and len(hidden) <= MOST_ROWS:
            return self._native.best(hidden, asked, self._guessed.ranks)
        return Guesses.of(self._heads(hidden, asked).float(), self._guessed.ranks)

    def observe(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """Remember the hidden state of the last accepted node; ``features`` is [1, d]."""
        self._hidden = features[-1]

    def truncate(self, length: int) -> None:
        """Nothing to forget: ``begin`` brings the hidden state to go on from."""
