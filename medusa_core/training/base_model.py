"""The base model as the recipes need it: loaded for training, with or without a low-rank adapter.

The adapter is peft's. One model is both student and teacher: the teacher is the same model with its adapter
switched off, so that no second copy is held. Paper §2.2.2, §2.3.2, appendix B.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from medusa_core.checkpoints import base as base_files
from medusa_core.checkpoints.adapters import untie, without_deprecations
from medusa_core.checkpoints.base import load_base, read_base_config
from medusa_core.checkpoints.locate import embedded_model, locate_model
from medusa_core.errors import MedusaError
from medusa_core.loading.devices import cpu_has_bf16
from medusa_core.loading.model_size import is_linear
from medusa_core.model.quantization import bitsandbytes_config
from medusa_core.training.config import DrafterConfig, Medusa2Config


def base_folder(model: str) -> Path:
    """The folder of the base by its name, downloaded if need be; the embedded one where there is none."""
    return locate_model(model) if model else embedded_model()


def base_name(config: DrafterConfig) -> str:
    """What the heads' config calls their base."""
    return config.base_name or config.model or "embedded"


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The base's tokenizer. Raises MedusaError when there is none."""
    read_base_config(folder)  # a damaged config is not the tokenizer's fault
    tokenizer = base_files.load_tokenizer(folder)
    if tokenizer is None:
        raise MedusaError(f"{folder} has no tokenizer to train with: put its files beside the weights")
    return tokenizer


def uses_bf16(precision: str, device: torch.device) -> bool:
    """Whether to compute in bfloat16: as asked, or where the hardware multiplies it natively."""
    if precision != "auto":
        return precision == "bf16"
    return torch.cuda.is_bf16_supported() if device.type == "cuda" else cpu_has_bf16()


def load_frozen(config: DrafterConfig, device: torch.device) -> PreTrainedModel:
    """The base for Medusa-1: no gradients, in bfloat16 or 4 bits where that is possible or asked for.

    Raises MedusaError when 4 bits are asked for and cannot be had.
    """
    options: dict = {"dtype": torch.bfloat16 if uses_bf16(config.precision, device) else torch.float32}
    if config.base_4bit:
        if device.type != "cuda":
            raise MedusaError("4-bit bases need a CUDA GPU and bitsandbytes: drop --base-4bit")
        packed = bitsandbytes_config("4bit", torch.bfloat16)
        options |= {"quantization_config": packed, "device_map": {"": device}}
    model = load_base(base_folder(config.model), **options)
    if not config.base_4bit:
        model.to(device)  # type: ignore[arg-type]  # transformers wraps `to` without its self
    return model.eval().requires_grad_(False)


def frozen_head(base: PreTrainedModel) -> torch.Tensor:
    """The base's LM head [V, d], untrained."""
    weight: torch.Tensor = cast("Any", base.get_output_embeddings()).weight
    return weight.detach()


def load_trainable(config: Medusa2Config, device: torch.device) -> PreTrainedModel | PeftModel:
    """The base for joint training: with a fresh adapter on all linear layers, or all weights trainable.

    Raises MedusaError for settings that exclude each other.
    """
    if config.base_4bit:
        raise MedusaError("joint training changes the base, so it cannot be held in 4 bits: drop --base-4bit")
    if config.teacher == "self" and not config.lora:
        raise MedusaError(
            "the base is its own teacher only with its adapter off: use --lora, or --teacher text"
        )
    whole = not config.lora or not uses_bf16(config.precision, device)
    dtype = torch.float32 if whole else torch.bfloat16
    model = load_base(base_folder(config.model), dtype=dtype)
    model.to(device)  # type: ignore[arg-type]  # transformers wraps `to` without its self
    if config.gradient_checkpointing:
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    return add_adapter(model, config) if config.lora else model


def add_adapter(model: PreTrainedModel, config: Medusa2Config) -> PeftModel:
    """The model with a fresh adapter: its weights frozen, the adapter's in float32 and trainable."""
    head = next(name for name, module in model.named_modules() if module is model.get_output_embeddings())
    linear = [n for n, m in model.named_modules() if is_linear(m) and n != head]
    if config.lora_lm_head:
        untie(model)
    adapter = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=[*linear, head] if config.lora_lm_head else linear,
        task_type="CAUSAL_LM",
    )
    with without_deprecations():
        return cast("PeftModel", get_peft_model(model, adapter, autocast_adapter_dtype=True))


def causal_model(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """transformers' own model inside, adapter layers included."""
    inside = model.get_base_model() if isinstance(model, PeftModel) else model
    return cast("PreTrainedModel", inside)


def compile_base(model: PreTrainedModel | PeftModel, device: torch.device) -> None:
    """Compile the forward pass of the base's layers, in place; saving and adapters are not touched."""
    causal = causal_model(model)
    if device.type == "cpu":
        # Compiled, plain attention fuses with its neighbours and beats the CPU's kernel on short windows.
        causal.set_attn_implementation("eager")
    causal.base_model.forward = torch.compile(causal.base_model.forward)


@contextmanager
def as_teacher(model: PeftModel) -> Iterator[None]:
    """The model as it was before training: adapter and dropout off, no gradients."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), model.disable_adapter():
            yield
    finally:
        model.train(was_training)


def read_base(model: PreTrainedModel | PeftModel, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Last hidden states [B, T, d] and logits [B, T, V] of tokens [B, T]."""
    output = causal_model(model)(tokens, use_cache=False, output_hidden_states=True)
    return output.hidden_states[-1], output.logits
