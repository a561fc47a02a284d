"""The other state of the Methods tab: the times of steps computed for a large model, never measured.

What a method keeps of its guesses is taken from what was measured; what its step would take on the chosen
model and device is computed (``evaluation.computed_step``). Words, picture and table each say so.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from medusa_core.drafters import drafters_of, method
from medusa_core.drafters.medusa import NAME as HEADS
from medusa_core.evaluation.computed_step import computed_step, embedded_options, embedded_tree
from medusa_core.experiments.spec_bench import STEP, of_all_kinds
from medusa_core.hardware.devices import Device
from medusa_core.hardware.shapes import ModelShape
from ui.components.figure_table import grid, wrap
from ui.figures.method_speeds import PLAIN, MethodSpeed
from ui.records.figures import Figures
from ui.records.words import Words, sentences
from ui.tabs.hardware.choice import CONTEXT, NUMBER_BYTES

CAPTION = (
    "Computed by formulas, not measured, except for the tokens per step. Overhead and speedup are over plain "
    "decoding; what a step takes beyond its draft is the verification."
)
COUNTED = "How a draft is counted"
BITS = 8 * NUMBER_BYTES  # bits per weight by default
OF_TREES = "Of the measured trees of the heads the one that pays most here has {0} nodes."
ONE_TREE = "The heads were measured only with a tree of {0} nodes: a larger one may pay more here."


@dataclass(frozen=True)
class ComputedMethod(MethodSpeed):
    """A method with the computed time of a step in place of a measured one, and that of its draft."""

    draft_ms: float = 0.0


def compute(
    speeds: Sequence[MethodSpeed], figures: Figures, shape: ModelShape, device: Device, bits: int = BITS
) -> list[ComputedMethod]:
    """The methods by computed times; for the heads, with the tree that pays most there.

    ``figures`` are what the speeds were taken from; without settings in them the embedded model's own
    drafters count. Raises MedusaError for a damaged file.
    """
    options = figures.options
    known = embedded_options() if options is None else options
    rows = of_all_kinds(figures.record.rows)
    chosen = next((row.tree_nodes for row in rows if row.series == HEADS and row.tree_nodes), 0)
    by_size = _by_size(figures) if any(speed.name == HEADS for speed in speeds) else []
    found: dict[str, ComputedMethod] = {}
    for speed in [*speeds, *by_size]:
        first = drafters_of(speed.name)[0]
        own = dict(known.get(speed.name) or known.get(first, {}))
        tree = None
        if first == HEADS and options is None:
            tree = embedded_tree(speed.nodes if speed.name == HEADS else chosen)
        own |= {"tree": tree} if tree else {}
        step = computed_step(speed.name, own, speed.nodes, shape, device, CONTEXT, bits / 8)
        one = ComputedMethod(
            speed.name, speed.tokens_per_step, 1000 * step.seconds, speed.nodes, 1000 * step.draft
        )
        if speed.name not in found or one.tokens_per_second > found[speed.name].tokens_per_second:
            found[speed.name] = one
    return list(found.values())


def _by_size(figures: Figures) -> list[MethodSpeed]:
    """What Medusa keeps with its best tree of each measured size."""
    return [
        MethodSpeed(HEADS, row.tokens_per_step.mean, row.step_ms, row.tree_nodes)
        for row in figures.record.rows
        if row.series == STEP and row.tree_nodes and row.tree_nodes > 1
    ]


def words_before(shape: ModelShape, device: Device, bits: int = BITS) -> str:
    """What was computed, and for what."""
    in_layers = shape.layers * shape.linear_parameters
    size = in_layers * bits / 8 + NUMBER_BYTES * (shape.parameters - in_layers)
    return sentences(
        Words(
            "Computed by formulas, not measured: {0} in {1} bits on {2}, after a text of {3} tokens, each "
            "product in the least time that the device allows.",
            shape.name, bits, device.title, f"{CONTEXT:,}",
        ),
        Words("The weights alone do not fit into its memory.") if size > device.memory > 0 else "",
        Words("Output layer and drafters stay in 16 bits.") if bits < BITS else "",
    )  # fmt: skip


def words_after(found: Sequence[ComputedMethod], figures: Figures) -> str:
    """What the figures do not say."""
    heads = next((one.nodes for one in found if one.name == HEADS), 0)
    return sentences(
        Words("The tokens per step are those measured: drafters trained for this model would differ."),
        Words(OF_TREES if _by_size(figures) else ONE_TREE, heads) if heads else "",
    )


def markup(found: Sequence[ComputedMethod]) -> str:
    """The table of the computed steps, and in a sentence for each drafter how its draft was counted."""
    plain = next(one for one in found if one.name == PLAIN)
    rows = [_row(one, plain) for one in found]
    drafters = dict.fromkeys(part for one in found for part in drafters_of(one.name))
    designs = "".join(
        f"<li><b>{html.escape(method(name).title)}</b>: <span>{html.escape(method(name).design)}</span></li>"
        for name in drafters
    )
    return wrap(f"{grid(CAPTION, rows)}<h3>{COUNTED}</h3><ul>{designs}</ul>")


def _row(one: ComputedMethod, plain: MethodSpeed) -> dict[str, str]:
    return {
        "method": one.title,
        "nodes": str(one.nodes),
        "tokens per step": f"{one.tokens_per_step:.2f}",
        "computed ms of a draft": f"{one.draft_ms:.2f}",
        "computed ms a step": f"{one.step_ms:.2f}",
        "computed overhead": f"{one.step_ms / plain.step_ms:.2f}",
        "computed speedup": f"{one.tokens_per_second / plain.tokens_per_second:.2f}",
    }
