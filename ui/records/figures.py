"""The speeds that all tabs of a page show: stored with the project, or measured here by Speed or Methods."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from medusa_core.config import ENGINE_VERSION, LoadConfig
from medusa_core.drafters import drafter_names
from medusa_core.errors import MedusaError
from medusa_core.experiments import store
from medusa_core.experiments.record import (
    SCHEMA_VERSION,
    ExperimentRecord,
    MachineRecord,
    Mean,
    ModelRecord,
    Row,
    Spread,
    as_json,
    paper_facts,
)
from medusa_core.experiments.remarks import has_older_weights, shipped_weights
from medusa_core.experiments.spec_bench import ALL, TITLE
from ui.records.examples import ASSETS
from ui.records.settings import Selection
from ui.records.words import Words, amount, joined, sentences

Key = tuple[str, LoadConfig | None]  # the visitor's own engine and the model, as in `Selection`
EMBEDDED = "embedded"  # name of the repository's model in records
SMALL_MODEL = Words("A model of 29 MB in a processor’s cache is not an 8B model on a GPU.")


def key_of(selection: Selection) -> Key:
    return selection.engine, selection.model


@dataclass(frozen=True, eq=False)  # by identity, since gradio hashes what a state holds
class Figures:
    """One record with its source. ``at`` is when it was measured on this machine, empty for a stored one.

    ``bench`` is the record of the Speed tab's measurement, which also says what limits a step; ``options``
    are the settings and tree of each method's drafters where they are not those of the embedded model.
    """

    record: ExperimentRecord
    at: str = ""  # ISO 8601 to the minute
    bench: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] | None = None
    key: Key = ("", None)

    @property
    def is_of_speed(self) -> bool:
        """Whether Speed measured them: Methods keeps no record of ``bench``."""
        return bool(self.bench)

    def as_data(self) -> dict[str, Any]:
        """The kept part of a measurement, for JSON."""
        return {"record": as_json(self.record), "at": self.at, "bench": self.bench}

    @classmethod
    def from_data(cls, kept: Any, key: Key) -> Figures | None:
        """The figures in kept data; None where it holds none."""
        try:
            record = ExperimentRecord.model_validate(kept["record"])
            return cls(record, str(kept["at"]), dict(kept["bench"]), key=key)
        except (ValidationError, KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True, eq=False)
class PageFigures:
    """The figures that one page knows: the stored record, and measurements by their model.

    For each model the newest measurement by Speed and by Methods is kept, the newer one first.
    """

    stored: Figures | None = None
    measured: Mapping[Key, Sequence[Figures]] = field(default_factory=dict)
    key: Key = ("", None)  # the model that the visitor has chosen

    @property
    def of_model(self) -> Sequence[Figures]:
        """What was measured with the chosen model."""
        return self.measured.get(self.key, ())

    @property
    def own(self) -> Figures | None:
        """The newest measurement of the chosen model."""
        return next(iter(self.of_model), None)

    @property
    def known(self) -> Sequence[Figures]:
        """What may be shown, the best first: measurements of the chosen model, then the stored record."""
        return (*self.of_model, *([self.stored] if self.stored is not None else []))

    @property
    def of_speed(self) -> Figures | None:
        """Figures that say what limits a step, where Speed has measured them."""
        return next((one for one in self.of_model if one.is_of_speed), next(iter(self.known), None))

    @property
    def whole(self) -> Figures | None:
        """Figures that cover all drafters of the stored record; Speed measures only a few."""
        return next((one for one in self.known if self.is_whole(one)), None)

    @property
    def of_methods(self) -> Figures | None:
        """Figures of all methods: Speed measures only a few, so the model's stored ones stay."""
        own = self.own
        others = own if own is not None and own.record.model.base != EMBEDDED else self.whole
        return next((one for one in self.of_model if not one.is_of_speed), others)

    def is_whole(self, figures: Figures) -> bool:
        """Whether every drafter of the stored record was measured."""
        stored = self.stored.record.rows if self.stored is not None else ()
        wanted = {row.series for row in stored}.intersection(drafter_names())
        return wanted <= {row.series for row in figures.record.rows}

    def of_base(self, base: str) -> Iterator[Figures]:
        """The figures of a model without the visitor's own heads, those measured on this machine first."""
        for (engine, _), measured in self.measured.items():
            yield from (one for one in measured if not engine and one.record.model.base == base)
        if self.stored is not None:
            yield self.stored

    def having(self, figures: Figures) -> PageFigures:
        """A copy with a new measurement in place of the old one of the same tab."""
        known = self.measured.get(figures.key, ())
        others = [one for one in known if one.is_of_speed != figures.is_of_speed]
        return replace(self, measured={**self.measured, figures.key: (figures, *others)})


def stored_figures(assets: Path) -> Figures | None:
    """The record that the project ships; a broken one is logged and left out."""
    try:
        record = store.record(store.HEADLINE, folder=assets / store.FOLDER)
    except MedusaError as error:
        logging.getLogger(__name__).warning("warning: the stored speeds are left out: %s", error)
        return None
    return None if record is None else Figures(record)


def stored_page(assets: Path = ASSETS) -> PageFigures:
    """What a page knows before this machine has been measured."""
    return PageFigures(stored_figures(assets))


def measured_figures(
    bench: Mapping[str, Any],
    selection: Selection,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Figures:
    """What was just measured on this machine, from a record as ``bench --json`` prints it."""
    now = datetime.datetime.now()
    settings = bench["settings"]
    model = bench["model"] | {"weights": shipped_weights(bench["model"]["base"])}
    record = ExperimentRecord(
        schema_version=SCHEMA_VERSION,
        name=store.HEADLINE,
        title=TITLE,
        command="",
        date=now.date().isoformat(),
        machine=MachineRecord.model_validate(bench["machine"], extra="ignore"),
        model=ModelRecord.model_validate(model, extra="ignore"),
        settings={name: settings[name] for name in ("runs", "max_new_tokens")},
        quality=None,
        rows=[_row(name, one, settings["prompts"]) for name, one in bench["methods"].items()],
        paper=paper_facts(store.HEADLINE),
        notes=[],
        engine=ENGINE_VERSION,
    )
    whole = bench if options is None else {}
    return Figures(record, now.isoformat(" ", "minutes"), whole, options, key_of(selection))


def _row(name: str, figures: Mapping[str, Any], prompts: int) -> Row:
    same = figures.get("identical_outputs")
    return Row(
        series=name,
        label=ALL,
        prompts=prompts,
        new_tokens=figures["new_tokens"],
        tree_nodes=figures["tree_nodes"],
        tokens_per_step=Mean(mean=figures["tokens_per_step"], standard_error=None),
        tokens_per_second=_spread(figures, "tokens_per_second"),
        step_ms=figures["step_ms"],
        phase_ms=figures["phase_ms"],
        overhead=figures["overhead"],
        speedup=_spread(figures, "speedup"),
        same_texts=int(same.split()[0]) if same else None,
    )


def _spread(figures: Mapping[str, Any], key: str) -> Spread:
    low, high = figures[f"{key}_range"]
    return Spread(median=figures[key], low=low, high=high)


def source_words(figures: Figures) -> Words:
    """Where and when the speeds of the tabs were measured, and how far they apply."""
    return sentences(measured_words(figures), small_words(figures.record.model.base))


def measured_words(figures: Figures) -> Words:
    """Where and when the speeds of the tabs were measured."""
    record = figures.record
    if not figures.at:
        return origin_words(record)
    model, machine = record.model, machine_words(record.machine.processor, record.machine.threads)
    when = time_words(figures)
    return Words("Measured on this machine, {0}: {1} in {2} on {3}.", when, model.name, model.dtype, machine)


def time_words(figures: Figures) -> str:
    """When speeds were measured on this machine."""
    day, _, time = figures.at.partition(" ")
    return Words("today at {0}", time) if day == datetime.date.today().isoformat() else figures.at


def small_words(base: str | None) -> str:
    """How far the embedded model's speeds apply; empty for any other model."""
    return SMALL_MODEL if base == EMBEDDED else ""


def origin_words(record: ExperimentRecord) -> Words:
    """Model, machine and date of a stored experiment, for a tab that shows it at first."""
    model, machine = record.model, record.machine
    recorded = recorded_words(model.name, model.dtype, machine.processor, machine.threads, record.date)
    older = Words("An older engine was measured.") if record.is_outdated else ""
    weights = Words("Its weights have been replaced since.") if has_older_weights(record) else ""
    return sentences(recorded, older, weights)


def recorded_words(model: str, dtype: str, processor: str, threads: int, date: str) -> Words:
    """Model, machine and date of something recorded."""
    machine = machine_words(processor, threads)
    return Words("Recorded, not measured here: {0} in {1} on {2}, {3}.", model, dtype, machine, date)


def machine_words(processor: str, threads: int) -> Words:
    """A processor with the number of its threads."""
    return joined(", ", [processor, amount(threads, "thread")])
