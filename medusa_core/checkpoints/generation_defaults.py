"""What a model's ``generation_config.json`` asks of ``generate`` that no run here does: said, not dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from medusa_core.checkpoints.files import read_json
from medusa_core.checkpoints.names import GENERATION_NAME
from medusa_core.errors import MedusaError, shortened

# transformers' settings that change greedy text too, each with the value at which it does nothing.
_IDLE: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1, 1.0),
    "encoder_repetition_penalty": (1, 1.0),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "bad_words_ids": (),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "sequence_bias": ({}, []),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "exponential_decay_length_penalty": (),
    "guidance_scale": (1, 1.0),
}
_WHOLE_TEXT = 65536  # the largest window of our penalty, whose largest value is the next number
_MOST = 2


def dropped_settings(folder: Path) -> list[str]:
    """Notes, one a setting of the model in ``folder`` that a run does not obey."""
    file = folder / GENERATION_NAME
    try:
        said = read_json(file) if file.is_file() else {}
    except MedusaError:
        return []  # reading the model says what is wrong with it
    asks = f"{GENERATION_NAME} asks for"
    notes = {
        name: f"{asks} {name} {shortened(str(said[name]), 40)}, which counts for nothing here"
        for name, idle in _IDLE.items()
        if said.get(name) is not None and said[name] not in idle
    }
    penalty = said.get(name := "repetition_penalty")
    if name in notes and isinstance(penalty, int | float) and 1 < penalty <= _MOST:
        notes[name] += f": --penalty {penalty} --penalty-window {_WHOLE_TEXT} is the same"
    return list(notes.values())
