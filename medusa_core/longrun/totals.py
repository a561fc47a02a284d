"""What a long run has made so far, over all processes that worked on it, and the paper's acceptance rate.

TokenSwift's α (arXiv 2502.18890, §4.1) is the drafted tokens that were accepted over those drafted in a row,
Σ aᵢ / ((γ + 1) · steps), with γ heads and the model's own guess before theirs. The root is no draft: it
counts on neither side. γ + 1 is the depth of a step's tree here, so that every drafter has an α. Plain
decoding drafts nothing and has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from medusa_core.decoding import Step
from medusa_core.engine.summary import PHASES

MOST = 2**53  # largest sum: beyond it JSON numbers are not exact


@dataclass
class Totals:
    """Sums over steps. ``seconds`` adds up the steps, ``reading`` what was read between them."""

    tokens: int = 0
    steps: int = 0
    kept: int = 0  # tokens of accepted paths, roots included
    offered: int = 0  # tokens that paths to the deepest nodes would have had
    seconds: float = 0.0
    reading: float = 0.0
    phase_ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    def add(self, step: Step, reading: float = 0.0) -> None:
        """Count a step, before which the text was read for so many seconds."""
        self.tokens += len(step.emitted)
        self.steps += 1
        self.kept += len(step.verdict.path)
        self.offered += max(step.tree.depths) + 1
        self.reading += reading
        for phase, milliseconds in vars(step.ms).items():
            self.phase_ms[phase] += milliseconds
        self.seconds = self.phase_ms["total"] / 1000

    @property
    def alpha(self) -> float | None:
        """The acceptance rate, None where nothing was drafted."""
        # Both sums count the root of each step, as folders of earlier versions hold them.
        drafted = self.offered - self.steps
        return (self.kept - self.steps) / drafted if drafted > 0 else None

    @property
    def tokens_per_step(self) -> float:
        """0 before the first step."""
        return self.tokens / self.steps if self.steps else 0.0

    @property
    def tokens_per_second(self) -> float:
        """By the time inside steps, 0 before the first one."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def since(self, earlier: Totals) -> Totals:
        """The sums of the steps after ``earlier``."""
        now, before = asdict(self), asdict(earlier)
        phases = {phase: value - before["phase_ms"][phase] for phase, value in now.pop("phase_ms").items()}
        return Totals(**{name: value - before[name] for name, value in now.items()}, phase_ms=phases)

    def mean_ms(self, phase: str) -> float:
        """Milliseconds of a step in a phase, 0 before the first one."""
        return self.phase_ms[phase] / self.steps if self.steps else 0.0

    def copy(self) -> Totals:
        """The sums as they are now."""
        return Totals(**asdict(self))

    def rates(self) -> dict[str, Any]:
        """What a reader wants to know of these steps, as JSON."""
        return {
            "tokens_per_step": round(self.tokens_per_step, 4),
            "tokens_per_second": round(self.tokens_per_second, 3),
            "alpha": None if self.alpha is None else round(self.alpha, 4),
            "step_ms": {phase: round(self.mean_ms(phase), 4) for phase in PHASES},
        }

    def sums(self) -> dict[str, Any]:
        """All of it as JSON, read by ``of``."""
        return asdict(self)

    @classmethod
    def of(cls, sums: Mapping[str, Any]) -> Totals:
        """Read what ``sums`` gave. Raises ValueError for anything else."""
        phases, kinds = sums.get("phase_ms"), {"int": (int,), "float": (int, float)}
        plain = {item.name: kinds[str(item.type)] for item in fields(cls) if item.name != "phase_ms"}
        if not isinstance(phases, dict) or sums.keys() != {*plain, "phase_ms"} or set(phases) != set(PHASES):
            raise ValueError("these are no sums of a run")
        if not all(type(sums[name]) in kind for name, kind in plain.items()):
            raise ValueError("a sum is no number")
        if not all(type(value) in (int, float) for value in phases.values()):
            raise ValueError("a phase has no number")
        numbers = [*(sums[name] for name in plain), *phases.values()]
        if not all(0 <= value <= MOST for value in numbers):  # a NaN fails this too
            raise ValueError(f"a sum is not between 0 and {MOST:.0e}")
        return cls(**sums)


def together(all_of: Iterable[Totals]) -> Totals:
    """The sums of several runs."""
    result = Totals()
    for one in all_of:
        for name, value in asdict(one).items():
            if name != "phase_ms":
                setattr(result, name, getattr(result, name) + value)
        for phase, value in one.phase_ms.items():
            result.phase_ms[phase] += value
    return result
