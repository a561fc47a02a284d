"""What every experiment is given: the loaded engine, prompts by kind of text, rounds; and what it returns."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.engine import Engine, EngineInfo
from medusa_core.evaluation.prompts import places_of
from medusa_core.evaluation.turns import MethodLog, Runner, measure_run, take_turns
from medusa_core.experiments.record import Row
from medusa_core.experiments.settings import RunSettings
from medusa_core.trees.tree import Topology

if TYPE_CHECKING:
    from medusa_core.training.loop import Progress


def _last(records: Iterable[Progress]) -> Progress:
    return deque(records, maxlen=1).pop()


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
    watch: Callable[[Generator[Progress, None, None]], Progress] = _last

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

    def runner(self, engine: Engine, tree: Topology | None = None, **changes: Any) -> Runner:
        """A timed run on an engine, with another tree than its default one where one is given."""
        config = self.config(**changes, **({} if tree is None else {"tree": tree}))
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

    def require_heads(self) -> Engine:
        """The engine. Raises MedusaError when it has no heads."""
        medusa_draft(self.engine)
        return self.engine


@dataclass(frozen=True)
class Findings:
    """What an experiment found; ``quality`` replaces the module's QUALITY where the settings decide it."""

    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    quality: str | None = None
    info: EngineInfo | None = None  # the measured engine where it is not the setup's alone
