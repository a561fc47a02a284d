"""A draft model with its weights packed for the CPU, as the lean forward packs the target's.

A tree asks for several forwards of a few rows each, in which torch would reorder every weight each time.
"""

from __future__ import annotations

import torch
from torch import nn

from medusa_core.drafters.eagle3.model import DraftModel
from medusa_core.model.products import PACK_LIMIT, Linear, Operators, PackedLinear, packing_that_wins


class _Product(nn.Module):
    """A packed linear layer in the place of torch's: [R, I] → [R, O]."""

    def __init__(self, linear: PackedLinear) -> None:
        super().__init__()
        self._linear = linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._linear(x)


def packed_model(model: DraftModel) -> DraftModel:
    """The same model with packed copies of its matrices, or itself where that is no faster or too large."""
    weight = model.lm_head.weight
    total = sum(tensor.nbytes for tensor in model.parameters())
    if weight.device.type != "cpu" or weight.dtype != torch.bfloat16 or total > PACK_LIMIT:
        return model
    operators = packing_that_wins(Linear(weight.detach()))
    return model if operators is None else packed_by(model, operators)


def packed_by(model: DraftModel, operators: Operators) -> DraftModel:
    """The same model with copies of its matrices that ``operators`` have packed."""
    with torch.device("meta"):
        packed = DraftModel(model.shape)
    packed.load_state_dict(model.state_dict(), assign=True)
    for name, module in list(packed.named_modules()):
        if isinstance(module, nn.Linear):
            packed.set_submodule(name, _Product(PackedLinear(Linear(module.weight.detach()), operators)))
    return packed.requires_grad_(False).eval()
