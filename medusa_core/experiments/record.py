"""The record of an experiment: what was measured, with what, on which machine, and the paper's own figures.

A record is written by ``reproduce`` and read by the page; it holds everything a reader needs to judge a
number or to measure it again. The format is versioned by ``schema_version``.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from medusa_core.config import ENGINE_VERSION
from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import read_bytes
from medusa_core.words import bytes_words

SCHEMA_VERSION: Final = 1


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=(), allow_inf_nan=False)


class Mean(_Record):
    """A mean with its standard error over prompts, which one prompt alone does not have."""

    mean: float
    standard_error: float | None

    def words(self, digits: int = 2, sign: str = "") -> str:
        """The mean with its error, as it stands in tables."""
        error = f" ± {self.standard_error:.{digits}f}" if self.standard_error else ""
        return f"{self.mean:{sign}.{digits}f}{error}"


class Spread(_Record):
    """The median over rounds, with the lowest and the highest round."""

    median: float
    low: float
    high: float

    def words(self, digits: int = 2) -> str:
        """The median with its range, where it has one, as it stands in tables."""
        middle, low, high = (f"{value:,.{digits}f}" for value in (self.median, self.low, self.high))
        return middle if low == high else f"{middle} ({low} to {high})"


class Row(_Record):
    """One measured point: a kind of text, a tree, a setting or a trained variant.

    ``x`` is the place on the chart's axis where there is one (nodes of figure 4, ε of figure 5).
    ``tokens_per_step`` is the paper's acceleration rate: all tokens over all steps.
    """

    series: str
    label: str
    x: float | None = None
    prompts: int
    new_tokens: int
    tree_nodes: int | None  # the root included; None where there is no tree of ours
    tokens_per_step: Mean
    expected_tokens_per_step: float | None = None
    tokens_per_second: Spread
    step_ms: float
    phase_ms: dict[str, float]
    overhead: float | None = None
    speedup: Spread | None = None  # over plain decoding, as evaluation.speedup defines it
    over_generate: Spread | None = None  # over transformers' generate
    same_texts: int | None = None  # prompts whose text equals plain decoding's
    quality: Mean | None = None
    quality_change: Mean | None = None  # against the untouched model, text by text
    right_sums: Mean | None = None  # share of the sums in the texts that are right
    alpha: float | None = None  # of long texts: drafted tokens kept over those of the deepest paths
    cache_bytes: int | None = None  # of long texts: the key-value cache at this length
    distinct_n: list[float] | None = None  # of long texts: share of different pieces of 1 to 4 tokens
    right_by_step: list[float] | None = None  # share of right first guesses, by step
    distinct: float | None = None  # share of different three-token pieces among all, 1 = nothing repeats

    @property
    def name(self) -> str:
        """The row's name where its series is not shown."""
        return self.label if self.series in self.label else f"{self.label}, {self.series}"


class PaperRow(_Record):
    """A figure the paper prints; None where it prints none."""

    series: str
    label: str
    speedup: float | None = None
    tokens_per_step: float | None = None
    overhead: float | None = None
    quality: float | None = None
    alpha: float | None = None
    x: float | None = None  # the place on the chart's axis where there is one


class PaperFacts(_Record):
    """The paper's own figures; where it shows a curve without numbers, what it says of it in words."""

    reference: str
    setting: str
    quality: str | None
    rows: list[PaperRow]
    claims: list[str]


class MachineRecord(_Record):
    """The machine that the figures were measured on. Records older than a field have its default."""

    processor: str  # the GPU where one computed
    gpu: str | None = None
    cores: int = 0
    instructions: str = ""  # one of hardware.processor.INSTRUCTION_SETS
    limited_to: str = ""  # a narrower one that MEDUSA_ISA allowed alone
    threads: int
    torch: str
    transformers: str = ""
    python: str
    other_cores_busy: float | None = None  # by other programs meanwhile


class ModelRecord(_Record):
    """The model that was loaded."""

    name: str
    base: str
    heads: str | None
    dtype: str
    device: str
    parameters: int
    forward: str = ""  # how a step is computed, as the page's badge says it
    weights: str = ""  # the embedded model's set of weights: ``remarks.shipped_weights``


class ExperimentRecord(_Record):
    """A whole experiment. ``quality`` says what the rows' quality means, None where none is measured."""

    schema_version: Literal[1]
    name: str
    title: str
    command: str
    date: str  # ISO 8601, the day alone
    machine: MachineRecord
    model: ModelRecord
    settings: dict[str, str | int | float | bool]
    quality: str | None
    rows: list[Row]
    paper: PaperFacts
    notes: list[str]
    simulated: bool = False  # computed from formulas: nothing was run
    engine: int = 0  # config.ENGINE_VERSION of the engine that was measured, 0 where nobody noted it

    @property
    def is_outdated(self) -> bool:
        """Whether an older engine was measured, which made its steps in another way."""
        return not self.simulated and self.engine < ENGINE_VERSION

    @model_validator(mode="after")
    def _has_rows(self) -> ExperimentRecord:
        if not self.rows:
            raise ValueError("the record has no rows")
        if self.quality is None and any(row.quality for row in self.rows):
            raise ValueError("rows have a quality, and the record does not say what it means")
        return self


def paper_facts(name: str) -> PaperFacts:
    """The paper's figures for an experiment. Raises KeyError when the data file has none."""
    text = resources.files(__package__).joinpath("paper.json").read_text(encoding="utf-8")
    return PaperFacts.model_validate(json.loads(text)[name])


def read_record(path: Path) -> ExperimentRecord:
    """Read and check a stored record. Raises MedusaError that says where it is wrong."""
    try:
        return ExperimentRecord.model_validate_json(read_bytes(path))
    except (OSError, ValidationError) as error:
        raise MedusaError(
            f"cannot read the experiment record {path} ({reason_of(error)}): "
            "restore it with git checkout, or measure it again"
        ) from error


def write_record(record: ExperimentRecord, path: Path) -> None:
    """Write a record as indented JSON, its folder made if need be. Raises MedusaError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(as_json(record), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise MedusaError(f"cannot write the experiment {path} ({error.strerror}): name another") from error


def as_json(record: ExperimentRecord) -> dict[str, Any]:
    """The record as plain data, rows without the fields they do not have."""
    rows = [row.model_dump(exclude_defaults=True) for row in record.rows]
    return record.model_dump() | {"rows": rows}


def row_cells(row: Row) -> dict[str, str]:
    """All figures of a row in words by the names of their columns, empty where it has none."""
    return {
        "setting": row.name,
        "nodes": nodes_words(row),
        "tokens per step": row.tokens_per_step.words(),
        "estimate": number_words(row.expected_tokens_per_step),
        "tokens/s": row.tokens_per_second.words(0),
        "ms a step": number_words(row.step_ms),
        "α": number_words(row.alpha),
        "cache": "" if row.cache_bytes is None else bytes_words(row.cache_bytes),
        "overhead": number_words(row.overhead),
        "speedup": spread_words(row.speedup),
        "over generate": spread_words(row.over_generate),
        "quality": row.quality.words(3) if row.quality else "",
        "change": row.quality_change.words(3, "+") if row.quality_change else "",
        "right sums": row.right_sums.words() if row.right_sums else "",
        "Distinct-1 to 4": " · ".join(f"{share:.2f}" for share in row.distinct_n or ()),
        "unrepeated": number_words(row.distinct),
    }


def nodes_words(row: Row) -> str:
    """How many nodes its tree has, empty where it has none of one size."""
    return "" if row.tree_nodes is None else str(row.tree_nodes)


def number_words(value: float | None) -> str:
    """The number with two decimals, empty where there is none."""
    return "" if value is None else f"{value:.2f}"


def spread_words(value: Spread | None) -> str:
    """The median with its range, empty where there is none."""
    return "" if value is None else value.words()
