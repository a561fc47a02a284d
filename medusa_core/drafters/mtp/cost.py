"""What a multi-token-prediction layer computes beside a large model. DeepSeek-V3 §2.2."""

from __future__ import annotations

from dataclasses import replace

from medusa_core.drafters.mtp import Settings
from medusa_core.hardware.operators import Product, Work, linear, operators
from medusa_core.hardware.shapes import ModelShape


def cost(shape: ModelShape, settings: Settings, plain: Work) -> list[Product]:
    """Projection, layer and LM head once a level, on the root and then on k nodes."""
    layer, h = replace(shape, layers=1), shape.hidden
    products: list[Product] = []
    for level in range(settings.draft_depth):
        nodes = settings.draft_top_k if level else 1
        products.append(linear("eh_proj", plain.batch * nodes, 2 * h, h, plain.number_bytes, 1))
        products += operators(layer, replace(plain, tokens=nodes, weight_bytes=None))
    return products
