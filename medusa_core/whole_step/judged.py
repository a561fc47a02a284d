"""What a step is between the verdict and the commit.

N nodes · V vocabulary · F·d numbers of features a row
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from medusa_core.acceptance.verdict import Verdict
from medusa_core.trees.token_tree import TokenTree


@dataclass(frozen=True)
class Judged:
    """A tree, what the model says of it, and the rule's verdict."""

    tree: TokenTree
    logits: torch.Tensor  # [N, V], that the rule judged by
    model_logits: torch.Tensor  # [N, V]
    features: torch.Tensor  # [N, F·d]
    verdict: Verdict
    phases_ms: tuple[float, float] | None = None  # for a whole step: of the tree and of the forward
