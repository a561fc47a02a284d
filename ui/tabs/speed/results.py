"""What the Speed tab shows and says about records of ``bench``: what limits a step, and on which machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from medusa_core.config import LoadConfig
from medusa_core.drafters import title_of
from medusa_core.evaluation.bottleneck import (
    ARITHMETIC,
    DRAFTING,
    FORWARD,
    HOST,
    MEMORY,
    OVERHEAD,
    Bottleneck,
    bottleneck,
)
from medusa_core.evaluation.other_work import is_busy
from medusa_core.experiments.record import Row
from medusa_core.experiments.spec_bench import STEP as OF_NODES
from medusa_core.experiments.spec_bench import of_all_kinds
from medusa_core.model.forward import BY_TRANSFORMERS, CAPTURED
from medusa_core.words import bytes_words, flops_words, rate_words
from ui.figures.charts import phases_of
from ui.figures.method_speeds import speed_cells
from ui.figures.step_speed import StepTime, SweepPoint
from ui.records.figures import Figures, machine_words, measured_figures, measured_words, source_words
from ui.records.lanes import PLAIN_METHOD
from ui.records.settings import Selection
from ui.records.words import Words, sentences
from ui.runs.other_work import busy_words
from ui.runs.speed import NODES, STEP, SpeedUpdate

STORED_METHODS = ("none", "medusa")
UNLIMITED = Words("The least time of a step was not measured there.")
UNKNOWN = Words("Press Measure to learn what limits a step on this machine.")
PART_NAMES = {
    MEMORY: "memory {0}",
    ARITHMETIC: "arithmetic {0}",
    OVERHEAD: "overhead {0}",
    DRAFTING: "drafting {0}",
    HOST: "loop {0}",
    FORWARD: "forward {0}",
}
LIMITS = {  # how the sentence on a step's time ends
    MEMORY: "{2}, so {3} of it is waiting for memory, which fewer bytes would shorten.",
    ARITHMETIC: "{2}, so {3} of it is arithmetic, which only fewer nodes or a narrower dtype would shorten.",
    OVERHEAD: "{2}, but its forward takes {4} ms: the difference, {3} of the step, is overhead.",
    DRAFTING: "the largest part of it, {2} ms or {3}, is making the guesses.",
    HOST: "the largest part of it, {2} ms or {3}, is the loop around the forward: judging, keeping the cache "
    "and writing the text.",
    FORWARD: "the largest part of it, {2} ms or {3}, is the forward, whose least time is not known for this "
    "kind of model.",
}
SMALL_OPERATIONS = Words("transformers’ forward has many small operations, each of which has to be started.")
NEARLY = {  # the sentence on a second part that is nearly as large
    MEMORY: "Waiting for memory takes nearly as long.",
    ARITHMETIC: "Its arithmetic takes nearly as long.",
    OVERHEAD: "Overhead in its forward takes nearly as long.",
    DRAFTING: "Making the guesses takes nearly as long.",
    HOST: "The loop around the forward takes nearly as long.",
    FORWARD: "The forward takes nearly as long.",
}
SWEPT = "swept"  # a record over dtypes
UNEVEN = 1.5  # the fastest round over the slowest, from which the figures are doubtful
DOUBTFUL = (
    "The fastest round was {0} times as fast as the slowest, so these figures are doubtful. Measure again in "
    "a quiet moment."
)
CAPTION = (
    "Medians of the rounds, in brackets the slowest and the fastest; overhead and speedup are over plain "
    "decoding."
)
LEAST = "least ms"  # a column
LEAST_CAPTION = "The least is what a step’s bytes or operations take at this machine’s measured limits."


@dataclass(frozen=True, eq=False)  # by identity, since gradio hashes what a state holds
class Results:
    """The figures of all tabs, and the newest record of each sweep by its name."""

    figures: Figures | None = None
    sweeps: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def with_record(self, update: SpeedUpdate, selection: Selection) -> Results:
        """The results with a new measurement of a part in place of the old one."""
        if update.part == STEP:
            return replace(self, figures=measured_figures(update.record, selection))
        return replace(self, sweeps={**self.sweeps, update.part: update.record})

    def record(self, part: str) -> Mapping[str, Any] | None:
        """What ``bench --json`` prints of a part, where it was measured here."""
        return self.sweeps.get(part) if part != STEP else self._bench or None

    @property
    def _bench(self) -> Mapping[str, Any]:
        return self.figures.bench if self.figures else {}

    def _rows(self) -> list[Row]:
        rows = of_all_kinds(self.figures.record.rows) if self.figures else []
        return [row for row in rows if row.series in STORED_METHODS]

    def step_times(self) -> Sequence[StepTime]:
        """The bars."""
        if self._bench:
            return [_step(*one) for one in self._bench["methods"].items()]
        return [
            StepTime(row.series, row.step_ms, phases_of(row.step_ms, row.phase_ms)) for row in self._rows()
        ]

    def table(self) -> Sequence[dict[str, str]]:
        """The cells below the bars."""
        if self.figures is None or not self._bench:
            return [speed_cells(row) for row in self._rows()]
        methods = self._bench["methods"]
        return [speed_cells(row) | _limit_cells(methods[row.series]) for row in self.figures.record.rows]

    def sentence(self) -> str:
        """What limits a step here; before that is known, how to learn it."""
        if not self._bench:
            return UNKNOWN
        return what_limits(self._bench["methods"], self._bench["model"].get("forward", ""))

    def where(self) -> str:
        """What the bars and the table were measured on."""
        if self.figures is None:
            return ""
        load = other_load_words(self._bench["machine"]) if self._bench else UNLIMITED
        return sentences(source_words(self.figures), load)

    def warning(self) -> str:
        """A warning where other programs were busy, or where the rounds differ widely without any."""
        if self.figures is None or not self._bench:
            return ""
        speeds = [row.tokens_per_second for row in self.figures.record.rows]
        ratio = max(speed.high / speed.low for speed in speeds)
        uneven = Words(DOUBTFUL, f"{ratio:.1f}") if ratio >= UNEVEN else ""
        return busy_words(self._bench["machine"]) or uneven

    def points(self, sweep: str) -> Sequence[SweepPoint]:
        """The curves of a sweep."""
        if sweep in self.sweeps:
            return [_point(one) for one in self.sweeps[sweep]["points"]]
        rows = self.figures.record.rows if self.figures and sweep == NODES else ()
        return [_by_nodes(row) for row in rows if row.series == OF_NODES] or [
            _by_nodes(row) for row in self._rows() if sweep == NODES
        ]

    def where_swept(self, sweep: str) -> str:
        """What the points were measured on."""
        record = self.sweeps.get(sweep)
        if record is None:
            return measured_words(self.figures) if self.figures and sweep == NODES else ""
        return sentences(where_words(record), busy_words(record["machine"]))


def _step(name: str, figures: Mapping[str, Any]) -> StepTime:
    limit = (figures["limits"]["limit_ms"], limit_words(figures)) if "limits" in figures else ()
    return StepTime(name, figures["step_ms"], phases_of(figures["step_ms"], figures["phase_ms"]), *limit)


def _point(point: Mapping[str, Any]) -> SweepPoint:
    low, high = point["step_ms_range"]
    words = (
        f"<br>{low:.3f} to {high:.3f} in the rounds<br>{point['nodes']:g} nodes, "
        f"{point['tokens_per_step']:.2f} tokens per step, {point['tokens_per_second']:,.0f} tokens/s"
    )
    limit = point["limits"]["limit_ms"] if "limits" in point else None
    return SweepPoint(point["method"], point["value"], point["step_ms"], low, high, limit, words)


def _by_nodes(row: Row) -> SweepPoint:
    words = (
        f"<br>{row.tokens_per_step.mean:.2f} tokens per step, {row.tokens_per_second.median:,.0f} tokens/s"
    )
    nodes = row.tree_nodes or 1
    return SweepPoint(STORED_METHODS[nodes > 1], nodes, row.step_ms, words=words)


def what_limits(methods: Mapping[str, Mapping[str, Any]], forward: str) -> str:
    """The sentence on a plain step, and one on the method's where another part of it is the largest.

    ``forward`` says which forward the model has, as its record does.
    """
    found = {name: bottleneck(figures) for name, figures in methods.items()}
    plain = found[PLAIN_METHOD]
    others = [
        limit_sentence(name, one, methods[name], forward)
        for name, one in found.items()
        if name != PLAIN_METHOD and one.kind != plain.kind
    ]
    return sentences(limit_sentence(PLAIN_METHOD, plain, methods[PLAIN_METHOD], forward), *others)


def limit_sentence(name: str, found: Bottleneck, figures: Mapping[str, Any], forward: str) -> str:
    """What limits the step of one method, with the numbers that say so."""
    step = Words("a plain step") if name == PLAIN_METHOD else Words("a step of {0}", title_of(name))
    part = _least(found, figures) if found.kind in (MEMORY, ARITHMETIC, OVERHEAD) else f"{found.ms:.2f}"
    sentence = f"On this machine {{0}} takes {{1}} ms; {LIMITS[found.kind]}"
    verify = f"{figures['phase_ms']['verify']:.2f}"
    said = Words(sentence, step, f"{found.step_ms:.2f}", part, f"{found.share:.0%}", verify)
    # The forward in C is one call, and a captured one is started as a whole.
    started = found.kind == OVERHEAD and forward.startswith(BY_TRANSFORMERS) and CAPTURED not in forward
    nearly = Words(NEARLY[found.nearly]) if found.nearly else ""
    return sentences(said, SMALL_OPERATIONS if started else "", nearly)


def _least(found: Bottleneck, figures: Mapping[str, Any]) -> Words:
    """What the forward cannot do without, as part of a sentence."""
    limits = figures["limits"]
    work, ms = limits["phases"]["verify"], f"{found.limit_ms:.2f}"
    if found.bound == MEMORY:
        read, rate = bytes_words(work["bytes"]), rate_words(limits["bandwidth"])
        return Words("reading weights and cache once, {0} at {1}, takes {2} ms", read, rate, ms)
    done, rate = flops_words(work["flops"]), f"{flops_words(limits['peak'])}/s"
    return Words("its arithmetic, {0} at {1}, takes {2} ms", done, rate, ms)


def limit_words(figures: Mapping[str, Any]) -> str:
    """What the least time of a step was computed from."""
    limits = figures["limits"]
    read, done = bytes_words(limits["bytes"]), flops_words(limits["flops"])
    bandwidth, peak = rate_words(limits["bandwidth"]), flops_words(limits["peak"])
    return f"{read} at {bandwidth}, {done} at {peak}/s"


def where_words(record: Mapping[str, Any]) -> Words:
    """Model and machine, and its other load where it was light."""
    model, machine = record["model"], record["machine"]
    dtype = Words("several dtypes") if model["dtype"] == SWEPT else model["dtype"]
    said = Words(
        "Measured just now: {0} in {1} on {2}.", model["name"], dtype,
        machine_words(machine["processor"], machine["threads"]),
    )  # fmt: skip
    return sentences(said, other_load_words(machine), *map(str, record.get("notes", ())))


def other_load_words(machine: Mapping[str, Any]) -> str:
    """Load by other programs, where it was light; `busy_words` tells of more."""
    if is_busy(machine):
        return ""
    others, cores = f"{machine['other_cores_busy']:.1f}", machine["cores"]
    return Words("Other programs used {0} of {1} cores meanwhile.", others, cores)


def _limit_cells(figures: Mapping[str, Any]) -> dict[str, str]:
    """The least time of a method's step, where it is known, and what takes most of it."""
    found = bottleneck(figures)
    least = f"{figures['limits']['limit_ms']:.2f}" if "limits" in figures else ""
    return {LEAST: least, "largest part": PART_NAMES[found.kind].format(f"{found.share:.0%}")}


def command_line(
    flags: Sequence[str], load: LoadConfig, machine: Mapping[str, Any], device: str, *, public: bool
) -> str:
    """What measures the same on a command line; a public page keeps its folders' names to itself."""
    usual = LoadConfig()
    named = {field.name: getattr(load, field.name) for field in fields(LoadConfig)}
    given = {name: value for name, value in named.items() if value != getattr(usual, name)}
    words = ["python", "-m", "medusa_core", "bench", *flags]
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            words += [flag, name.upper() if public and name in ("model", "heads") else str(value)]
    # The page leaves a core to the browser; the command line would take all.
    threads = f"OMP_NUM_THREADS={machine['threads']} " if device == "cpu" else ""
    return f"{threads}{shlex.join(words)} --json"
