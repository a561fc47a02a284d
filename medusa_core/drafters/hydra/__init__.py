"""Hydra's heads: head k sees the hidden state and the tokens drafted before it on the same path.

Ankner et al. 2024, arXiv 2402.05109. ``heads`` are the networks, ``prefix`` the decoder layer in front of
them that some have, ``layout`` the public names of their tensors, ``files`` what lies in a folder, ``draft``
what is loaded of it, ``drafter`` the tree that grows level by level.
"""

from __future__ import annotations

from medusa_core.drafters import Colour, Drafting, Method
from medusa_core.drafters._head_trees import TreeSettings

NAME = __name__.rpartition(".")[2]


METHOD = Method(
    title="Hydra heads",
    mark="y",
    colour=Colour("#6A3FB5", "#B79CF2", "#F1ECFA", "#4C2A8A"),  # violet
    help="heads that guess one after another: each sees the tokens drafted before it",
    build=f"{__name__}.drafter:HydraDrafter.build",
    settings=TreeSettings,
    sequential=True,
    files="hydra_lm_head.safetensors or hydra_lm_head.pt",
    owns=f"{__name__}.recognize:owns",
    load=f"{__name__}.draft:load",
    size=f"{__name__}.size:size",
    fixed_tree=f"{__name__}.draft:fixed_tree",
    cost=f"{__name__}.cost:cost",
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
