"""What the charts of a run count, in one pass over its steps: a long run is read window by window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from medusa_core.trace.replay.colours import PHASES

MAX_RANKS = 10
MOST_BARS = 400  # bars of a chart over the steps: more are neither seen nor quickly sent


@dataclass(frozen=True)
class DepthCount:
    """How the guesses of one depth, which Medusa's heads share out, fared over a run."""

    depth: int
    offered: int  # steps whose tree had a node at this depth
    reached: int  # steps whose accepted path got this deep


@dataclass(frozen=True)
class RankCount:
    """How the guesses of one rank at one depth fared over a run."""

    depth: int
    rank: int  # the last one that is shown stands for those behind it as well
    judged: int  # nodes whose parent was accepted, so that they could be
    accepted: int  # at most one a step, since a path has one node of each depth


@dataclass
class RunCounts:
    """Of a run's steps, one after another: number, tokens kept and milliseconds; and of its guesses."""

    drafter: str = ""
    numbers: list[int] = field(default_factory=list)  # from 1, as the scrubber of the view counts
    kept: list[int] = field(default_factory=list)
    ms: list[dict[str, float]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)  # names of the depths
    depths: list[DepthCount] = field(default_factory=list)
    ranks: list[RankCount] = field(default_factory=list)

    @classmethod
    def of(cls, run: dict[str, Any] | RunCounts) -> RunCounts:
        """The counts of a RunTrace; counts that are made already come back as they are."""
        if isinstance(run, RunCounts):
            return run
        counts = cls(run.get("config", {}).get("drafter", {}).get("name", ""))
        guesses = _Guesses(counts.names)
        for step in run.get("steps", []):
            counts.numbers.append(step["index"] + 1)
            counts.kept.append(len(step["emitted"]))
            counts.ms.append(step["ms"])
            guesses.add(step)
        counts.depths, counts.ranks = guesses.depths(), guesses.ranks()
        return counts

    @property
    def steps(self) -> int:
        """How many there were."""
        return len(self.numbers)

    @property
    def together(self) -> int:
        """Steps that one bar stands for."""
        return -(-self.steps // MOST_BARS) or 1


class _Guesses:
    """Counts the nodes of each depth and rank."""

    def __init__(self, names: dict[int, str]) -> None:
        self._names = names
        self._offered: Counter[int] = Counter()
        self._reached: Counter[int] = Counter()
        self._judged: Counter[tuple[int, int]] = Counter()
        self._accepted: Counter[tuple[int, int]] = Counter()

    def add(self, step: dict[str, Any]) -> None:
        path, depths = set(step["path"]), set()
        for node in step["nodes"]:
            depth, head = node["depth"], node["origin"]["head"]
            self._names.setdefault(depth, f"depth {depth}" if head is None else f"head {head}")
            if depth == 0:
                continue
            depths.add(depth)
            key = (depth, min(node["origin"]["rank"] or 0, MAX_RANKS - 1))
            self._judged[key] += node["parent"] in path
            self._accepted[key] += node["id"] in path
        self._offered.update(depths)
        self._reached.update(depth for depth in depths if depth < len(step["path"]))

    def depths(self) -> list[DepthCount]:
        return [
            DepthCount(depth, self._offered[depth], self._reached[depth]) for depth in sorted(self._offered)
        ]

    def ranks(self) -> list[RankCount]:
        return [RankCount(*key, self._judged[key], self._accepted[key]) for key in sorted(self._judged)]


def phase_columns(milliseconds: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """Milliseconds of each phase, one column a phase; `other` is what the total has over the named phases."""
    named = PHASES[:-1]
    columns = {phase: [float(ms.get(phase) or 0.0) for ms in milliseconds] for phase in named}
    totals = [float(ms.get("total") or 0.0) for ms in milliseconds]
    columns["other"] = [
        max(0.0, total - sum(columns[phase][i] for phase in named)) for i, total in enumerate(totals)
    ]
    return columns


def means(values: Sequence[float], together: int) -> list[float]:
    """The mean of each ``together`` values, of what is left over at the end as well."""
    if together == 1:
        return list(values)
    return [fmean(values[first : first + together]) for first in range(0, len(values), together)]
