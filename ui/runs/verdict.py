"""What measured runs say about each other: their order, the median run, and whether their texts agree.

Pure functions on RunTrace dicts. The verdict's fields: equal, index, first, second (texts at the first
difference), logit_gap, comparable (whether a difference means anything), expected (must, may, cannot) and
note, which gives the reason in one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from medusa_core.config import GenerationConfig
from ui.records.words import Words

Trace = dict[str, Any]
MUST, MAY, CANNOT = "must", "may", "cannot"
DIFFERENT_WEIGHTS = (
    "The lanes run different weights: heads that were trained together with the model change it."
)
TYPICAL = "The texts may differ: typical acceptance also keeps plausible tokens that are not the likeliest."
EXACT = (
    "The texts must be equal: both lanes are greedy, and in {0} too this model's forward gives a guess the "
    "numbers that its token gets alone."
)
ROUNDED = (
    "The texts may differ at a near tie: both lanes are greedy, and rounding in {0} can depend on how many "
    "tokens are read at once."
)


def run_order(lanes: int, repetitions: int) -> list[int]:
    """0 1, 1 0, 0 1, …: drift of the machine's speed then falls on all lanes alike."""
    order = list(range(lanes))
    return [lane for i in range(repetitions) for lane in (order if i % 2 == 0 else order[::-1])]


def speed(trace: Trace) -> float:
    """Tokens per second inside the steps, without reading the prompt."""
    return trace["output"]["tokens_per_second"]


def median_run(traces: list[Trace]) -> Trace:
    """The run of median speed; for an even number of runs, the slower of the middle two."""
    ranked = sorted(traces, key=speed)
    return ranked[(len(ranked) - 1) // 2]


def first_difference(first: Sequence[int], second: Sequence[int]) -> int | None:
    """Index of the first token that differs; a longer run differs where the shorter one ends."""
    for index, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return index
    return None if len(first) == len(second) else min(len(first), len(second))


def token_text(trace: Trace, index: int) -> str:
    """The text of an emitted token; empty after the end."""
    for step in trace["steps"]:
        if index < len(step["emitted"]):
            wanted = step["path"][index]
            return next(node["text"] for node in step["nodes"] if node["id"] == wanted)
        index -= len(step["emitted"])
    return ""


def equality_verdict(
    first: Trace, second: Trace, *, same_weights: bool = True, exact: bool = False
) -> dict[str, Any]:
    """The verdict on two runs of the same prompt and seed; the caller fills in the logit gap."""
    index = first_difference(first["output"]["token_ids"], second["output"]["token_ids"])
    kind, sentence = expectation(first, second, same_weights=same_weights, exact=exact)
    return {
        "equal": index is None,
        "index": index,
        "first": "" if index is None else token_text(first, index),
        "second": "" if index is None else token_text(second, index),
        "logit_gap": None,
        "comparable": kind != CANNOT,
        "expected": kind,
        "note": sentence,
    }


def expectation(
    first: Trace, second: Trace, *, same_weights: bool = True, exact: bool = False
) -> tuple[str, str]:
    """Whether the settings of two runs promise equal texts, and why; known before anything is compared.

    ``exact``: both ran on a forward that gives a tree node the same bits as its token read alone.
    """
    configs = first["config"], second["config"]
    if not same_weights:
        return CANNOT, DIFFERENT_WEIGHTS
    if any(_draws(config) for config in configs):
        return CANNOT, _drawing_words(*configs)
    if any(one["temperature"] > 0 and one["acceptance"]["name"] == "typical" for one in configs):
        return MAY, TYPICAL
    if _penalty(configs[0]) != _penalty(configs[1]):
        return MAY, "The texts may differ: the lanes have different penalties."
    dtype = first["model"]["dtype"]  # the same weights, so that of both
    if dtype == "float32":
        return MUST, "The texts must be equal but for exact ties: both lanes are greedy, in float32."
    return (MUST, Words(EXACT, dtype)) if exact else (MAY, Words(ROUNDED, dtype))


def _draws(config: dict[str, Any]) -> bool:
    """Whether tokens are drawn at random: by default typical acceptance takes roots by argmax."""
    rule = config["acceptance"]
    return config["temperature"] > 0 and (
        rule["name"] != "typical" or rule["settings"].get("root", "argmax") == "sample"
    )


def _penalty(config: dict[str, Any]) -> tuple[float, int]:
    """Penalty and window, (1, 0) where there is none; a trace leaves out defaults."""
    defaults = GenerationConfig()
    penalty = config.get("penalty", defaults.penalty)
    window = config.get("penalty_window", defaults.penalty_window)
    return (penalty, window) if penalty != 1 and window else (1.0, 0)


def _drawing_words(first: dict[str, Any], second: dict[str, Any]) -> str:
    """Why a text that is drawn says nothing about another one."""
    if _draws(first) and _draws(second) and first["temperature"] == second["temperature"]:
        return Words(
            "At temperature {0} both lanes draw from the same distribution, but not "
            "the same tokens: set the temperature to 0 to compare them.",
            f"{first['temperature']:g}",
        )
    drawn = first if _draws(first) else second
    return Words(
        "A lane draws its tokens at random, at temperature {0}: set it to 0 to compare the texts.",
        f"{drawn['temperature']:g}",
    )
