"""How many positions a model takes, and how it takes more than it was trained for where that is asked for.

Two ways to go on after the trained context without training, both for rotary positions without a scaling.
YaRN (Peng et al., 2023, arXiv 2309.00071) stretches the slow rotations over the longer context, by the same
parameters that transformers reads. A window leaves rotations as they are and has every layer see the last
rows alone, as many as the model was trained with: no distance is then new to it, and the text may be as long
as wanted, though the model has forgotten its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from medusa_core.errors import MedusaError
from medusa_core.model.masks import SLIDING, LayerMasks, layer_kinds

YARN, WINDOW = "yarn", "window"
_USUAL = 2048  # positions of a model that names none
_UNSCALED = {"rope_theta", "rope_type", "partial_rotary_factor"}  # settings of rotary positions


@dataclass(frozen=True)
class Context:
    """Positions a run may use, and why no more where the model itself would take more."""

    length: int
    why: str = ""


@dataclass(frozen=True)
class LongerContext:
    """``length`` positions for a model that was trained with ``trained``, by YARN or WINDOW."""

    length: int
    trained: int
    how: str

    def words(self) -> str:
        """Words for a person: ``context 8,192 by YaRN, trained with 1,024``."""
        way = "by YaRN" if self.how == YARN else f"in a window of {self.trained:,}"
        return f"context {self.length:,} {way}, trained with {self.trained:,}"


def context_of(config: Any) -> Context:
    """Positions the model takes, up to where its rotation changes: committed keys keep theirs."""
    length = getattr(config, "max_position_embeddings", None) or _USUAL
    longrope = (one for one in rotary_settings(config) if one.get("rope_type") == "longrope")
    short = min((one["original_max_position_embeddings"] for one in longrope), default=length)
    if short >= length:
        return Context(length)
    differently = f"beyond {short} positions {config.model_type} rotates differently"
    return Context(short, f"{differently}, and committed keys keep theirs")


def inside_window(context: Context, masks: LayerMasks, kind: str) -> Context:
    """Limit the context of an untested sliding-window model to its window."""
    if SLIDING not in masks.kinds or not masks.window or masks.window >= context.length:
        return context
    return Context(masks.window, f"{kind} has a window of {masks.window} and no test has run it beyond that")


def rotary_settings(config: Any) -> list[dict[str, Any]]:
    """Rotary settings of all layers, and of each kind of layer where the kinds differ."""
    rope = getattr(config, "rope_parameters", None) or {}
    return [rope, *(value for value in rope.values() if isinstance(value, dict))]


def longer_context(config: Any, length: int, how: str) -> LongerContext:
    """``length`` positions for the model of a decoder's config. Raises MedusaError where that cannot be."""
    if reason := why_not_longer(config, how):
        raise MedusaError(f"--context {length} cannot be had: {reason}; leave it out or take another model")
    trained: int = config.max_position_embeddings
    if length <= trained:
        has = f"--context is {length}, the model takes {trained} as it is"
        raise MedusaError(f"{has}: leave the flag out or ask for more")
    return LongerContext(length, trained, how)


def why_not_longer(config: Any, how: str = YARN) -> str:
    """Why the context of a model cannot be extended so; empty where it can."""
    kind = config.model_type
    rope = getattr(config, "rope_parameters", None) or {}
    if not rope and getattr(config, "rope_theta", None):  # a plain Llama that was read without transformers
        rope = {"rope_type": "default"}
    scaling, others = rope.get("rope_type", "default"), sorted(rope.keys() - _UNSCALED)
    by_layer = any(isinstance(value, dict) for value in rope.values())
    trained = getattr(config, "max_position_embeddings", None)
    checks = (
        (not trained, f"{kind} does not say with how many positions it was trained"),
        (not rope, f"{kind} has positions that are learned or counted, not rotary ones"),
        (by_layer, f"{kind} rotates its kinds of layers differently"),
        (scaling != "default", f"its positions are scaled already ({scaling})"),
        (bool(others), f"{kind} has rotary settings of its own ({', '.join(others)})"),
        (how == WINDOW and SLIDING in layer_kinds(config, 1), f"{kind} has a sliding window of its own"),
    )
    return next((reason for fails, reason in checks if fails), "")


def stretch(config: Any, longer: LongerContext) -> None:
    """Set a decoder's config to ``longer``, before its model is built; a window needs nothing there."""
    if longer.how != YARN:
        return
    rope = getattr(config, "rope_parameters", None) or {"rope_theta": config.rope_theta}
    config.rope_parameters = dict(rope) | {
        "rope_type": "yarn",
        "factor": longer.length / longer.trained,
        "original_max_position_embeddings": longer.trained,
    }
    config.max_position_embeddings = longer.length


def require_stretched(model: Any, longer: LongerContext) -> None:
    """Raise MedusaError for a model whose code does not read the rotary settings of its config."""
    stretched = any(getattr(module, "rope_type", None) == YARN for module in model.modules())
    if longer.how == YARN and not stretched:
        raise MedusaError(
            f"--context {longer.length} cannot be had: the code of {model.config.model_type} does not read "
            "rotary settings; leave it out or use --extend window"
        )
