"""EAGLE-3: one decoder layer drafts from hidden states of the target, and then from its own output.

``model`` is the network, ``shape`` its sizes as files say them, ``files`` read and write a folder, ``draft``
is what is loaded of it, ``grow`` builds the dynamic tree and ``drafter`` runs both in a step. EAGLE-3 paper
§3.1, tree of EAGLE-2 §4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from medusa_core.config import setting
from medusa_core.drafters import Colour, Drafting, Method
from medusa_core.hardware.operators import Product, Work, linear, operators
from medusa_core.hardware.shapes import ModelShape

NAME = __name__.rpartition(".")[2]
FEATURES = 3  # hidden states that are fused: low, middle, high


@dataclass(frozen=True)
class Settings:
    """The shape of the dynamic tree.

    The public code's depth d is d + 1 levels here, and its total_token counts the root.
    """

    draft_top_k: int = setting(
        10, "how many guesses each node gets, and how many nodes of a level get some", low=1, high=64, step=1
    )
    draft_depth: int = setting(8, "the most levels of drafted nodes", low=1, high=16, step=1)
    draft_nodes: int = setting(59, "the most drafted nodes, not counting the root", low=1, high=128, step=1)


METHOD = Method(
    title="EAGLE-3",
    mark="e",
    colour=Colour("#7A5C1E", "#D9BF7A", "#F6F1E4", "#5C4412"),  # ochre
    help="one extra layer drafts from three of the model's hidden states, then from its own output",
    build=f"{__name__}.drafter:Eagle3Drafter",
    settings=Settings,
    files="EAGLE-3's model.safetensors or pytorch_model.bin, with draft_vocab_size in its config.json",
    owns=f"{__name__}.files:owns",
    load=f"{__name__}.draft:load",
    size=f"{__name__}.files:size",
    cost=f"{__name__}:cost",
    design=(
        "A linear layer that joins three hidden states; then, for each level, one decoder layer of the "
        "model’s width and an LM head of at most 32,000 tokens."
    ),
    drafting=Drafting(
        reads=(
            "hidden state, a low layer",
            "hidden state, a middle layer",
            "hidden state, a high layer",
            "the root",
        ),
        who="one extra layer",
        feeds="its own output and its guess",
        levels=("level {0}",),
        words=(
            "One extra layer reads three hidden states of the model, joined into one vector, and the root.",
            "It works once for each level of the tree, on several nodes at a time.",
            "From level 2 on it reads its own output and the token it guessed, not the model. The likeliest "
            "of all guesses become the tree, so its shape changes from step to step.",
        ),
    ),
)


DRAFT_VOCABULARY = 32_000  # tokens that the published layers can draft; of a smaller vocabulary all


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
