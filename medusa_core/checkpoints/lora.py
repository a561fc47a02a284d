"""A plain low-rank adapter added to the weights of its base, without peft, which takes seconds to import.

Plain: one rank and one scale for all layers, nothing but products of two matrices, each for a linear layer
whose weights lie here as numbers. The sums are peft's, in its order and its dtypes, so the weights are equal
to the last bit. Everything else, a damaged adapter too, is left to peft. Paper §2.2.2.

W' = W + B·A · scale · A [r, inputs] · B [outputs, r]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_PREFIX, _A, _B = (
    "base_model.model.",
    ".lora_A.weight",
    ".lora_B.weight",
)  # parts of the names in peft's files
# Settings that change nothing about a finished plain adapter, whatever they say.
_WITHOUT_EFFECT = frozenset(
    {"base_model_name_or_path", "revision", "inference_mode", "lora_dropout", "peft_version",
     "megatron_core", "qalora_group_size"}
)  # fmt: skip
_READ_HERE = frozenset(
    {"peft_type", "task_type", "target_modules", "r", "lora_alpha", "use_rslora", "bias", "init_lora_weights"}
)


@dataclass(frozen=True)
class PlainLora:
    """The settings of a plain adapter."""

    targets: tuple[str, ...]  # names of layers, or how they end
    rank: int
    scale: float

    @classmethod
    def of(cls, config: dict[str, Any]) -> PlainLora | None:
        """From what an adapter's config file says; None unless all of it is that of a plain adapter."""
        targets, rank, alpha = (config.get(name) for name in ("target_modules", "r", "lora_alpha"))
        if not (
            config.get("peft_type") == "LORA"
            and config.get("task_type") in (None, "CAUSAL_LM")
            and config.get("bias", "none") == "none"
            and config.get("init_lora_weights", True) in (True, False)
            and type(config.get("use_rslora", False)) is bool
            and isinstance(targets, list)
            and all(isinstance(name, str) and name for name in targets)
            and type(rank) is int
            and rank > 0
            and isinstance(alpha, int | float)
            and not isinstance(alpha, bool)
            # An unknown setting may change the result, unless it is switched off.
            and not any(config[name] for name in config.keys() - _WITHOUT_EFFECT - _READ_HERE)
        ):
            return None
        return cls(tuple(targets), rank, alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))

    def layers_of(self, model: torch.nn.Module) -> dict[str, torch.nn.Linear] | None:
        """The layers it changes by name; None when one of them is not linear with plain weights."""
        found = {name: module for name, module in model.named_modules() if self._is_target(name)}
        plain = all(
            type(module) is torch.nn.Linear
            and type(module.weight) in (torch.Tensor, torch.nn.Parameter)
            and module.weight.dtype in _FLOATS
            and not module.weight.is_meta
            and not hasattr(module, "_hf_hook")  # of accelerate, which may hold the weights elsewhere
            for module in found.values()
        )
        return found if found and plain else None

    def _is_target(self, name: str) -> bool:
        return any(name == target or name.endswith(f".{target}") for target in self.targets)


@dataclass(frozen=True)
class LoraUpdate:
    """What an adapter adds to one layer."""

    layer: torch.nn.Linear
    down: torch.Tensor  # A
    up: torch.Tensor  # B
    scale: float

    def merged(self) -> torch.Tensor:
        """The layer's weight with the product added."""
        weight = self.layer.weight.detach()
        down, up = (matrix.to(weight.device, torch.float32) for matrix in (self.down, self.up))
        return weight + (up @ down * self.scale).to(weight.dtype)


def plain_updates(model: torch.nn.Module, config: dict[str, Any], file: Path) -> list[LoraUpdate] | None:
    """What the adapter in ``file`` adds to each layer; None when it is not plain or does not fit the model.

    Raises what safetensors does for a damaged file.
    """
    lora = PlainLora.of(config)
    layers = lora.layers_of(model) if lora else None
    if lora is None or layers is None:
        return None
    state = load_file(file)
    wanted = {
        f"{_PREFIX}{name}{matrix}": shape
        for name, layer in layers.items()
        for matrix, shape in ((_A, (lora.rank, layer.in_features)), (_B, (layer.out_features, lora.rank)))
    }
    brought = {name: tuple(tensor.shape) for name, tensor in state.items()}
    if brought != wanted or any(tensor.dtype not in _FLOATS for tensor in state.values()):
        return None
    return [
        LoraUpdate(layer, state[f"{_PREFIX}{name}{_A}"], state[f"{_PREFIX}{name}{_B}"], lora.scale)
        for name, layer in layers.items()
    ]


def merge(model: Any, updates: list[LoraUpdate]) -> bool:
    """Add the updates to the model's weights; whether all came out finite: if not, nothing is changed."""
    if not all(update.merged().isfinite().all() for update in updates):
        return False
    if any(update.layer is model.get_output_embeddings() for update in updates):
        untie(model)
    for update in updates:
        update.layer.weight.data = update.merged()
    return True


def untie(model: Any) -> None:
    """Give the LM head weights of its own, when it shares the embedding's: only it is to change."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    weight = cast("torch.Tensor", head.weight)
    if weight is embedding.weight:
        head.weight = torch.nn.Parameter(weight.detach().clone(), requires_grad=False)
        model.config.tie_word_embeddings = False
