"""A smaller model for a tiny target: its first layer with the embedding and the LM head, often right."""

from __future__ import annotations

from dataclasses import replace

import tiny
from transformers import PreTrainedModel

from medusa_core.drafters.draft_model.draft import ModelDraft
from medusa_core.engine import Engine
from medusa_core.model.target import Target


def first_layers(model: PreTrainedModel, layers: int = 1, **changes) -> PreTrainedModel:
    """A model of the first layers of another one."""
    settings = {name: getattr(model.config, name) for name in ("vocab_size", "initializer_range")}
    config = tiny.tiny_config(
        model.config.num_key_value_heads, **settings, num_hidden_layers=layers, **changes
    )
    small = tiny.build_model(config)
    kept = small.state_dict()
    small.load_state_dict({name: tensor for name, tensor in model.state_dict().items() if name in kept})
    return small


def drafting(model: PreTrainedModel) -> ModelDraft:
    """The draft that loading would make of the model."""
    return ModelDraft(Target(model))


def with_draft_model(engine: Engine, model: PreTrainedModel | None = None) -> Engine:
    """The engine with a draft model as well, by default the first layer of its own model."""
    small = model if model is not None else first_layers(engine.target.model)
    return replace(engine, drafts={**engine.drafts, "draft_model": drafting(small)})
