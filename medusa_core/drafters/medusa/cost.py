"""What Medusa's heads compute on a large model. Paper §2.1.1."""

from __future__ import annotations

from medusa_core.drafters._head_trees import TreeSettings, named_tree
from medusa_core.hardware.operators import Product, Work, linear
from medusa_core.hardware.shapes import ModelShape

HEADS = 5  # the published weights have as many


def cost(shape: ModelShape, settings: TreeSettings, plain: Work) -> list[Product]:
    """A residual block and an LM head for each level of the tree, on one row."""
    depth = max(named_tree(settings.tree, HEADS, None).depths)
    rows, h, e = plain.batch, shape.hidden, plain.number_bytes
    return [
        linear("head block", rows, h, h, e, depth),
        linear("head lm_head", rows, h, shape.vocabulary, e, depth),
    ]
