"""A module of linear layers as it is run in C: torch lays weights out anew for each product of a few rows.

The leading underscore keeps this module out of the list of drafters.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TypeVar

import torch
from torch import nn

from medusa_core.llama.library import Library
from medusa_core.llama.model import product
from medusa_core.llama.weights import COPY_LIMIT, DTYPES, linear

_Module = TypeVar("_Module", bound=nn.Module)


class NativeLinear(nn.Linear):
    """A linear layer of the same weights, which computes by a copy of them in panels."""

    def __init__(self, given: nn.Linear, library: Library) -> None:
        super().__init__(given.in_features, given.out_features, bias=given.bias is not None, device="meta")
        self.weight, self.bias = given.weight, given.bias
        self._panels, self._library = linear([given]), library

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., inputs] → [..., outputs]."""
        return product(self._panels, x.reshape(-1, x.shape[-1]), self._library).view(*x.shape[:-1], -1)


def in_c(module: _Module, library: Library | None) -> _Module:
    """A copy with the same weights that computes in C; the module itself where C cannot or it is large."""
    tensors = [*module.parameters(), *module.buffers()]
    if library is None or sum(tensor.nbytes for tensor in tensors) > COPY_LIMIT:
        return module
    if any(tensor.dtype not in DTYPES or tensor.device.type != "cpu" for tensor in tensors):
        return module
    copied = deepcopy(module, {id(tensor): tensor for tensor in tensors})
    made: dict[nn.Module, NativeLinear] = {}  # a layer may stand in several places
    for name, layer in list(copied.named_modules(remove_duplicate=False)):
        if type(layer) is nn.Linear:
            copied.set_submodule(name, made.setdefault(layer, NativeLinear(layer, library)))
    return copied
