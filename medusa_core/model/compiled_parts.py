"""Norms, MLPs and rotations of transformers' modules, compiled by torch.

A step of a large model on a GPU is matrix products with a thousand small kernels between them, one for each
addition and each rounding. Compiled, those of a norm, an MLP or a rotation are one kernel each. Whole layers
would be compiled for each layer anew, since each knows its number in the cache.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn

_PARTS = ("RMSNorm", "MLP")  # how transformers' classes of them end
_ROTATION = "apply_rotary_pos_emb"  # transformers' function, in the file of each model


class CompiledParts:
    """The parts of a model, each kind compiled at its first call; false for a model that has none."""

    def __init__(self, model: nn.Module) -> None:
        self._lock = Lock()
        self._forwards: dict[nn.Module, Callable[..., Any]] = {}
        made: dict[type, Callable[..., Any] | None] = {}  # by class, so that all layers share one
        for module in model.modules():
            if "forward" in vars(module):  # wrapped by another library
                continue
            if type(module) not in made:
                made[type(module)] = _compiled(type(module))
            if (forward := made[type(module)]) is not None:
                self._forwards[module] = MethodType(forward, module)

    def __bool__(self) -> bool:
        return bool(self._forwards)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the model compute with these parts within the block, in every thread; afterwards as before."""
        with self._lock:
            for module, forward in self._forwards.items():
                module.forward = forward
            try:
                yield
            finally:
                for module in self._forwards:
                    del module.forward


def _compiled(kind: type[nn.Module]) -> Callable[..., Any] | None:
    """The forward of a class with what can be compiled of it, or None."""
    forward = kind.forward
    if not isinstance(forward, FunctionType):
        return None
    if kind.__name__.endswith(_PARTS):
        return _compile(forward)
    rotation = forward.__globals__.get(_ROTATION)
    if _ROTATION not in forward.__code__.co_names or not isinstance(rotation, FunctionType):
        return None
    # The same code, which finds another function under that name; the library's own module stays as it is.
    return _copied(forward, {**forward.__globals__, _ROTATION: _compile(rotation)})


def _compile(function: FunctionType) -> Callable[..., Any]:
    """Compile for any number of rows. torch compiles one code a few times at most: each model has its own."""
    return torch.compile(_copied(function, function.__globals__), dynamic=True)


def _copied(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    copy = FunctionType(
        function.__code__.replace(), names, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def can_compile() -> bool:
    """Whether triton, with which torch compiles for a GPU, is installed and torch's switch is not off."""
    return importlib.util.find_spec("triton") is not None and os.environ.get("TORCH_COMPILE_DISABLE") != "1"
