"""Self-distillation: the base writes the text, then heads (and an adapter) learn from it (paper §2.3.2).

For a base whose training text nobody has, and for keeping a base what it is: Medusa-2 on its own answers with
the KL divergence from itself as the backbone's loss.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from medusa_core.errors import MedusaError
from medusa_core.training.answers import Writer
from medusa_core.training.base_model import base_folder, load_frozen, load_tokenizer
from medusa_core.training.config import Medusa1Config, Medusa2Config, SelfDistillConfig
from medusa_core.training.loop import End, Progress, never
from medusa_core.training.medusa1 import medusa1
from medusa_core.training.medusa2 import medusa2, require_frozen_head

ANSWERS = "answers"  # folder of the answers inside the run folder


def self_distill(config: SelfDistillConfig, end: End = never) -> Generator[Progress, None, None]:
    """Run the recipe; the last record's ``folder`` holds what was trained, or the answers."""
    answers = Path(config.out) / ANSWERS
    if config.train == "medusa2":
        require_frozen_head(config)
    yield from _write_answers(config, answers, end)
    if config.train == "nothing":
        return
    places: dict[str, Any] = {"data": str(answers), "out": str(Path(config.out) / config.train)}
    if config.train == "medusa1":
        yield from medusa1(config.as_kind(Medusa1Config, **places), end=end)
    else:
        yield from medusa2(config.as_kind(Medusa2Config, **places), end=end)


def _write_answers(config: SelfDistillConfig, folder: Path, end: End) -> Generator[Progress, None, None]:
    """Write the answers that are missing; the last record's ``folder`` is theirs."""
    accelerator = Accelerator()
    if accelerator.is_main_process:
        model = load_frozen(config, accelerator.device)
        writer = Writer(config, model, load_tokenizer(base_folder(config.model)), folder)
        started, tokens, step = time.perf_counter(), 0, writer.done
        for new in writer.write():
            tokens += new
            whole = writer.done > step
            step = writer.done
            rate = tokens / (time.perf_counter() - started)
            held = time.perf_counter()
            yield Progress("answers", step, writer.batches, tokens, rate)
            started += time.perf_counter() - held  # the reader's time is not the writing's
            if whole and end():
                break
        del writer, model  # the recipe loads the base its own way
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    accelerator.wait_for_everyone()
    if not any(folder.glob("*.jsonl")):
        raise MedusaError(f"the base wrote nothing into {folder}: check that it writes text at all")
    yield Progress("answers", 1, 1, 0, 0.0, folder=folder)
