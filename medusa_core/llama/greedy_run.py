"""The greedy steps of one run, each of them one call of C where its tree keeps its shape.

Through Python and torch what stands between the products of a small model takes half as long as they do.

N nodes · d hidden size
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from medusa_core.llama.cache import LlamaCache
from medusa_core.llama.forward import LlamaForward
from medusa_core.llama.greedy import GreedySteps, Guessing, Made
from medusa_core.model.kv_cache import TreeCache
from medusa_core.trees.token_tree import TokenTree

Guess = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


class GreedyRun:
    """Follows a run whose steps may also be made by phases in between (``follow``)."""

    def __init__(self, forward: LlamaForward, shape: TokenTree, guessing: Guessing, guess: Guess) -> None:
        """``guess`` fills such a tree from a root [1] and features [1, d], as ``guessing`` does in C."""
        self._forward, self._shape, self._guessing, self._guess = forward, shape, guessing, guess
        self._depth = max(shape.depths)
        self._features: torch.Tensor | None = None  # [1, d] of the last accepted token
        self._steps: GreedySteps | None = None
        self._ready: tuple[int, int] | None = None  # cache length and root that the prepared tree belongs to

    def follow(self, features: torch.Tensor) -> None:
        """A step was made by phases: ``features`` [1, d] are now those of the last accepted token."""
        # That step may have made the buffers of the cache larger.
        self._features, self._steps, self._ready = features, None, None

    def fits(self, cache: TreeCache, depth_left: int) -> bool:
        """Whether the whole tree has room: near the end of the context it gets shallower."""
        return (
            isinstance(cache, LlamaCache)
            and self._depth <= depth_left
            and self._shape.size <= cache.room
            and not cache.bounded
        )

    def __call__(self, cache: TreeCache, root: int) -> tuple[TokenTree, Made]:
        """Make the step behind the committed rows of a ``cache`` in which it ``fits``.

        The rows of the path are in their places then, and the cache does not know it yet.
        """
        assert isinstance(cache, LlamaCache)
        steps = self._over(cache)
        if self._ready != (cache.length, root):
            assert self._features is not None
            steps.begin(*self._guess(torch.tensor([root]), self._features))
        made, shape = steps.run(), self._shape
        last = made.path[-1]
        self._ready = cache.length + len(made.path), made.choices[last]
        self._features = made.features[last : last + 1]
        tree = TokenTree(made.tokens, shape.parents, shape.depths, shape.origins, shape.mask, made.draft_logp)
        return tree, made

    def _over(self, cache: LlamaCache) -> GreedySteps:
        if self._steps is None or not self._steps.reaches(cache.position):
            self._steps = self._forward.greedy_steps(cache, self._shape, self._guessing)
            self._ready = None
        return self._steps
