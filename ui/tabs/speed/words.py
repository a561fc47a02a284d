"""What the Speed tab says of a record of ``bench``: what limits a step, where that was, how to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
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
from medusa_core.hardware.units import bytes_words, flops_words, rate_words
from ui.records.figures import machine_words
from ui.records.lanes import PLAIN_METHOD
from ui.records.words import Words, sentences

PART_NAMES = {
    MEMORY: "memory {0}",
    ARITHMETIC: "arithmetic {0}",
    OVERHEAD: "overhead {0}",
    DRAFTING: "drafting {0}",
    HOST: "loop {0}",
    FORWARD: "forward {0}",
}
SWEPT = "swept"  # a record over dtypes
CAPTION = (
    "Medians of the rounds, in brackets the slowest and the fastest; overhead and speedup are over plain "
    "decoding. The least is what its bytes or its operations take at what was measured of this machine."
)


def what_limits(methods: Mapping[str, Mapping[str, Any]]) -> Words:
    """The sentence on a plain step, and one on the method's where another part of it is the largest."""
    found = {name: bottleneck(figures) for name, figures in methods.items()}
    plain = found[PLAIN_METHOD]
    others = [
        limit_sentence(name, one, methods[name])
        for name, one in found.items()
        if name != PLAIN_METHOD and one.kind != plain.kind
    ]
    return sentences(limit_sentence(PLAIN_METHOD, plain, methods[PLAIN_METHOD]), *others)


def limit_sentence(name: str, found: Bottleneck, figures: Mapping[str, Any]) -> Words:
    """What limits the step of one method, with the numbers that say so."""
    step = Words("a plain step") if name == PLAIN_METHOD else Words("a step of {0}", title_of(name))
    took, part, share = f"{found.step_ms:.2f}", f"{found.ms:.2f}", f"{found.share:.0%}"
    if found.kind == MEMORY:
        return Words(
            "On this machine {0} takes {1} ms; {2}, so {3} of it is waiting for memory, which fewer "
            "bytes would shorten.", step, took, _least(found, figures), share,
        )  # fmt: skip
    if found.kind == ARITHMETIC:
        return Words(
            "On this machine {0} takes {1} ms; {2}, so {3} of it is arithmetic, which only fewer nodes or "
            "a narrower dtype would shorten.", step, took, _least(found, figures), share,
        )  # fmt: skip
    if found.kind == OVERHEAD:
        return Words(
            "On this machine {0} takes {1} ms; {2}, so {3} of it is neither memory nor arithmetic but "
            "overhead: many small operations, each of which has to be started.",
            step, took, _least(found, figures), share,
        )  # fmt: skip
    if found.kind == DRAFTING:
        return Words(
            "On this machine {0} takes {1} ms; the largest part of it, {2} ms or {3}, is making the guesses.",
            step, took, part, share,
        )  # fmt: skip
    if found.kind == HOST:
        return Words(
            "On this machine {0} takes {1} ms; the largest part of it, {2} ms or {3}, is the loop around the "
            "forward: judging, keeping the cache and writing the text.", step, took, part, share,
        )  # fmt: skip
    return Words(
        "On this machine {0} takes {1} ms; the largest part of it, {2} ms or {3}, is the forward, whose "
        "least time is not known for this kind of model.", step, took, part, share,
    )  # fmt: skip


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
    """From what the least time of a whole step was reckoned."""
    limits = figures["limits"]
    read, done = bytes_words(limits["bytes"]), flops_words(limits["flops"])
    bandwidth, peak = rate_words(limits["bandwidth"]), flops_words(limits["peak"])
    return f"{read} at {bandwidth}, {done} at {peak}/s"


def where_words(record: Mapping[str, Any]) -> Words:
    """Model and machine, and what else that did where it was little."""
    model, machine = record["model"], record["machine"]
    dtype = Words("several dtypes") if model["dtype"] == SWEPT else model["dtype"]
    said = Words(
        "Measured just now: {0} in {1} on {2}.", model["name"], dtype,
        machine_words(machine["processor"], machine["threads"]),
    )  # fmt: skip
    return sentences(said, other_load_words(machine), *map(str, record.get("notes", ())))


def other_load_words(machine: Mapping[str, Any]) -> str:
    """What other programs did meanwhile, where it was little; `busy_words` says the rest."""
    if is_busy(machine):
        return ""
    others, cores = f"{machine['other_cores_busy']:.1f}", machine["cores"]
    return Words("Other programs used {0} of {1} cores meanwhile.", others, cores)


def busy_words(machine: Mapping[str, Any]) -> str:
    """A warning where other programs disturbed what was measured, else nothing."""
    if not is_busy(machine):
        return ""
    return Words(
        "These times are too long: other programs used {0} of {1} cores meanwhile. Measure again when they "
        "have ended.", f"{machine['other_cores_busy']:.1f}", machine["cores"],
    )  # fmt: skip


def table_rows(methods: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    return [
        {
            "method": title_of(name),
            "nodes": str(one["tree_nodes"]),
            "tokens/s": _spread(one, "tokens_per_second", 0),
            "tokens per step": f"{one['tokens_per_step']:.2f}",
            "ms a step": f"{one['step_ms']:.2f}",
            "least ms": f"{one['limits']['limit_ms']:.2f}" if "limits" in one else "",
            "overhead": f"{one['overhead']:.2f}",
            "speedup": _spread(one, "speedup", 2),
            "largest part": PART_NAMES[found.kind].format(f"{found.share:.0%}"),
        }
        for name, one in methods.items()
        for found in [bottleneck(one)]
    ]


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
            words.append(flag)
        else:
            words += [flag, name.upper() if public and name in ("model", "heads") else str(value)]
    # The page leaves a core to the browser; the command line would take all.
    threads = f"OMP_NUM_THREADS={machine['threads']} " if device == "cpu" else ""
    return f"{threads}{shlex.join(words)} --json"


def _spread(figures: Mapping[str, Any], key: str, decimals: int) -> str:
    middle, (low, high) = figures[key], figures[f"{key}_range"]
    if low == high:
        return f"{middle:.{decimals}f}"
    return f"{middle:.{decimals}f} ({low:.{decimals}f} to {high:.{decimals}f})"
