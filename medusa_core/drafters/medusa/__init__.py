"""Medusa's heads: their settings, their modules and their drafter. Paper §2.1.

``drafter`` fills a tree with the heads' guesses, ``heads`` are the networks, ``files`` what lies in a folder
and ``draft`` what is loaded of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from medusa_core.drafters import Drafting, Method
from medusa_core.drafters._head_trees import AUTO as AUTO
from medusa_core.drafters._head_trees import DEFAULT as DEFAULT  # both are read from here
from medusa_core.drafters._head_trees import TreeSettings, is_dynamic, named_tree
from medusa_core.errors import MedusaError
from medusa_core.hardware.operators import Product, Work, linear
from medusa_core.hardware.shapes import ModelShape

if TYPE_CHECKING:
    from medusa_core.drafters.medusa.draft import MedusaDraft
    from medusa_core.engine import Engine


NAME = __name__.rpartition(".")[2]


METHOD = Method(
    title="Medusa heads",
    mark="h",
    help="extra heads guess several next tokens at once from one hidden state",
    build=f"{__name__}.drafter:MedusaDrafter",
    settings=TreeSettings,
    files="medusa_lm_head.safetensors or medusa_lm_head.pt",
    owns=f"{__name__}.draft:owns",
    load=f"{__name__}.draft:load",
    size=f"{__name__}.files:size",
    fixed_tree=True,
    cost=f"{__name__}:cost",
    design="For each level of the tree a head of one residual block and an LM head of its own, on one row.",
    drafting=Drafting(
        reads=("hidden state of the last kept token",),
        who="all heads at once",
        levels=("head {0}",),
        words=(
            "Every head reads the same vector: the hidden state of the last kept token.",
            "Each head works once in a step, and none waits for another.",
            "No guess is read by another head: head 2 does not know what head 1 guessed.",
        ),
    ),
)


def medusa_draft(engine: Engine) -> MedusaDraft:
    """The Medusa heads of an engine. Raises MedusaError when it has none."""
    draft = engine.drafts.get(NAME)
    if draft is None:
        others = " and ".join(other.label for other in engine.drafts.values())
        has = f"{others} but no Medusa heads, which this needs" if others else "no Medusa heads"
        raise MedusaError(f"{engine.info.base} has {has}: name them with --heads")
    return cast("MedusaDraft", draft)


def with_heads(engine: Engine, **changes: Any) -> Engine:
    """A copy of the engine with other ``heads``, or other fields of its ``MedusaDraft``."""
    return replace(engine, drafts={**engine.drafts, NAME: replace(medusa_draft(engine), **changes)})


HEADS = 5  # the published weights have as many


def cost(shape: ModelShape, settings: TreeSettings, plain: Work) -> list[Product]:
    """A residual block and an LM head for each level of the tree, on one row."""
    depth = max(named_tree(settings.tree, HEADS, None).depths) if not is_dynamic(settings.tree) else HEADS
    rows, h, e = plain.batch, shape.hidden, plain.number_bytes
    return [
        linear("head block", rows, h, h, e, depth),
        linear("head lm_head", rows, h, shape.vocabulary, e, depth),
    ]
