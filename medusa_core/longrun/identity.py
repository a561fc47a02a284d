"""What makes a long run the same one: model and drafter by their weights, the prompt, the settings."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch

from medusa_core.acceptance import rule_settings
from medusa_core.config import GenerationConfig
from medusa_core.drafters import draft_of, drafter_settings
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.trees.tree import Topology

_SAMPLED = 64  # numbers of each tensor that are looked at
TREE = "tree"


def identity(engine: Engine, prompt: Sequence[int], config: GenerationConfig) -> dict[str, Any]:
    """What must be the same for a run to go on, as JSON."""
    return {
        "model": {
            "weights": fingerprint(engine.target.held.weights.named_parameters()),
            "drafter": _drafter(engine, config),
            "dtype": engine.info.dtype,
            "device": torch.device(engine.info.device).type,
            "context": (engine.info.extended or f"{engine.target.context:,}").removeprefix("context "),
        },
        "settings": settings_of(engine, config),
        "prompt": list(prompt),
    }


def surroundings(engine: Engine) -> dict[str, Any]:
    """What may round otherwise: with another one a run goes on, though not surely with the same tokens."""
    return {
        "torch": torch.__version__,
        "threads": engine.target.threads or engine.target.usual_threads,
        "forward": engine.info.forward,
    }


def settings_of(engine: Engine, config: GenerationConfig) -> dict[str, Any]:
    """All settings but the number of tokens, which may grow; a tree that was chosen is written out."""
    found = {item.name: getattr(config, item.name) for item in fields(config)}
    del found["max_new_tokens"], found["options"]
    for settings in (rule_settings(config), drafter_settings(config, draft_of(engine.drafts, config))):
        found |= {item.name: getattr(settings, item.name) for item in fields(settings)}
    tree = engine.fixed_tree(config)
    if tree is not None:
        found[TREE] = [list(choice) for choice in tree.choices]
    return {name: _plain(value) for name, value in found.items()}


def with_tree_of(config: GenerationConfig, settings: Mapping[str, Any]) -> GenerationConfig:
    """A copy with the tree that was chosen when the run began: step times may choose another one today.

    Raises MedusaError when what stands there is no tree.
    """
    tree = settings.get(TREE)
    if not isinstance(tree, list) or config.options.get(TREE, "auto") != "auto":
        return config
    if not tree:
        raise MedusaError("the tree that the run began with is missing: choose another --save")
    return config.changed(tree=Topology.from_choices(tree))


def fingerprint(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """A hash of names, shapes and some numbers of each tensor: a fraction of a second also for large ones."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        if tensor.device.type == "meta" or not tensor.numel():  # offloaded: its numbers are elsewhere
            continue
        rows = tensor.detach().reshape(-1)[:: max(1, tensor.numel() // _SAMPLED)][:_SAMPLED]
        digest.update(rows.float().cpu().numpy().tobytes())
    return digest.hexdigest()[:32]


def _drafter(engine: Engine, config: GenerationConfig) -> str | None:
    draft = draft_of(engine.drafts, config)
    if draft is None:
        return None
    return fingerprint((str(number), tensor) for number, tensor in enumerate(draft.tensors()))


def _plain(value: Any) -> Any:
    """A value that JSON can hold."""
    if isinstance(value, Topology):
        return [list(choice) for choice in value.choices]
    return list(value) if isinstance(value, tuple) else value
