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
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn

_PARTS = ("RMSNorm", "MLP")  # how transformers' classes of them end
_ROTATION = "apply_rotary_pos_emb"  # transformers' function, in the file of each model


@contextmanager
def compiled_parts(model: nn.Module) -> Iterator[None]:
    """Have the modules of ``model`` compute with compiled parts, from now on where the block ends well.

    Compiling itself happens at the first call, once for any number of rows.
    """
    rotations: dict[Any, Any] = {}  # of each file, so that its layers share one
    made = {
        module: _compiled(module, rotations) for module in model.modules() if "forward" not in vars(module)
    }
    changed = [module for module, forward in made.items() if forward is not None]
    for module in changed:
        module.forward = made[module]
    try:
        yield
    except BaseException:
        for module in changed:
            del module.forward
        raise


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
