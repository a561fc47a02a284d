"""Multi-token prediction: the extra layer that some models are trained and shipped with, as their drafter.

Row t joins the model's last hidden state of token t with the embedding of token t + 1 and runs one decoder
layer; the model's LM head then guesses token t + 2. For the guesses below, the layer's own output stands for
the hidden state. DeepSeek-V3 §2.2 (arXiv 2412.19437); the names of the tensors are those of its checkpoint,
where the layer follows the model's own as ``model.layers.N``, and of models in its manner. ``model`` is the
network, ``files`` reads a folder and ``drafter`` makes a step, in the way of EAGLE-3, whose tree and cache
these are.
"""

from __future__ import annotations

from dataclasses import replace

from medusa_core.config import with_defaults
from medusa_core.drafters import Colour, Drafting, Method
from medusa_core.drafters.eagle3 import Settings
from medusa_core.hardware.operators import Product, Work, linear, operators
from medusa_core.hardware.shapes import ModelShape

NAME = __name__.rpartition(".")[2]


METHOD = Method(
    title="Multi-token prediction",
    mark="m",
    colour=Colour("#C2255C", "#FF9EBB", "#FBEBF1", "#8C1841"),  # rose
    help="the layer that a model was trained with to predict one token more drafts, then from its own output",
    build=f"{__name__}.drafter:MtpDrafter",
    settings=with_defaults(Settings, draft_top_k=4, draft_depth=3, draft_nodes=15),
    files="the model.safetensors of a model with an eh_proj, as DeepSeek-V3's",
    owns=f"{__name__}.files:owns",
    load=f"{__name__}.drafter:load",
    size=f"{__name__}.files:size",
    cost=f"{__name__}:cost",
    design=(
        "For each level a linear layer that joins hidden state and embedding, one decoder layer of the "
        "model’s width, and the model’s own LM head."
    ),
    drafting=Drafting(
        reads=("hidden state of the last kept token", "the root"),
        who="a layer behind the model’s own",
        feeds="its own output and its guess",
        levels=("level {0}",),
        words=(
            "One layer behind the model’s own reads the hidden state of the last kept token and the root.",
            "It works once for each level of the tree, on several nodes at a time.",
            "From level 2 on it reads its own output and the token it guessed, not the model.",
        ),
    ),
)


def cost(shape: ModelShape, settings: Settings, plain: Work) -> list[Product]:
    """Projection, layer and LM head once a level, on the root and then on k nodes."""
    layer, h = replace(shape, layers=1), shape.hidden
    products: list[Product] = []
    for level in range(settings.draft_depth):
        nodes = settings.draft_top_k if level else 1
        products.append(linear("eh_proj", plain.batch * nodes, 2 * h, h, plain.number_bytes, 1))
        products += operators(layer, replace(plain, tokens=nodes, weight_bytes=None))
    return products
