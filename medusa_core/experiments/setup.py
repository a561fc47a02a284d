"""What every experiment is given: the loaded engine, prompts by kind of text, rounds; and what it returns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.engine import Engine, EngineInfo
from medusa_core.evaluation.prompts import places_of
from medusa_core.evaluation.turns import MethodLog, Runner, measure_run, take_turns
from medusa_core.experiments.record import Row
from medusa_core.experiments.rows import make_row
from medusa_core.experiments.settings import PLAIN, RunSettings

if TYPE_CHECKING:
    from medusa_core.training.loop import Progress


@dataclass(frozen=True)
class Case:
    """A run that is compared with others: its engine, its settings, and what its row says of it."""

    label: str
    engine: Engine
    changes: Mapping[str, Any]  # settings of the run
    tree_nodes: int = 1
    series: str = ""  # default: the label
    x: float | None = None
    expected: float | None = None

    @classmethod
    def plain(cls, engine: Engine, **more: Any) -> Case:
        """Plain decoding."""
        return cls(PLAIN, engine, {"method": "none"}, **more)


@dataclass(frozen=True)
class Setup:
    """The common ground of a measurement. ``load`` is how the engine was loaded, for variants of it.

    ``watch`` runs a training to its end, and shows how it goes; it returns the last record.
    """

    engine: Engine
    load: LoadConfig
    prompts: dict[str, list[list[int]]]  # token ids by kind of text
    run: RunSettings
    data_root: Path = Path()
    watch: Callable[[Generator[Progress, None, None]], Progress] = lambda records: list(records)[-1]

    def files(self, names: str) -> list[Path]:
        """Files of a comma-separated setting, relative to the data root."""
        return [self.data_root / name.strip() for name in names.split(",") if name.strip()]

    @property
    def all_prompts(self) -> list[list[int]]:
        """The prompts of all kinds, one after the other."""
        return [prompt for prompts in self.prompts.values() for prompt in prompts]

    def places(self) -> dict[str, range]:
        """Where the prompts of each kind stand in ``all_prompts``."""
        return places_of(self.prompts)

    def config(self, **changes: object) -> GenerationConfig:
        """Generation settings of a run: greedy Medusa on the default tree unless changed."""
        return GenerationConfig(max_new_tokens=self.run.max_new_tokens).changed(**changes)

    def runner(self, engine: Engine, **changes: Any) -> Runner:
        """A timed run on an engine."""
        config = self.config(**changes)
        return lambda prompt: measure_run(engine, prompt, config)

    def interleave(self, runners: Mapping[str, Runner], rounds: int | None = None) -> dict[str, MethodLog]:
        """Interleaved measurements on all prompts, with a progress bar on standard error."""
        rounds = rounds or self.run.rounds
        total = len(runners) * len(self.all_prompts) * rounds
        with tqdm(total=total, unit="run", file=sys.stderr, dynamic_ncols=True) as bar:
            captured = self.engine.target.choice.captured
            for turn in take_turns(runners, self.all_prompts, rounds, captured=captured):
                bar.set_postfix_str(turn.name, refresh=False)
                bar.update()
        return dict(turn.logs)

    def compare(self, cases: Sequence[Case]) -> tuple[list[Row], dict[str, MethodLog]]:
        """Run the cases in turns; a row of each, compared with the first case, and the logs by label."""
        logs = self.interleave({case.label: self.runner(case.engine, **case.changes) for case in cases})
        base = logs[cases[0].label]
        rows = [
            make_row(
                logs[case.label], base, series=case.series or case.label, label=case.label, x=case.x,
                tree_nodes=case.tree_nodes, expected=case.expected,
            )
            for case in cases
        ]  # fmt: skip
        return rows, logs


@dataclass(frozen=True)
class Findings:
    """What an experiment found; ``quality`` replaces the module's QUALITY where the settings decide it."""

    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    quality: str | None = None
    info: EngineInfo | None = None  # the measured engine where it is not the setup's alone
