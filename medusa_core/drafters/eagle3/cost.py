"""What EAGLE-3's draft model computes beside a large model. EAGLE-3 paper §3.1."""

from __future__ import annotations

from dataclasses import replace

from medusa_core.drafters.eagle3 import Settings
from medusa_core.drafters.eagle3.shape import FEATURES
from medusa_core.hardware.operators import Product, Work, linear, operators
from medusa_core.hardware.shapes import ModelShape

DRAFT_VOCABULARY = 32_000  # tokens that the published layers can draft; a smaller vocabulary counts whole


def cost(shape: ModelShape, settings: Settings, plain: Work) -> list[Product]:
    """Three hidden states as one; then layer and LM head once a level, on the root and then on k nodes."""
    vocabulary = min(DRAFT_VOCABULARY, shape.vocabulary)
    layer = replace(shape, layers=1, vocabulary=vocabulary)
    h, e = shape.hidden, plain.number_bytes
    products = [linear("fc", plain.batch, FEATURES * h, h, e, 1)]
    for level in range(settings.draft_depth):
        nodes = settings.draft_top_k if level else 1
        rows = plain.batch * nodes
        # It reads the token's embedding beside the hidden state, so these three are twice as wide.
        wide = {"q": shape.heads, "k": shape.kv_heads, "v": shape.kv_heads}
        products += [
            linear(one.name, rows, 2 * h, wide[one.name] * shape.head_size, e, 1) if one.name in wide else one
            for one in operators(layer, replace(plain, tokens=nodes, weight_bytes=None))
        ]
    return products
