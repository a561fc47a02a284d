"""The contextual penalty: tokens of the recent text become less likely, so that long texts repeat less.

The logit of each distinct token among the last W tokens is divided by θ where it is positive and multiplied
by θ where it is negative; a token that stands there several times is penalised once. The window is that of
the text a logit continues. For a node of a tree that is the committed text, the prompt included, and the
path from the root to the node itself, so every node gets the logits that plain decoding would have there.
TokenSwift (arXiv 2502.18890), §2.4.

N nodes · V vocabulary · O tokens of the committed text that a path can push out of the window
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from medusa_core.trees.token_tree import TokenTree


def weakened(logits: torch.Tensor, penalty: float) -> torch.Tensor:
    """The logits, each as if its token stood in the window."""
    return torch.where(logits > 0, logits / penalty, logits * penalty)


class ContextualPenalty:
    """The penalty of one run, which follows its text."""

    def __init__(self, penalty: float, window: int) -> None:
        """``window`` is at least 1."""
        self._penalty = penalty
        self._window = window
        # The last W tokens of the text, or all of a shorter one. On the host: to find the distinct ones on
        # a device, the host would wait for it.
        self._last: torch.Tensor

    def begin(self, prompt: Sequence[int]) -> None:
        """The text so far is ``prompt``."""
        self._last = torch.tensor(prompt[-self._window :])

    def observe(self, tokens: Sequence[int]) -> None:
        """The text goes on with ``tokens``."""
        self._last = torch.cat([self._last, torch.tensor(tokens)])[-self._window :]

    def after_text(self, logits: torch.Tensor) -> torch.Tensor:
        """``logits`` [V] after the text so far, penalised."""
        return self._common(logits[None], self._last)[0]

    def after_nodes(self, logits: torch.Tensor, tree: TokenTree) -> torch.Tensor:
        """``logits`` [N, V] after each node of the tree, penalised."""
        device, count = logits.device, len(self._last)
        # The oldest tokens of the text, as many as the longest path pushes out, are not in every window.
        old = max(0, min(count, count + max(tree.depths) + 1 - self._window))
        found = self._common(logits, self._last[old:])
        tokens = tree.tokens.to(device)
        places = torch.tensor([*range(old), *(count + depth for depth in tree.depths)], device=device)
        inside = places > places[old:, None] - self._window  # [N, O + N]
        inside[:, old:] &= tree.mask.to(device)  # a node follows its ancestors alone
        own = torch.where(inside, torch.cat([self._last[:old].to(device), tokens]), tokens[:, None])
        # A token that stands there several times gets the same value each time, by the model's own logit.
        return found.scatter_(1, own, weakened(logits.gather(1, own), self._penalty))

    def _common(self, logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """A copy of ``logits`` [N, V] in which ``tokens`` are penalised in all rows."""
        stands = torch.zeros(logits.shape[-1], dtype=torch.bool).index_fill_(0, tokens, True)
        distinct = stands.nonzero()[:, 0].to(logits.device)
        return logits.index_copy(1, distinct, weakened(logits.index_select(1, distinct), self._penalty))
