"""Norms, MLPs and rotations of transformers' modules, compiled by torch.

A step of a large model on a GPU is matrix products with a thousand small kernels between them, one for each
addition and each rounding. Compiled, those of a norm, an MLP or a rotation are one kernel each. Whole layers
would be compiled for each layer anew, since each knows its number in the cache.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn

_PARTS = ("RMSNorm", "MLP")  # how transformers' classes of them end
_ROTATION = "apply_rotary_pos_emb"  # transformers' function, in the file of each model


class CompiledParts:
    """The parts of a model, each compiled at its first call, once for any number of rows."""

    def __init__(self, model: nn.Module) -> None:
        rotations: dict[Any, Any] = {}  # of each file, so that its layers share one
        own = {
            module: _compiled(module, rotations)
            for module in model.modules()
            if "forward" not in vars(module)
        }
        self._forwards = {module: forward for module, forward in own.items() if forward is not None}
        self._lock = Lock()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within it the model computes with them; behind it, as transformers made it."""
        with self._lock:
            for module, forward in self._forwards.items():
                module.forward = forward
            try:
                yield
            finally:
                for module in self._forwards:
                    del module.forward


def _compiled(module: nn.Module, rotations: dict[Any, Any]) -> Any:
    """The module's forward with what can be compiled of it, or None."""
    if type(module).__name__.endswith(_PARTS):
        return torch.compile(module.forward, dynamic=True)
    forward = type(module).forward
    if _ROTATION not in getattr(getattr(forward, "__code__", None), "co_names", ()):
        return None
    names = forward.__globals__
    if names[_ROTATION] not in rotations:
        rotations[names[_ROTATION]] = torch.compile(names[_ROTATION], dynamic=True)
    # The same code, which finds another function under that name; the library's own module stays as it is.
    names = {**names, _ROTATION: rotations[names[_ROTATION]]}
    own = FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
    own.__kwdefaults__ = forward.__kwdefaults__
    return MethodType(own, module)


def can_compile() -> bool:
    """Whether what torch compiles for a GPU with is installed, and not turned off by torch's own switch."""
    return importlib.util.find_spec("triton") is not None and os.environ.get("TORCH_COMPILE_DISABLE") != "1"
