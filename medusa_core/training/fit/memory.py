"""How much memory a fit needs, from the model's shapes and dtypes alone, and whether it is there.

The model is built without its weights, so the answer comes before anything large is loaded. Weights,
gradients and optimizer state are counted exactly, activations by what the graph keeps, to about a quarter.

K heads · L layers of a head · V vocabulary · d hidden size · n tokens of a forward pass
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from medusa_core.errors import MedusaError
from medusa_core.loading.devices import free_memory, place
from medusa_core.loading.model_size import ModelSize, base_bytes
from medusa_core.model.quantization import packing_for
from medusa_core.training.answers import LONGEST
from medusa_core.training.base_model import uses_bf16
from medusa_core.training.config import Medusa2Config
from medusa_core.training.fit.settings import FitConfig
from medusa_core.words import bytes_words

MARGIN = 1.1  # fragments, buffers of kernels
_FLOAT32 = 4
_ADAM = {"adamw": 8, "adamw8bit": 2}  # bytes a trained parameter, both moments


@dataclass(frozen=True)
class StageMemory:
    """Bytes of a stage: the base, the heads (and adapter), gradients and optimizer, activations."""

    stage: str
    base: int
    heads: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """Their sum, with a margin."""
        return round(MARGIN * (self.base + self.heads + self.optimizer + self.activations))


def head_parameters(config: FitConfig, shape: ModelSize) -> int:
    """Trained numbers of all heads: blocks of d² + d, and an LM head of V · d each unless it is shared."""
    own = 0 if config.share_lm_head else shape.vocabulary * shape.width
    return config.heads * (config.head_layers * (shape.width**2 + shape.width) + own)


def stages(config: FitConfig, shape: ModelSize, bytes_each: int, pass_tokens: int) -> list[StageMemory]:
    """The memory of each stage; ``bytes_each`` is that of the base's dtype, ``pass_tokens`` is n."""
    found = [_answers(config, shape, bytes_each), _head_training(config, shape, bytes_each, pass_tokens)]
    if config.joint:
        found.append(_joint_training(config, shape, bytes_each, pass_tokens))
    return [*found, _decoding(config, shape, bytes_each)]


def fitting_pass(
    config: FitConfig, shape: ModelSize, sequence_length: int, batch_tokens: int
) -> tuple[int, list[StageMemory], int]:
    """The largest forward pass in tokens that fits, what the stages then take, and what is free.

    Raises MedusaError naming the memory needed, what is free and what would help.
    """
    device, bytes_each = target_of(config)
    free = free_memory(device)
    tokens = batch_tokens
    while peak(config, shape, bytes_each, tokens) > free and tokens % 2 == 0 and tokens > sequence_length:
        tokens //= 2
    needed = peak(config, shape, bytes_each, tokens)
    if needed > free:
        place_words = "GPU memory" if device.type == "cuda" else "memory"
        fixes = list(_fixes(config, shape, device, bytes_each, tokens, free))
        raise MedusaError(
            f"the fit needs about {bytes_words(needed)} of {place_words}, {bytes_words(free)} are free: "
            + (f"use {' or '.join(fixes)}" if fixes else "take a smaller model or a larger machine")
        )
    return tokens, stages(config, shape, bytes_each, tokens), free


def peak(config: FitConfig, shape: ModelSize, bytes_each: int, pass_tokens: int) -> int:
    """Bytes of the largest stage."""
    return max(stage.total for stage in stages(config, shape, bytes_each, pass_tokens))


def target_of(config: FitConfig) -> tuple[torch.device, int]:
    """Where the fit runs, and bytes of a number of the base while it trains there. Raises MedusaError."""
    device = place(config.device, config.dtype).device
    return device, 2 if uses_bf16(config.precision, device) else _FLOAT32


def _answers(config: FitConfig, shape: ModelSize, bytes_each: int) -> StageMemory:
    tokens = config.answer_batch * (LONGEST + config.answer_tokens)
    cache = tokens * 2 * shape.layers * shape.key_value_width * bytes_each
    logits = config.answer_batch * shape.vocabulary * 3 * _FLOAT32  # sampling sorts and sums copies
    return StageMemory("answers", _base_bytes(config, shape, bytes_each), 0, 0, cache + logits)


def _head_training(config: FitConfig, shape: ModelSize, bytes_each: int, n: int) -> StageMemory:
    base = n * (8 * shape.width + 3 * shape.intermediate) * bytes_each  # of one layer, without its graph
    heads, optimizer, losses = _heads_in_training(config, shape, bytes_each, n)
    return StageMemory("heads", _base_bytes(config, shape, bytes_each), heads, optimizer, base + losses)


def _joint_training(config: FitConfig, shape: ModelSize, bytes_each: int, n: int) -> StageMemory:
    adapter = Medusa2Config().lora_rank * shape.adapted
    layer = shape.width if config.gradient_checkpointing else 12 * shape.width + 4 * shape.intermediate
    base = shape.layers * n * layer * bytes_each
    logits = 5 * n * shape.vocabulary * _FLOAT32  # of student and teacher, their softmaxes, a gradient
    heads, optimizer, losses = _heads_in_training(config, shape, bytes_each, n)
    untied = 0 if config.share_lm_head else shape.vocabulary * shape.width * bytes_each
    return StageMemory(
        "heads and adapter",
        _base_bytes(config, shape, bytes_each) + untied,
        heads + adapter * _FLOAT32,
        optimizer + adapter * (_FLOAT32 + _ADAM[config.optimizer]),
        base + logits + losses,
    )


def _heads_in_training(config: FitConfig, shape: ModelSize, bytes_each: int, n: int) -> tuple[int, int, int]:
    """Bytes of the heads (float32, and autocast's copy), of gradients and optimizer, of their losses."""
    count = head_parameters(config, shape)
    copies = _FLOAT32 + (bytes_each if bytes_each < _FLOAT32 else 0)
    # Each head's log-softmax stays until the backward pass, which makes two more.
    losses = (config.heads + 2) * n * shape.vocabulary * _FLOAT32
    features = 4 * config.heads * config.head_layers * n * shape.width * _FLOAT32
    return count * copies, count * (_FLOAT32 + _ADAM[config.optimizer]), losses + features


def _decoding(config: FitConfig, shape: ModelSize, bytes_each: int) -> StageMemory:
    heads = head_parameters(config, shape) * bytes_each
    return StageMemory("measuring", shape.parameters * bytes_each, heads, 0, 0)


def _base_bytes(config: FitConfig, shape: ModelSize, bytes_each: int) -> int:
    return base_bytes(shape, bytes_each, packing_for("4bit") if config.base_4bit else None)


def _fixes(
    config: FitConfig, shape: ModelSize, device: torch.device, bytes_each: int, tokens: int, free: int
) -> Iterator[str]:
    """Flags that make the fit small enough, each by itself, with what it then needs."""
    changes: dict[str, dict[str, Any]] = {
        f"--heads {heads}": {"heads": heads} for heads in range(config.heads - 1, 1, -1)
    }
    changes["--share-lm-head"] = {"share_lm_head": True}
    if config.joint:
        changes |= {"--gradient-checkpointing": {"gradient_checkpointing": True}}
        changes |= {"--recipe medusa1": {"recipe": "medusa1"}}
    if device.type == "cuda":
        changes |= {"--optimizer adamw8bit": {"optimizer": "adamw8bit"}}
        if not config.joint:
            changes |= {"--base-4bit": {"base_4bit": True}}
    if device.type == "cpu" and config.answer_batch > 1:
        changes |= {"--answer-batch 4": {"answer_batch": 4}}
    every: dict[str, Any] = {"heads": 2, "share_lm_head": True, "recipe": "medusa1"}
    if device.type == "cuda":
        every["base_4bit"] = True
    fewer_heads = fits = False
    for flag, change in changes.items():
        needed = peak(replace(config, **change), shape, bytes_each, tokens)
        if needed <= free and not (fewer_heads and "heads" in change):
            fewer_heads |= "heads" in change  # as many heads as fit, not all the smaller numbers too
            fits = True
            yield f"{flag} ({bytes_words(needed)})"
    needed = peak(replace(config, **every), shape, bytes_each, tokens)
    if not fits and needed <= free:
        four = " --base-4bit" if "base_4bit" in every else ""
        yield f"--recipe medusa1 --heads 2 --share-lm-head{four} together ({bytes_words(needed)})"
