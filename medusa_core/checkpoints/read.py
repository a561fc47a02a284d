"""Heads out of a folder, whatever their format, with what their config says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from medusa_core.checkpoints.files import Layout, layout_of, read_config, read_state
from medusa_core.checkpoints.layouts import HeadTensors, from_public, from_vllm


def read_heads(folder: Path) -> HeadTensors:
    """Read heads strictly: v1, v2, vLLM's format or those inside a model's checkpoint. Raises MedusaError.

    Their number and shapes are those of the tensors; where the config disagrees, ``notes`` say so.
    """
    # Of files that hold heads and nothing else the config is a courtesy; of the others it says what they are.
    layout = layout_of(folder)
    state = read_state(folder)
    tensors = (from_vllm if layout is Layout.VLLM else from_public)(state, str(folder))
    return replace(tensors, notes=(*tensors.notes, *_disagreements(tensors, read_config(folder), layout)))


def _disagreements(tensors: HeadTensors, config: dict[str, Any], layout: Layout | None) -> Iterator[str]:
    """One sentence for each number that the config has wrong: published configs are known to."""
    of_heads = layout is Layout.VLLM
    says = {
        "heads": config.get("num_heads") if of_heads else config.get("medusa_num_heads"),
        "layers": config.get("num_hidden_layers") if of_heads else config.get("medusa_num_layers"),
    }
    for what, has in (("heads", tensors.count), ("layers", tensors.layers)):
        if says[what] is not None and says[what] != has:
            yield f"config.json says {says[what]} {what}, the file holds {has}: the file counts"
    if layout is Layout.HEADS and str(config.get("version")) == "2" and tensors.lm_weight is not None:
        yield "config.json says version 2, the file holds last layers of its own: the file counts"
    if of_heads:
        yield from _vllm_disagreements(tensors, config)


def _vllm_disagreements(tensors: HeadTensors, config: dict[str, Any]) -> Iterator[str]:
    if config.get("hidden_size") not in (None, tensors.width):
        said = config["hidden_size"]
        yield f"config.json says hidden_size {said}, the file holds {tensors.width}: the file counts"
    if bool(tensors.block_bias.any()) and not config.get("medusa_fc_bias"):
        yield "config.json does not set medusa_fc_bias, so vLLM drops the file's biases; here they count"
    if config.get("logit_scale") not in (None, 1, 1.0):
        yield f"logit_scale {config['logit_scale']} is left out: it changes no order of guesses"
