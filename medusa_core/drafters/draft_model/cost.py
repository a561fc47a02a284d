"""What a draft model computes beside a large model. Leviathan et al., 2023."""

from __future__ import annotations

from dataclasses import replace

from medusa_core.drafters.draft_model import Settings
from medusa_core.hardware.operators import Product, Work, operators
from medusa_core.hardware.shapes import ModelShape


def cost(shape: ModelShape, settings: Settings, plain: Work) -> list[Product]:
    """A forward of the small model for each level: on the root, then on k nodes."""
    small = ModelShape(
        "llama-160m", hidden=768, intermediate=3072, heads=12, kv_heads=12, head_size=64, layers=12,
        vocabulary=shape.vocabulary,
    )  # fmt: skip
    products = []
    for level in range(settings.draft_depth):
        nodes = settings.draft_top_k if level else 1
        products += operators(small, replace(plain, tokens=nodes, weight_bytes=None))
    return products
