"""Whole greedy steps: where each node's verdict is the argmax at its parent and the tree keeps its shape.

Then nothing of a step needs Python: forward, acceptance, commit and the tree of the next step are one call
of a function in C (``native``). What the host reads at the end are the tokens that were chosen, from which
it makes the very verdict that the rule would make.
Imports: acceptance, drafters, llama, model, trees.
"""

from __future__ import annotations

from medusa_core.acceptance import AcceptanceRule
from medusa_core.drafters import Drafter
from medusa_core.model.target import Target
from medusa_core.whole_step.judged import Judged as Judged
from medusa_core.whole_step.native import NativeStep


def whole_step_of(target: Target, drafter: Drafter, rule: AcceptanceRule) -> NativeStep | None:
    """None where a step needs the host, or the forward makes none."""
    return NativeStep.of(target, drafter) if rule.by_argmax else None
