"""What Hydra's heads compute on a large model. Hydra paper §3."""

from __future__ import annotations

from medusa_core.drafters._head_trees import TreeSettings, named_tree
from medusa_core.hardware.operators import Product, Work, linear
from medusa_core.hardware.shapes import ModelShape

HEADS = 4  # the published weights have as many


def cost(shape: ModelShape, settings: TreeSettings, plain: Work) -> list[Product]:
    """For each level the two products of its head's block, which reads k + 2 vectors, and the LM head.

    A level has a row for each node above it that has children.
    """
    tree = named_tree(settings.tree, HEADS, None)
    inner = [tree.depths[node] for node in sorted(set(tree.parents[1:]))]
    h, e = shape.hidden, plain.number_bytes
    products = []
    for level in range(max(tree.depths)):
        rows = plain.batch * inner.count(level)
        products += [
            linear(f"head {level + 1} block", rows, (level + 2) * h, h, e, 2),
            linear(f"head {level + 1} lm_head", rows, h, shape.vocabulary, e, 1),
        ]
    return products
