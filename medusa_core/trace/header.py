"""The head of a trace: what is loaded, what was asked for, the prompt."""

from __future__ import annotations

from typing import Any

from medusa_core.acceptance import rule_settings
from medusa_core.config import GenerationConfig
from medusa_core.drafters import draft_of, drafter_settings
from medusa_core.engine import Engine
from medusa_core.trace.alternatives import TEMPERATURES
from medusa_core.trace.asked import held_settings
from medusa_core.trace.format import ModelTrace
from medusa_core.trace.packed import Record
from medusa_core.trees.tree import Topology


def header_of(engine: Engine, config: GenerationConfig, prompt: list[int]) -> Record:
    """A RunTrace without its steps and output."""
    tree, drafter = engine.fixed_tree(config), drafter_settings(config, draft_of(engine.drafts, config))
    return {
        "model": _model_record(engine, config),
        "config": {
            "drafter": {"name": config.method, "settings": _plain(drafter)},
            "acceptance": {"name": config.acceptance, "settings": _plain(rule_settings(config))},
            **held_settings(config),
            "tree": [list(choice) for choice in tree.choices] if tree is not None else None,
        },
        "prompt": {
            "text": engine.decode_text(prompt),
            "token_ids": list(prompt),
            "texts": [engine.token_text(token) for token in prompt],
        },
        "sizes": {
            "hidden": engine.target.config.hidden_size,
            "vocabulary": engine.target.vocab_size,
            "layers": engine.target.config.num_hidden_layers,
        },
        "temperatures": list(TEMPERATURES),
    }


def _model_record(engine: Engine, config: GenerationConfig) -> Record:
    """A ModelTrace: what is loaded, how far it sees where that is unusual, and whether it is exact."""
    required = [name for name, field in ModelTrace.model_fields.items() if field.is_required()]
    longer, window = engine.target.longer, engine.target.masks.only_window
    return {
        **{name: getattr(engine.info, name) for name in required},
        "name": engine.name_for(config),
        **({"context": longer.length, "extend": longer.how} if longer is not None else {}),
        **({"window": window} if window is not None else {}),
        **({"exact": True} if engine.target.choice.exact else {}),
    }


def _plain(settings: Any) -> dict[str, Any]:
    """Settings as JSON holds them; a tree that came as a record stands in the trace's own ``tree``."""
    values = vars(settings).items()
    return {name: "given" if isinstance(value, Topology) else value for name, value in values}
