"""TokenSwift: the model drafts over a part of its own cache, then heads go on from its hidden state.

Depth 1 is the model's own guess behind the root, from a forward that sees a part of the text's rows; the
guesses below are those of heads that follow each other, and n-grams of the text that begin with the guess of
depth 1 are merged in. Paper §2, arXiv 2502.18890. ``heads`` are the networks, ``files`` what lies in a
folder, ``draft`` what is loaded of it, ``drafter`` a step.

The paper picks one at random where several n-grams of the same length are accepted. Here the choice has no
meaning: a tree holds each sequence of tokens once, so where a rule chooses one token at each node only one
path can be accepted, and typical acceptance, which may accept several, breaks ties by the likelier path for
every drafter alike.

The public code counts n-grams of the text up to the window of the contextual penalty, whose tokens the model
is kept from repeating. Here those of the whole text count: a drafter does not know how logits are changed,
and a repetition that the penalty forbids is refused when it is verified.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from medusa_core.config import setting
from medusa_core.drafters import Colour, Drafting, Method
from medusa_core.drafters._head_trees import TreeSettings, named_tree
from medusa_core.hardware.operators import Product, Work, linear, operators
from medusa_core.hardware.shapes import ModelShape

NAME = __name__.rpartition(".")[2]


@dataclass(frozen=True)
class Settings(TreeSettings):
    """The tree, the rows of the text that a draft sees, and how much of the text is drafted again."""

    draft_budget: int = setting(
        512,
        "how many rows of the text the model sees while it drafts; all of a shorter text",
        low=32,
        high=32768,
        step=32,
    )
    draft_sinks: int = setting(
        16, "how many of these are the text's first rows, which are always seen", low=0, high=1024, step=1
    )
    draft_ngrams: int = setting(
        20,
        "how many n-grams that begin with the first guess join the tree, the most frequent first",
        low=0,
        high=64,
        step=1,
    )


METHOD = Method(
    title="TokenSwift",
    mark="t",
    colour=Colour("#8C2F39", "#E5A3A8", "#F8EBEC", "#6B1F28"),  # wine
    help="lets the model guess over a part of its cache and heads go on from there, with n-grams of the text",
    build=f"{__name__}.drafter:TokenSwiftDrafter",
    settings=Settings,
    files="model.safetensors with model.medusa_layers and medusa_heads in its config.json",
    owns=f"{__name__}.files:owns",
    load=f"{__name__}.draft:load",
    size=f"{__name__}.files:size",
    cost=f"{__name__}:cost",
    design=(
        "The whole model once more, on one row and over a part of its cache; then a block and the model’s LM "
        "head for each further level."
    ),
    drafting=Drafting(
        reads=("a part of the model’s cache", "the root"),
        who="the model, then its heads",
        feeds="the hidden state before it",
        levels=("the model’s own guess", "head {0}"),
        words=(
            "The model itself reads the root, but of its cache only the first rows of the text and those "
            "that matter most.",
            "It makes one such short pass in a step; then each head works once, one after the other.",
            "Each head goes on from the hidden state before it. Sequences of the text that begin with the "
            "first guess join the tree.",
        ),
    ),
)


DEPTH = 4  # levels: the model's own guess and three heads, as in the published weights


def cost(shape: ModelShape, settings: Settings, plain: Work) -> list[Product]:
    """The model on one row over a part of its cache, then a block and the LM head for each further level."""
    heads = max(named_tree(settings.tree, DEPTH, None).depths) - 1
    rows, h, e = plain.batch, shape.hidden, plain.number_bytes
    return [
        *operators(shape, replace(plain, context=min(settings.draft_budget, plain.context))),
        linear("head block", rows, h, h, e, heads),
        linear("head lm_head", rows, h, shape.vocabulary, e, heads),
    ]
