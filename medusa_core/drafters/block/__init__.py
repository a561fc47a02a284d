"""A block drafter: one pass over a root and learned masks guesses all tokens of a block at once.

Its layers read fused hidden states of the target's text as keys and values, DFlash's way (arXiv 2602.06036),
and its rows are given the last of them, close to P-EAGLE (arXiv 2602.01469). A guess is made without knowing
those beside it, so the tree holds the likeliest combinations. ``model`` is the network, ``files`` reads its
folder and ``drafter`` makes a step.
"""

from __future__ import annotations

from medusa_core.config import with_defaults
from medusa_core.drafters import Colour, Drafting, Method
from medusa_core.drafters.eagle3 import Settings

NAME = __name__.rpartition(".")[2]


METHOD = Method(
    title="Block drafter",
    mark="b",
    colour=Colour("#0B7285", "#7FD3E0", "#E5F4F6", "#07515E"),  # teal
    help="a few small layers guess a whole block of tokens in one pass",
    build=f"{__name__}.drafter:BlockDrafter",
    settings=with_defaults(Settings, draft_top_k=4, draft_depth=5, draft_nodes=15),
    files="a block drafter's model.safetensors, with block_size in its config.json",
    owns=f"{__name__}.files:owns",
    load=f"{__name__}.drafter:load",
    size=f"{__name__}.files:size",
    cost=f"{__name__}.files:cost",
    design=(
        "A linear layer that joins three hidden states, then two decoder layers of the model’s width and the "
        "model’s own LM head, once a step on the root and a mask for each further level."
    ),
    drafting=Drafting(
        reads=("hidden states of the text", "the root", "a learned mask for each further token"),
        who="a few layers, once",
        words=(
            "A few small layers read hidden states of the whole text, the root and learned masks that stand "
            "where tokens are to come.",
            "They work once for the whole tree.",
            "No guess knows the others: the tree holds the likeliest combinations.",
        ),
    ),
)
