"""The other state of the Methods tab: the times of steps computed for a large model, never measured.

What a method keeps of its guesses is taken from what was measured; what its step would take on the chosen
model and device is computed (``evaluation.computed_step``). Words, picture and table say so each.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from medusa_core.drafters import drafters_of, method
from medusa_core.evaluation.computed_step import ComputedStep, computed_step, embedded_options
from medusa_core.hardware.devices import Device
from medusa_core.hardware.shapes import ModelShape
from ui.components.figure_table import grid, wrap
from ui.figures.method_speeds import PLAIN, MethodSpeed
from ui.records.words import Words, sentences
from ui.tabs.hardware.choice import CONTEXT, NUMBER_BYTES

Options = Mapping[str, Mapping[str, Any]]  # settings and tree of each method's drafters, by method
CAPTION = (
    "Computed by formulas, not measured, but for the tokens per step. Overhead and speedup are over plain "
    "decoding; what a step takes beyond its draft is the verification."
)
COUNTED = "How a draft is counted"


@dataclass(frozen=True)
class ComputedMethod:
    """A method with its computed step; ``speed`` has the computed time in place of a measured one."""

    speed: MethodSpeed
    step: ComputedStep


def compute(
    speeds: Sequence[MethodSpeed], options: Options | None, shape: ModelShape, device: Device
) -> list[ComputedMethod]:
    """The methods whose drafters say what they cost.

    Without ``options`` the embedded model's own drafters count. Raises MedusaError for a damaged file.
    """
    known = embedded_options() if options is None else options
    found = []
    for speed in speeds:
        own = known.get(speed.name) or known.get(drafters_of(speed.name)[0], {})
        step = computed_step(speed.name, own, speed.nodes, shape, device, CONTEXT)
        if step is not None:
            found.append(ComputedMethod(replace(speed, step_ms=1000 * step.seconds), step))
    return found


def words_before(shape: ModelShape, device: Device) -> str:
    """What was computed, and for what."""
    too_large = NUMBER_BYTES * shape.parameters > device.memory > 0
    return sentences(
        Words(
            "Computed by formulas, not measured: {0} in 16 bits on {1}, behind a text of {2} tokens, each "
            "product in the least time that the device allows.", shape.name, device.title, f"{CONTEXT:,}",
        ),
        Words("The weights alone do not fit into its memory.") if too_large else "",
    )  # fmt: skip


def words_after(speeds: Sequence[MethodSpeed], found: Sequence[ComputedMethod]) -> str:
    """What the figures do not say."""
    known = {one.speed.name for one in found}
    left_out = [speed.title for speed in speeds if speed.name not in known]
    return sentences(
        Words(
            "The tokens per step are the measured ones: drafters trained for this model would keep others."
        ),
        Words("Left out, since it is not known what they cost: {0}.", ", ".join(left_out))
        if left_out
        else "",
    )


def markup(found: Sequence[ComputedMethod]) -> str:
    """The table of the computed steps, and in a sentence for each drafter how its draft was counted."""
    plain = next(one.speed for one in found if one.speed.name == PLAIN)
    rows = [_row(one, plain) for one in found]
    drafters = dict.fromkeys(part for one in found for part in drafters_of(one.speed.name))
    designs = "".join(
        f"<li><b>{html.escape(method(name).title)}</b>: <span>{html.escape(method(name).design)}</span></li>"
        for name in drafters
    )
    return wrap(f"{grid(CAPTION, rows)}<h3>{COUNTED}</h3><ul>{designs}</ul>")


def _row(one: ComputedMethod, plain: MethodSpeed) -> dict[str, str]:
    speed = one.speed
    return {
        "method": speed.title,
        "nodes": str(speed.nodes),
        "tokens per step": f"{speed.tokens_per_step:.2f}",
        "computed ms of a draft": f"{1000 * one.step.draft:.2f}",
        "computed ms a step": f"{speed.step_ms:.2f}",
        "computed overhead": f"{speed.step_ms / plain.step_ms:.2f}",
        "computed speedup": f"{speed.tokens_per_second / plain.tokens_per_second:.2f}",
    }
