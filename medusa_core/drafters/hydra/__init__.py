"""Hydra's heads: head k sees the hidden state and the tokens drafted before it on the same path.

Ankner et al. 2024, arXiv 2402.05109. ``heads`` are the networks, ``prefix`` the decoder layer in front of
them that some have, ``layout`` the public names of their tensors, ``files`` what lies in a folder, ``draft``
what is loaded of it, ``drafter`` the tree that grows level by level.
"""

from __future__ import annotations

from medusa_core.drafters import Colour, Drafting, Method
from medusa_core.drafters._head_trees import TreeSettings, named_tree
from medusa_core.hardware.operators import Product, Work, linear
from medusa_core.hardware.shapes import ModelShape

NAME = __name__.rpartition(".")[2]


METHOD = Method(
    title="Hydra heads",
    mark="y",
    colour=Colour("#6A3FB5", "#B79CF2", "#F1ECFA", "#4C2A8A"),  # violet
    help="heads that guess one after another: each sees the tokens drafted before it",
    build=f"{__name__}.drafter:HydraDrafter",
    settings=TreeSettings,
    sequential=True,
    files="hydra_lm_head.safetensors or hydra_lm_head.pt",
    owns=f"{__name__}.files:owns",
    load=f"{__name__}.draft:load",
    size=f"{__name__}.files:size",
    fixed_tree=True,
    cost=f"{__name__}:cost",
    design=(
        "One head after the other, on all nodes of its level that go on: a block over the hidden state and "
        "the path’s tokens, and the model’s LM head."
    ),
    drafting=Drafting(
        reads=("hidden state of the last kept token", "the root"),
        who="head after head",
        feeds="the tokens guessed before it",
        levels=("head {0}",),
        words=(
            "Head 1 reads the hidden state of the last kept token and the root.",
            "The heads work one after the other, each once in a step, on all paths that go on.",
            "Head 2 also reads what head 1 guessed, head 3 what both guessed, and so on: behind another "
            "guess a head expects something else.",
        ),
    ),
)


HEADS = 4  # the published weights have as many


def cost(shape: ModelShape, settings: TreeSettings, plain: Work) -> list[Product]:
    """For each level the two products of its head's block, which reads k + 2 vectors, and the LM head.

    A level has a row for each node above it that has children. Hydra paper §3.
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
