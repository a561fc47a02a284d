"""A whole greedy step in C, on a CPU: one call for the host.

Through Python and torch what stands between the products of a small model takes half as long as they do.

N nodes · d hidden size
"""

from __future__ import annotations

import torch

from medusa_core.acceptance.match import matched
from medusa_core.drafters import Drafter, NativeDrafter
from medusa_core.llama.cache import LlamaCache
from medusa_core.llama.forward import LlamaForward
from medusa_core.llama.greedy import GreedySteps, Guessing
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.target import Target
from medusa_core.trees.token_tree import TokenTree
from medusa_core.whole_step.judged import Judged


class NativeStep:
    """The steps of one run. Follows it where others make a step in between (``follow``)."""

    def __init__(self, forward: LlamaForward, drafter: NativeDrafter, guessing: Guessing) -> None:
        self._forward, self._drafter, self._guessing = forward, drafter, guessing
        self._shape = drafter.shape
        self._depth = max(self._shape.depths)
        self._features: torch.Tensor | None = (
            None  # [1, d] of the last accepted token, if others made its step
        )
        self._steps: GreedySteps | None = None
        self._known: tuple[int, int] | None = None  # behind how many rows and which root a tree is ready

    @classmethod
    def of(cls, target: Target, drafter: Drafter) -> NativeStep | None:
        """None where the forward is none in C, or the drafter guesses in another way."""
        forward = target.native
        if not isinstance(forward, LlamaForward) or not isinstance(drafter, NativeDrafter):
            return None
        guessing = drafter.guessing
        return cls(forward, drafter, guessing) if guessing else None

    def follow(self, features: torch.Tensor) -> None:
        """``features`` [1, d] are now those of the last accepted token."""
        # Others may have made the buffers of the cache larger in their step.
        self._features, self._steps, self._known = features, None, None

    def fits(self, cache: TreeCache, depth_left: int) -> bool:
        """Whether the whole tree has room: near the end of the context it gets shallower."""
        return (
            isinstance(cache, LlamaCache)
            and self._depth <= depth_left
            and self._shape.size <= cache.room
            and not cache.bounded
        )

    def __call__(self, cache: TreeCache, root: int) -> Judged:
        """Make the step behind the committed rows of a ``cache`` in which it ``fits``.

        The rows of the path are in their places then, and the cache does not know it yet.
        """
        assert isinstance(cache, LlamaCache)
        steps = self._over(cache)
        if self._known != (cache.length, root):
            assert self._features is not None
            steps.begin(*self._drafter.guess(torch.tensor([root]), self._features))
        made = steps.run()
        shape = self._shape
        tree = TokenTree(made.tokens, shape.parents, shape.depths, shape.origins, shape.mask, made.draft_logp)
        verdict = matched(tree, made.on_host, made.choices, made.path)
        last = verdict.path[-1]
        self._known = cache.length + len(verdict.path), verdict.bonus
        self._features = made.features[last : last + 1]
        phases = made.propose_ms, made.verify_ms
        return Judged(tree, made.logits, made.logits, made.features, verdict, phases)

    def _over(self, cache: LlamaCache) -> GreedySteps:
        if self._steps is None or not self._steps.reaches(cache.position):
            self._steps = self._forward.greedy_steps(cache, self._shape, self._guessing)
            self._known = None
        return self._steps
