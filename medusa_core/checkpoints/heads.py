"""Read heads in any format from a folder, make them ready for one base, and write them to a folder.

Needs tensors alone, so that conversion and engine check heads by the same rules.

K heads · V vocabulary · d hidden size
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError
from safetensors.torch import save_file

from medusa_core.checkpoints.files import Layout, State, layout_of, read_config, read_state, require_finite
from medusa_core.checkpoints.layouts import HeadTensors, from_public, from_vllm, to_public
from medusa_core.checkpoints.names import BASE_KEY, CONFIG_NAME, HEADS_NAME
from medusa_core.errors import MedusaError, reason_of


def read_heads(folder: Path) -> HeadTensors:
    """Read heads strictly: v1, v2, vLLM's format or those inside a model's checkpoint. Raises MedusaError.

    Their number and shapes are those of the tensors; where the config disagrees, ``notes`` say so.
    """
    # Files that hold heads and nothing else need no config; for the others it says what they are.
    layout = layout_of(folder)
    state = read_state(folder)
    tensors = (from_vllm if layout is Layout.VLLM else from_public)(state, str(folder))
    return replace(tensors, notes=(*tensors.notes, *_disagreements(tensors, read_config(folder), layout)))


def _disagreements(tensors: HeadTensors, config: dict[str, Any], layout: Layout | None) -> Iterator[str]:
    """One sentence for each wrong number in the config: some published configs have them."""
    if layout is Layout.VLLM:
        held = {"num_heads": tensors.count, "num_hidden_layers": tensors.layers, "hidden_size": tensors.width}
    else:
        held = {"medusa_num_heads": tensors.count, "medusa_num_layers": tensors.layers}
    for name, number in held.items():
        if config.get(name) not in (None, number):
            yield f"config.json says {name} {config[name]}, the file holds {number}, which is used"
    if layout is Layout.HEADS and str(config.get("version")) == "2" and tensors.lm_weight is not None:
        yield "config.json says version 2, the file holds last layers of its own, which are used"
    if layout is Layout.VLLM and bool(tensors.block_bias.any()) and not config.get("medusa_fc_bias"):
        yield "config.json does not set medusa_fc_bias, so vLLM drops the file's biases; here they are used"
    if layout is Layout.VLLM and config.get("logit_scale") not in (None, 1, 1.0):
        yield f"logit_scale {config['logit_scale']} is ignored: it changes no order of guesses"


OTHER_BASE = "they belong to another base, so give --heads made for this one, or --heads none"


def require_width(source: Path | str, own: int, width: int) -> None:
    """Raise MedusaError where heads are not as wide as the base model."""
    if own != width:
        raise MedusaError(f"the heads in {source} are {own} wide, the base model {width}: {OTHER_BASE}")


def heads_for_base(tensors: HeadTensors, lm_head: torch.Tensor, source: Path) -> HeadTensors:
    """The tensors for a base whose LM head is ``lm_head`` [V, d], on its device and in its dtype.

    Raises MedusaError when hidden size or vocabulary differ, or when a number is NaN or infinite.
    """
    _require_same_sizes(tensors, lm_head, source)
    weights = {"block weight": tensors.block_weight, "block bias": tensors.block_bias}
    if tensors.lm_weight is not None:
        weights["LM head"] = tensors.lm_weight
    require_finite(f"the heads in {source}", weights, lm_head.dtype)
    return replace(
        tensors,
        block_weight=tensors.block_weight.to(lm_head.device, lm_head.dtype),
        block_bias=tensors.block_bias.to(lm_head.device, lm_head.dtype),
        lm_weight=_last_layers(tensors, lm_head),
        token_map=None if tensors.token_map is None else tensors.token_map.long().to(lm_head.device),
    )


def _require_same_sizes(tensors: HeadTensors, lm_head: torch.Tensor, source: Path) -> None:
    rows, width = lm_head.shape
    require_width(source, tensors.width, width)
    if tensors.token_map is not None and int(tensors.token_map.max()) >= rows:
        raise MedusaError(
            f"the heads in {source} know token {int(tensors.token_map.max())}, the base model has {rows}: "
            f"{OTHER_BASE}"
        )
    own = rows if tensors.lm_weight is None else tensors.lm_weight.shape[-2]
    if tensors.token_map is None and own != rows:
        raise MedusaError(f"the heads in {source} know {own} tokens, the base model {rows}: {OTHER_BASE}")


def _last_layers(tensors: HeadTensors, lm_head: torch.Tensor) -> torch.Tensor | None:
    """Last layers [K, V, d]; the LM head itself where theirs is a copy of it; None where they have none."""
    if tensors.lm_weight is None:
        return None
    last = tensors.lm_weight.to(lm_head.device, lm_head.dtype)
    if last.ndim == 3:
        return last
    # One matrix for all heads: the base's, or else one of which each head gets a copy.
    if tensors.token_map is None and torch.equal(last, lm_head):
        return lm_head.detach()
    return last.expand(tensors.count, -1, -1).contiguous()


_TORCH_WRITER = ("inline_container", "PytorchStreamWriter")  # in what torch says of a disk that is full
SHARD_SIZE = "9MB"  # a Space takes files up to 10 MB without large-file storage


def write_heads(tensors: HeadTensors, folder: Path, base: str) -> None:
    """Write tensors as they are, in format v1 or v2, as safetensors of at most 9 MB each."""
    state = to_public(tensors)
    write_config(folder, public_config(tensors, base))
    pattern = HEADS_NAME + "{suffix}.safetensors"
    with disk_errors():
        save_torch_state_dict(state, folder, filename_pattern=pattern, max_shard_size=SHARD_SIZE)


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Write config.json, and make the folder for it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_NAME).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def write_file(state: State, file: Path) -> None:
    """Write all tensors into one file: safetensors, or a dictionary of tensors where it is called .pt."""
    with disk_errors():
        if file.suffix == ".pt":
            torch.save(state, file)
        else:
            save_file({name: tensor.contiguous() for name, tensor in state.items()}, file, {"format": "pt"})


@contextmanager
def disk_errors() -> Iterator[None]:
    """Raise OSError for a full disk, which each writer of tensors reports by an error of its own."""
    try:
        yield
    except SafetensorError as error:
        raise OSError(reason_of(error).removeprefix("Error while serializing: ")) from error
    except RuntimeError as error:
        if not any(words in str(error) for words in _TORCH_WRITER):
            raise
        raise OSError("the file could not be written to its end") from error


def public_config(tensors: HeadTensors, base: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        BASE_KEY: base,
        "medusa_num_heads": tensors.count,
        "medusa_num_layers": tensors.layers,
    }
    return config if tensors.lm_weight is not None else config | {"version": "2"}
