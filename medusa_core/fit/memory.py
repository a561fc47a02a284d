"""How much memory a fit needs, from the model's shapes and dtypes alone, and whether it is there.

The model is built without its weights, so the answer comes before anything large is loaded. Weights,
gradients and optimizer state are counted exactly, activations by what the graph keeps, to about a quarter.

K heads · L layers of a head · V vocabulary · d hidden size · n tokens of a forward pass
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from medusa_core.devices import place
from medusa_core.errors import MedusaError
from medusa_core.fit.settings import FitConfig
from medusa_core.training.answers import LONGEST
from medusa_core.training.base_model import uses_bf16
from medusa_core.training.config import Medusa1Config, Medusa2Config

GIB = 2**30
MARGIN = 1.1  # fragments, buffers of kernels
_CUDA_CONTEXT = 400 * 2**20  # kernels and handles that the driver loads for a process
_FLOAT32 = 4
_ADAM = {"adamw": 8, "adamw8bit": 2}  # bytes a trained parameter, both moments
_FOUR_BITS = 0.55  # bytes a parameter, scales included
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Shape:
    """The sizes of a base. ``adapted`` is Σ (in + out) over its linear layers: an adapter's size by rank."""

    parameters: int
    embeddings: int  # of them in the embedding and the LM head
    adapted: int
    width: int
    vocabulary: int
    layers: int
    intermediate: int
    key_value_width: int
    context: int | None


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


def model_shape(folder: Path) -> Shape:
    """Sizes of the model in ``folder``. Raises MedusaError when it is no causal language model."""
    try:
        config = AutoConfig.from_pretrained(folder)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise MedusaError(f"{folder} is no causal language model: {reason}") from error
    text = config.get_text_config(decoder=True)
    rows, width = model.get_output_embeddings().weight.shape
    query_heads = text.num_attention_heads
    key_value_heads = getattr(text, "num_key_value_heads", None) or query_heads
    tables = {module.weight for module in (model.get_input_embeddings(), model.get_output_embeddings())}
    linear = (module.weight for module in model.modules() if _is_linear(module))
    return Shape(
        parameters=sum(p.numel() for p in model.parameters()),
        embeddings=sum(table.numel() for table in tables),
        adapted=sum(sum(weight.shape) for weight in linear),
        width=width,
        vocabulary=rows,
        layers=text.num_hidden_layers,
        intermediate=getattr(text, "intermediate_size", None) or 4 * width,
        key_value_width=key_value_heads * (getattr(text, "head_dim", None) or width // query_heads),
        context=getattr(text, "max_position_embeddings", None),
    )


def head_parameters(config: FitConfig, shape: Shape) -> int:
    """Trained numbers of all heads: blocks of d² + d, and an LM head of V · d each unless it is shared."""
    own = 0 if config.share_lm_head else shape.vocabulary * shape.width
    return config.heads * (config.head_layers * (shape.width**2 + shape.width) + own)


def stages(config: FitConfig, shape: Shape, bytes_each: int, pass_tokens: int) -> list[StageMemory]:
    """What each stage holds; ``bytes_each`` of the base's dtype, ``pass_tokens`` of a forward pass n."""
    found = [_answers(config, shape, bytes_each), _head_training(config, shape, bytes_each, pass_tokens)]
    if config.joint:
        found.append(_joint_training(config, shape, bytes_each, pass_tokens))
    return [*found, _decoding(config, shape, bytes_each)]


def fitting_pass(
    config: FitConfig, shape: Shape, sequence_length: int, batch_tokens: int
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
        fixes = list(_fixes(config, shape, device, bytes_each, tokens, free))
        raise MedusaError(
            f"the fit needs about {needed / GIB:.2f} GB of {_place(device)}, {free / GIB:.2f} GB are free: "
            + (f"use {' or '.join(fixes)}" if fixes else "take a smaller model or a larger machine")
        )
    return tokens, stages(config, shape, bytes_each, tokens), free


def peak(config: FitConfig, shape: Shape, bytes_each: int, pass_tokens: int) -> int:
    """Bytes of the largest stage."""
    return max(stage.total for stage in stages(config, shape, bytes_each, pass_tokens))


def target_of(config: FitConfig) -> tuple[torch.device, int]:
    """Where the fit runs, and bytes of a number of the base while it trains there. Raises MedusaError."""
    device = place(config.device, config.dtype, Path()).device
    return device, 2 if uses_bf16(Medusa1Config(precision=config.precision), device) else _FLOAT32


def free_memory(device: torch.device) -> int:
    """Bytes that can still be taken on a device: of the GPU, or of RAM within the container's limit."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] - _CUDA_CONTEXT
    free = psutil.virtual_memory().available
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return free
    return free if limit == "max" else min(free, int(limit) - int(used))


def _answers(config: FitConfig, shape: Shape, bytes_each: int) -> StageMemory:
    tokens = config.answer_batch * (LONGEST + config.answer_tokens)
    cache = tokens * 2 * shape.layers * shape.key_value_width * bytes_each
    logits = config.answer_batch * shape.vocabulary * 3 * _FLOAT32  # sampling sorts and sums copies
    return StageMemory("answers", _base_bytes(config, shape, bytes_each), 0, 0, cache + logits)


def _head_training(config: FitConfig, shape: Shape, bytes_each: int, n: int) -> StageMemory:
    base = n * (8 * shape.width + 3 * shape.intermediate) * bytes_each  # of one layer, without its graph
    heads, optimizer, losses = _heads_in_training(config, shape, bytes_each, n)
    return StageMemory("heads", _base_bytes(config, shape, bytes_each), heads, optimizer, base + losses)


def _joint_training(config: FitConfig, shape: Shape, bytes_each: int, n: int) -> StageMemory:
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


def _heads_in_training(config: FitConfig, shape: Shape, bytes_each: int, n: int) -> tuple[int, int, int]:
    """Bytes of the heads (float32, and autocast's copy), of gradients and optimizer, of their losses."""
    count = head_parameters(config, shape)
    copies = _FLOAT32 + (bytes_each if bytes_each < _FLOAT32 else 0)
    # Each head's log-softmax stays until the backward pass, which makes two more.
    losses = (config.heads + 2) * n * shape.vocabulary * _FLOAT32
    features = 4 * config.heads * config.head_layers * n * shape.width * _FLOAT32
    return count * copies, count * (_FLOAT32 + _ADAM[config.optimizer]), losses + features


def _decoding(config: FitConfig, shape: Shape, bytes_each: int) -> StageMemory:
    heads = head_parameters(config, shape) * bytes_each
    return StageMemory("measuring", shape.parameters * bytes_each, heads, 0, 0)


def _base_bytes(config: FitConfig, shape: Shape, bytes_each: int) -> int:
    if not config.base_4bit:
        return shape.parameters * bytes_each
    return round(
        shape.embeddings * bytes_each + (shape.parameters - shape.embeddings) * _FOUR_BITS
    )  # bitsandbytes leaves embedding and LM head as they are


def _fixes(
    config: FitConfig, shape: Shape, device: torch.device, bytes_each: int, tokens: int, free: int
) -> Iterator[str]:
    """Flags that make the fit small enough, each by itself, with what it then needs."""
    changes: dict[str, dict[str, object]] = {
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
    every = {"heads": 2, "share_lm_head": True, "recipe": "medusa1"} | (
        {"base_4bit": True} if device.type == "cuda" else {}
    )
    fewer_heads = fits = False
    for flag, change in changes.items():
        needed = peak(replace(config, **change), shape, bytes_each, tokens)
        if needed <= free and not (fewer_heads and "heads" in change):
            fewer_heads |= "heads" in change  # as many heads as fit, not all the smaller numbers too
            fits = True
            yield f"{flag} ({needed / GIB:.2f} GB)"
    needed = peak(replace(config, **every), shape, bytes_each, tokens)
    if not fits and needed <= free:
        four = " --base-4bit" if "base_4bit" in every else ""
        yield f"--recipe medusa1 --heads 2 --share-lm-head{four} together ({needed / GIB:.2f} GB)"


def _is_linear(module: torch.nn.Module) -> bool:
    # GPT-2 calls its linear layers Conv1D.
    return isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"


def _place(device: torch.device) -> str:
    return "GPU memory" if device.type == "cuda" else "memory"
