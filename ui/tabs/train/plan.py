"""What a visitor asks of a training run: the settings, checked, as the recipes' own configurations.

The visitor's text becomes files in the run's folder, which the app made; a visitor names no path. Paper §2.2.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from medusa_core.errors import MedusaError
from medusa_core.training.config import DirectConfig, Medusa1Config, Medusa2Config, SelfDistillConfig
from medusa_core.training.examples import read_examples
from medusa_core.training.fit.timed import Job
from ui.records.examples import example_texts

OWN, EXAMPLES, PASTE, FILE = "own", "examples", "paste", "file"
RECIPES: dict[str, type[Medusa1Config]] = {
    "medusa1": Medusa1Config, "medusa2": Medusa2Config, "direct": DirectConfig,
}  # fmt: skip
SOURCES = {  # in a card's words
    OWN: "text that the model made up",
    EXAMPLES: "the examples, continued by the model",
    PASTE: "pasted text",
    FILE: "a file of text",
}
NAMES = {"medusa1": "Medusa-1", "medusa2": "Medusa-2", "direct": "Direct"}
MOST_MINUTES = 30  # for one run: every other training waits for it
MOST_STEPS = 20_000
MOST_HEADS = 8
MOST_CHARACTERS = 200_000  # of pasted text
MOST_BYTES = 5_000_000  # of an uploaded file
HELP = {field.name: field.metadata["help"] for field in fields(Medusa2Config)}  # help text by setting
FILE_KINDS = (".txt", ".jsonl")
WINDOW = 256  # tokens of a training window: a page's text is short
BATCH_WINDOWS = 8
ANSWER_BATCH = 16  # small, so that Stop is heard within a second or two
MANY = 1_000_000  # answers or steps: the clock ends them


@dataclass(frozen=True)
class Plan:
    """The settings of one run as the page gives them. ``steps`` 0: as many as fit into the minutes."""

    recipe: str
    source: str
    text: str = ""
    upload: str = ""  # where gradio put the visitor's file
    minutes: float = 5.0
    steps: int = 0
    heads: int = 5
    learning_rate: float = 2e-3
    head_decay: float = 0.8
    head_weight: float = 0.2
    teacher: str = "self"

    def check(self) -> None:
        """Raise MedusaError for what the recipes' own checks do not cover: the page's limits."""
        if self.recipe not in RECIPES:
            raise MedusaError(f"the recipe is {self.recipe!r}: use one of {', '.join(RECIPES)}")
        if self.source not in SOURCES:
            raise MedusaError("there is no text to learn from: choose one of the kinds")
        _check_range("training time in minutes", self.minutes, 0, MOST_MINUTES)
        _check_range("number of steps", self.steps, 0, MOST_STEPS)
        _check_range("number of heads", self.heads, 1, MOST_HEADS)
        _check_range("learning rate", self.learning_rate, 1e-6, 1.0)
        if self.source == PASTE and not self.text.strip():
            raise MedusaError("there is no text: paste some, or let the model write its own")
        if self.source == PASTE and len(self.text) > MOST_CHARACTERS:
            raise MedusaError(
                f"the text has {len(self.text)} characters, the page takes {MOST_CHARACTERS}: "
                "upload it as a file"
            )
        if self.source == FILE and not self.upload:
            raise MedusaError(
                "there is no file: upload a .txt or .jsonl file, or let the model write its own"
            )

    @property
    def writes(self) -> bool:
        """Whether the model writes the text itself."""
        return self.source in (OWN, EXAMPLES)

    def stages(self) -> list[tuple[str, type[Medusa1Config]]]:
        """Name and settings of what is trained, one after the other."""
        if self.recipe == "medusa2":
            return [("heads alone", Medusa1Config), ("heads and model together", Medusa2Config)]
        return [("heads alone" if self.recipe == "medusa1" else "all at once", RECIPES[self.recipe])]


def make_job(plan: Plan, model: str, name: str, folder: Path, assets: Path, context: int) -> Job:
    """The run in ``folder`` for the model in the folder ``model``, called ``name``.

    Raises MedusaError for text that cannot be learned from.
    """
    text = writing_config(plan, model, folder, assets, context) if plan.writes else None
    data = folder / "answers" if text else save_text(plan, folder / "data")
    stages = [
        (stage, stage_config(plan, settings, model, name, data, context)) for stage, settings in plan.stages()
    ]
    return Job(folder, 60 * plan.minutes, stages, text, plan.steps)


def weight_for(recipe: str, teacher: str) -> float:
    """λ0's default: the paper's is smaller where the backbone's own loss, a KL divergence, is also small."""
    settings = SelfDistillConfig if recipe == "medusa2" and teacher == "self" else RECIPES[recipe]
    return float(getattr(settings, "head_weight", 0.0))


def writing_config(plan: Plan, model: str, folder: Path, assets: Path, context: int) -> SelfDistillConfig:
    """Settings with which the model writes text into ``folder / "answers"`` until it is stopped."""
    prompts = ""
    if plan.source == EXAMPLES:
        file = folder / "prompts.jsonl"
        lines = [json.dumps({"text": text}) + "\n" for text in example_texts(assets)]
        file.write_text("".join(lines), encoding="utf-8")
        prompts = str(file)
    return SelfDistillConfig(
        model=model,
        out=str(folder),
        prompts=prompts,
        # Our own empty folder: without a corpus there, the model invents the beginnings.
        data_root=str(folder),
        answers=MANY,
        answer_tokens=max(1, min(SelfDistillConfig.answer_tokens, context // 2)),
        answer_batch=ANSWER_BATCH,
        train="nothing",
    )


def save_text(plan: Plan, folder: Path) -> Path:
    """The visitor's text as a file that the recipes read. Raises MedusaError that names a bad line."""
    folder.mkdir()
    if plan.source == PASTE:
        lines = plan.text.lstrip().startswith("{")
        file = folder / ("your-text.jsonl" if lines else "your-text.txt")
        try:
            file.write_bytes(plan.text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise MedusaError(
                f"the text has half a character (U+{ord(plan.text[error.start]):04X}) at position "
                f"{error.start + 1}: paste it again, or take it out"
            ) from error
    else:
        upload = Path(plan.upload)
        suffix = upload.suffix.lower()
        if suffix not in FILE_KINDS:
            raise MedusaError(f"the file ends in {suffix or 'nothing'!r}: upload {' or '.join(FILE_KINDS)}")
        if upload.stat().st_size > MOST_BYTES:
            raise MedusaError(
                f"the file has {upload.stat().st_size / 1e6:.1f} MB, the page takes {MOST_BYTES / 1e6:.0f}: "
                "upload a part of it"
            )
        file = folder / f"your-file{suffix}"
        shutil.copyfile(upload, file)
    for _ in read_examples(file):  # all of it, so that a bad line is named before anything is loaded
        pass
    return file


def stage_config(
    plan: Plan, settings: type[Medusa1Config], model: str, name: str, data: Path, context: int
) -> Medusa1Config:
    """A stage's settings; its folder and its length are set when it begins."""
    window = min(WINDOW, context)
    own: dict[str, Any] = {
        "model": model,
        "base_name": name,
        "data": str(data),
        "heads": plan.heads,
        "learning_rate": plan.learning_rate,
        "head_decay": plan.head_decay,
        "sequence_length": window,
        "batch_tokens": window * BATCH_WINDOWS,
        "heldout_share": 0.05,
        "heldout_windows": 16,
        "checkpoint_every": MANY,
    }
    if issubclass(settings, Medusa2Config):
        own |= {"head_weight": plan.head_weight}
    if settings is Medusa2Config:
        own |= {"teacher": plan.teacher}
    return settings(**own)


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise MedusaError(f"the {name} is {value}: choose {low:g} to {high:g}")
