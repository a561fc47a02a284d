"""A folder of a block drafter: config.json with model.safetensors, and the sizes of files and work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from medusa_core.checkpoints.files import (
    headers,
    read_config,
    read_tensors,
    require_finite,
    require_tensors,
    whole_number,
)
from medusa_core.checkpoints.heads import write_config, write_file
from medusa_core.checkpoints.names import BASE_KEY, WEIGHTS_NAME
from medusa_core.drafters import DraftSize
from medusa_core.drafters.block.model import BlockModel
from medusa_core.drafters.eagle3 import FEATURES, Settings
from medusa_core.drafters.eagle3.draft import load_tensors
from medusa_core.drafters.eagle3.shape import DraftShape
from medusa_core.errors import MedusaError
from medusa_core.hardware.operators import Product, Work, linear, operators
from medusa_core.hardware.shapes import ModelShape

if TYPE_CHECKING:
    from medusa_core.loading.model_size import ModelSize

_SIZE, _LAYERS = "block_size", "block_layers"
_MOST = {_SIZE: 16, _LAYERS: 8}  # as in the recipe
_OF_EAGLE3 = "draft_vocab_size"  # by which EAGLE-3's folders are recognised
USUAL_LAYERS = 2  # decoder layers where the cost for a large model is counted


def owns(folder: Path) -> bool:
    """Whether the config has layers that draft a block. Raises MedusaError for a damaged config."""
    return _LAYERS in read_config(folder)


def size(folder: Path, base: ModelSize) -> DraftSize:
    """The memory it takes beside ``base``, by the files' headers. Raises MedusaError."""
    held = headers(folder, WEIGHTS_NAME, lambda _: True)
    shape, _, layers = _sizes(folder)
    return DraftSize(sum(header.count for header in held), 2 * layers * shape.key_heads * shape.head_size)


def cost(shape: ModelShape, settings: Settings, plain: Work) -> list[Product]:
    """Three hidden states as one, then the layers and the LM head on the rows of a block, once a step."""
    h, rows = shape.hidden, plain.batch * settings.draft_depth
    layers, block = replace(shape, layers=USUAL_LAYERS), replace(plain, tokens=settings.draft_depth)
    return [
        linear("fc", plain.batch, FEATURES * h, h, plain.number_bytes, 1),
        linear("join", rows, 2 * h, h, plain.number_bytes, 1),
        *operators(layers, replace(block, weight_bytes=None)),
    ]


def save(model: BlockModel, folder: Path, base: str, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a drafter; ``base`` is what it was made for."""
    config = model.shape.config() | {_SIZE: model.block, _LAYERS: len(model.layers), BASE_KEY: base}
    write_config(folder, {name: value for name, value in config.items() if name != _OF_EAGLE3})
    weights = {name: tensor.detach().to("cpu", dtype) for name, tensor in model.named_parameters()}
    write_file(weights, folder / WEIGHTS_NAME)


def read(folder: Path, lm_head: torch.Tensor, dtype: torch.dtype) -> BlockModel:
    """A drafter for a model with that LM head, on its device. Raises MedusaError where it does not fit."""
    shape, block, layers = _sizes(folder)
    if (shape.vocabulary, shape.hidden) != tuple(lm_head.shape) or shape.layers is None:
        raise MedusaError(
            f"the block drafter in {folder} is {shape.hidden} wide with {shape.vocabulary} tokens, the model "
            f"{lm_head.shape[1]} with {len(lm_head)}: it belongs to another model"
        )
    with torch.device("meta"):
        model = BlockModel(shape, block, layers, lm_head)
    state = read_tensors(folder, WEIGHTS_NAME, lambda _: True, "block drafter")
    owner, wanted = f"the block drafter in {folder}", {n: t.shape for n, t in model.state_dict().items()}
    require_tensors(owner, state, wanted, "its config.json says otherwise, fetch both again")
    require_finite(owner, state, dtype)
    load_tensors(model, state, lm_head.device, dtype)
    return model


def _sizes(folder: Path) -> tuple[DraftShape, int, int]:
    """Shape, rows of a block and layers that the config says. Raises MedusaError for impossible ones."""
    config = read_config(folder)
    try:
        block, layers = (whole_number(config, name, most=most) for name, most in _MOST.items())
        return DraftShape.of(config), block, layers
    except MedusaError as error:
        raise MedusaError(f"cannot read the block drafter in {folder}: config.json: {error}") from error
