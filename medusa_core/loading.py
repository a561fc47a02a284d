"""From names to an engine: find the files, decide where they go, load base, heads and tokenizer.

Says what is wrong in one line; knows nothing of runs. The paper's heads read the hidden state after the final
norm, so they go where the LM head is.
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from medusa_core import checkpoints
from medusa_core.adapters import apply_adapter
from medusa_core.config import LoadConfig
from medusa_core.devices import Placement, place
from medusa_core.engine import Engine, EngineInfo
from medusa_core.errors import MedusaError
from medusa_core.heads import MedusaHeads
from medusa_core.target import Target
from medusa_core.tree import load_tree
from medusa_core.tree_search import read_accuracies


def load_engine(config: LoadConfig) -> Engine:
    """Load model, heads and tokenizer. Raises MedusaError that names what is missing or does not fit."""
    sources = checkpoints.find_sources(config.model, config.heads)
    folder, heads_path = sources.base, sources.heads
    placement = place(config.device, config.dtype, folder)
    model = _load_model(folder, placement)
    if heads_path is not None and checkpoints.has_adapter(heads_path):
        # Heads of Medusa-2 belong to the base with its adapter, so it is part of what they are called.
        model = apply_adapter(model, heads_path)
    target = Target(model)
    heads, tree, accuracies, notes = None, None, None, ()
    if heads_path is not None:
        tensors = checkpoints.read_heads(heads_path)
        notes = tensors.notes
        for note in notes:
            logging.getLogger(__name__).warning("warning: %s: %s", sources.heads_name, note)
        heads = checkpoints.build_heads(tensors, target.model.get_output_embeddings().weight, heads_path)
        if file := checkpoints.tree_beside(heads_path, placement.device):
            tree = load_tree(str(file))
        if file := checkpoints.beside_heads(heads_path, checkpoints.ACCURACIES_NAME):
            accuracies = read_accuracies(file)
    return Engine(
        target=target,
        heads=heads,
        default_tree=tree,
        accuracies=accuracies,
        tokenizer=_load_tokenizer(folder),
        info=_describe(sources, target, heads, placement, notes),
    )


def _load_model(folder: Path, placement: Placement) -> torch.nn.Module:
    try:
        AutoConfig.from_pretrained(folder)
        model, report = _read_model(folder, placement)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise MedusaError(f"cannot load a causal language model from {folder}: {reason}") from error
    if missing := sorted(report["missing_keys"]):
        # transformers would fill the gap with random numbers and a warning.
        raise MedusaError(
            f"the weights in {folder} lack {', '.join(missing[:4])}: fetch or save the model again"
        )
    return model if placement.device_map else model.to(placement.device)


def _read_model(folder: Path, placement: Placement) -> tuple[torch.nn.Module, dict]:
    """The model and transformers' report on its tensors; sdpa where the model has it, eager elsewhere."""
    options = {
        "dtype": placement.dtype,
        "device_map": placement.device_map,
        "use_safetensors": True,
        "output_loading_info": True,
    }
    try:
        return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa", **options)
    except ValueError as error:
        if "scaled_dot_product_attention" not in str(error):
            raise
        return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", **options)


def _load_tokenizer(folder: Path) -> PreTrainedTokenizerBase | None:
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        return None
    try:
        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise MedusaError(f"cannot load the tokenizer in {folder}: {error}") from error


def _describe(
    sources: checkpoints.Sources,
    target: Target,
    heads: MedusaHeads | None,
    placement: Placement,
    notes: tuple[str, ...],
) -> EngineInfo:
    base = sources.base_name
    return EngineInfo(
        name=base if heads is None else f"{base} + {heads.count} Medusa heads",
        base=base,
        heads=sources.heads_name,
        head_count=heads.count if heads else 0,
        dtype=str(target.dtype).removeprefix("torch."),
        device=str(target.device),
        parameters=sum(p.numel() for p in target.model.parameters()),
        head_parameters=sum(p.numel() for p in heads.parameters()) if heads else 0,
        dtype_reason=placement.reason,
        notes=notes,
    )
