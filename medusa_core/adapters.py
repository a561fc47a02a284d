"""Low-rank adapters that heads bring along: the base of Medusa-2 heads is the model with its adapter.

peft reads and merges them; only safetensors are read, since other adapter files are pickles. Paper §2.2.2.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from medusa_core.checkpoints import ADAPTER_NAME
from medusa_core.errors import MedusaError


def apply_adapter(model: torch.nn.Module, folder: Path) -> torch.nn.Module:
    """The model with the adapter in ``folder`` merged into its weights.

    Raises MedusaError when the adapter cannot be read or belongs to another model.
    """
    from peft import LoraConfig, PeftModel  # noqa: PLC0415 - slow to import, and most heads have no adapter

    if not (folder / ADAPTER_NAME).is_file():
        raise MedusaError(f"{folder} has an adapter's config but no {ADAPTER_NAME}: fetch or save it again")
    try:
        config = LoraConfig.from_pretrained(folder)
        targets = config.target_modules or ()
        head = model.get_output_embeddings()
        if any(module is head and name in targets for name, module in model.named_modules()):
            untie(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # between peft and transformers, not for our users
            adapted = PeftModel.from_pretrained(model, folder, config=config, is_trainable=False)
        return adapted.merge_and_unload(safe_merge=True)
    except (OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise MedusaError(f"the adapter in {folder} does not fit the base model: {reason}") from error


def untie(model: torch.nn.Module) -> None:
    """Give the LM head weights of its own, when it shares the embedding's: only it is to change."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head.weight is embedding.weight:
        head.weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=False)
        model.config.tie_word_embeddings = False
