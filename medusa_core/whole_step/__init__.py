"""Whole greedy steps: where each node's verdict is the argmax at its parent and the tree keeps its shape.

Then nothing of a step needs Python: forward, acceptance, commit and the tree of the next step are one graph
of the device (``recorded``) or one call of a function in C (``native``). What the host reads at the end are
the tokens that were chosen, from which it makes the very verdict that the rule would make.
Imports: acceptance, drafters, llama, model, trees.
"""

from __future__ import annotations

from typing import Protocol

import torch

from medusa_core.acceptance import AcceptanceRule
from medusa_core.drafters import Drafter
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.target import Target
from medusa_core.whole_step.judged import Judged as Judged
from medusa_core.whole_step.judged import NotRecordedError as NotRecordedError
from medusa_core.whole_step.native import NativeStep
from medusa_core.whole_step.recorded import RecordedStep


class WholeStep(Protocol):
    """The steps of one run. Follows it where others make a step in between (``follow``)."""

    def follow(self, features: torch.Tensor) -> None:
        """``features`` [1, F·d] are now those of the last accepted token."""

    def fits(self, cache: TreeCache, depth_left: int) -> bool:
        """Whether the whole tree has room: near the end of the context it gets shallower."""

    def __call__(self, cache: TreeCache, root: int) -> Judged:
        """Make the step behind the committed rows of a ``cache`` in which it ``fits``.

        The rows of the path are in their places then, and the cache does not know it yet. Raises
        NotRecordedError.
        """


def whole_step_of(target: Target, drafter: Drafter, rule: AcceptanceRule) -> WholeStep | None:
    """None where a step needs the host, or the forward makes none."""
    if not rule.by_argmax:
        return None
    return RecordedStep.of(target, drafter) or NativeStep.of(target, drafter)
