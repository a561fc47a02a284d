"""What TokenSwift drafts with on a large model. Paper §2.2 and §2.3."""

from __future__ import annotations

from dataclasses import replace

from medusa_core.drafters._head_trees import named_tree
from medusa_core.drafters.tokenswift import Settings
from medusa_core.hardware.operators import Product, Work, linear, operators
from medusa_core.hardware.shapes import ModelShape

DEPTH = 4  # levels: the model's own guess and three heads, as in the published weights


def cost(shape: ModelShape, settings: Settings, plain: Work) -> list[Product]:
    """The model on one row over a part of its cache, then a block and the LM head for each further level."""
    heads = max(named_tree(settings.tree, DEPTH, None).depths) - 1
    rows, h, e = plain.batch, shape.hidden, plain.number_bytes
    return [
        *operators(shape, replace(plain, context=min(settings.draft_budget, plain.context))),
        linear("head block", rows, h, h, e, heads),
        linear("head lm_head", rows, h, shape.vocabulary, e, heads),
    ]
