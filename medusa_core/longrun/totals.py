"""What a long run has made so far, over all processes that worked on it, and the paper's acceptance rate.

TokenSwift's α (arXiv 2502.18890, §4.1) is the drafted tokens that were accepted over those drafted in a row,
Σ aᵢ / ((γ + 1) · steps), with γ heads and the model's own guess before theirs. The root is no draft: it
counts on neither side. γ + 1 is the depth of a step's tree here, so that every drafter has an α. Plain
decoding drafts nothing and has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import reduce
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from medusa_core.decoding import Step
from medusa_core.engine.summary import TIMES

MOST = 2**53  # largest sum: beyond it JSON numbers are not exact


def _of_all_phases(found: dict[str, float]) -> dict[str, float]:
    if found.keys() != set(TIMES):
        raise ValueError("a phase is missing")
    return found


Count = Annotated[int, Field(ge=0, le=MOST)]
Amount = Annotated[float, Field(ge=0, le=MOST)]


@dataclass
class Totals:
    """Sums over steps. ``seconds`` adds up the steps, ``reading`` what was read between them."""

    tokens: Count = 0
    steps: Count = 0
    kept: Count = 0  # tokens of accepted paths, roots included
    offered: Count = 0  # tokens that paths to the deepest nodes would have had
    seconds: Amount = 0.0
    reading: Amount = 0.0
    phase_ms: Annotated[dict[str, Amount], AfterValidator(_of_all_phases)] = field(
        default_factory=lambda: dict.fromkeys(TIMES, 0.0)
    )

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
        # Both sums count the root of each step.
        drafted = self.offered - self.steps
        return (self.kept - self.steps) / drafted if drafted > 0 else None

    @property
    def tokens_per_step(self) -> float:
        """New tokens over steps, 0 before the first."""
        return self.tokens / self.steps if self.steps else 0.0

    @property
    def tokens_per_second(self) -> float:
        """New tokens over the time inside steps, 0 before the first."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def since(self, earlier: Totals) -> Totals:
        """The sums of the steps after ``earlier``."""
        return self._plus(earlier, -1)

    def _plus(self, other: Totals, times: int = 1) -> Totals:
        now, more = vars(self), vars(other)
        phases = {name: value + times * other.phase_ms[name] for name, value in self.phase_ms.items()}
        plain = {name: now[name] + times * more[name] for name in now if name != "phase_ms"}
        return Totals(**plain, phase_ms=phases)

    def mean_ms(self, phase: str) -> float:
        """Milliseconds of a step in a phase, 0 before the first one."""
        return self.phase_ms[phase] / self.steps if self.steps else 0.0

    def copy(self) -> Totals:
        """The sums as they are now."""
        return deepcopy(self)

    def rates(self) -> dict[str, Any]:
        """What a reader wants to know of these steps, as JSON."""
        return {
            "tokens_per_step": round(self.tokens_per_step, 4),
            "tokens_per_second": round(self.tokens_per_second, 3),
            "alpha": None if self.alpha is None else round(self.alpha, 4),
            "step_ms": {phase: round(self.mean_ms(phase), 4) for phase in TIMES},
        }


def together(all_of: Iterable[Totals]) -> Totals:
    """The sums of several runs."""
    return reduce(Totals._plus, all_of, Totals())
