"""A smaller language model with the same vocabulary drafts: a chain of tokens, or a tree of its likeliest.

Classic speculative decoding: the small model runs some steps ahead, the target verifies them in one forward.
``drafter`` proposes, ``growth`` decides which nodes a tree gets, ``draft`` loads the model and says what it
takes. Leviathan et al., 2023 (arXiv 2211.17192); Chen et al., 2023 (arXiv 2302.01318).
"""

from __future__ import annotations

from dataclasses import replace

from medusa_core.config import with_defaults
from medusa_core.drafters import Colour, Drafting, Method, eagle3
from medusa_core.hardware.operators import Product, Work, operators
from medusa_core.hardware.shapes import ModelShape

NAME = __name__.rpartition(".")[2]


# With one guess for each node the tree is a chain.
Settings = with_defaults(eagle3.Settings, draft_top_k=1, draft_depth=3, draft_nodes=15)


METHOD = Method(
    title="Draft model",
    mark="d",
    colour=Colour("#A6397F", "#E39BC8", "#F8EDF4", "#7E2460"),  # plum
    help="drafts with a smaller language model that has the same vocabulary, some tokens ahead",
    build=f"{__name__}.drafter:ModelDrafter",
    settings=Settings,
    files="a smaller causal language model with the same vocabulary",
    owns=f"{__name__}.draft:owns",
    load=f"{__name__}.draft:load",
    size=f"{__name__}.draft:size",
    cost=f"{__name__}:cost",
    design=(
        "A model of the size of Llama-160M, which drafts for Llama-7B in published work, with the model’s "
        "vocabulary: one forward pass for each level."
    ),
    drafting=Drafting(
        reads=("the whole text, in a cache of its own", "the root"),
        who="a smaller model",
        feeds="its own guesses",
        levels=("pass {0}",),
        words=(
            "A whole smaller language model reads the text. It sees nothing of the large model.",
            "It makes one forward pass for each level of the tree, the first on the root.",
            "It reads its own guesses as if they were written, and guesses on behind them.",
        ),
    ),
    any_model=True,
)


def cost(shape: ModelShape, settings: eagle3.Settings, plain: Work) -> list[Product]:
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
