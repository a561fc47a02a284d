"""What two measured runs say about each other: order of the runs, the median run, the first difference.

Pure functions on RunTrace dicts. The verdict's fields: equal, index, ours, plain (texts at the first
difference), logit_gap, comparable (whether equality may be expected at all) and note.
"""

from __future__ import annotations

from typing import Any

Trace = dict[str, Any]


def run_order(names: tuple[str, str], repetitions: int) -> list[str]:
    """A B, B A, A B, …: drift of the machine's speed then falls on both alike."""
    return [name for i in range(repetitions) for name in (names if i % 2 == 0 else names[::-1])]


def speed(trace: Trace) -> float:
    """Tokens per second of decoding, from the steps' own milliseconds; reading the prompt is not in it."""
    seconds = sum(step["ms"]["total"] for step in trace["steps"]) / 1000
    return trace["output"]["new_tokens"] / seconds if seconds else 0.0


def median_run(traces: list[Trace]) -> Trace:
    """The run of median speed; of an even number the slower one of the middle two."""
    ranked = sorted(traces, key=speed)
    return ranked[(len(ranked) - 1) // 2]


def first_difference(ours: list[int], plain: list[int]) -> int | None:
    """Index of the first token that differs; a longer run differs where the shorter one ends."""
    for index, (left, right) in enumerate(zip(ours, plain, strict=False)):
        if left != right:
            return index
    return None if len(ours) == len(plain) else min(len(ours), len(plain))


def token_text(trace: Trace, index: int) -> str:
    """The text of an emitted token; empty behind the end."""
    for step in trace["steps"]:
        if index < len(step["emitted"]):
            wanted = step["path"][index]
            return next(node["text"] for node in step["nodes"] if node["id"] == wanted)
        index -= len(step["emitted"])
    return ""


def equality_verdict(ours: Trace, plain: Trace) -> dict[str, Any]:
    """The verdict on two runs of the same prompt and seed; the caller fills the gap of the logits."""
    index = first_difference(ours["output"]["token_ids"], plain["output"]["token_ids"])
    reason = why_incomparable(ours["config"])
    return {
        "equal": index is None,
        "index": index,
        "ours": "" if index is None else token_text(ours, index),
        "plain": "" if index is None else token_text(plain, index),
        "logit_gap": None,
        "comparable": reason is None,
        "note": reason if reason is not None else _rounding_note(ours["model"]["dtype"], index),
    }


def why_incomparable(config: dict[str, Any]) -> str | None:
    """Why these settings promise no identical text; None where they do."""
    if config["temperature"] <= 0:
        return None
    if config["acceptance"]["name"] == "typical":
        return (
            "Typical acceptance keeps what the model finds plausible, "
            "so the text may differ from plain decoding."
        )
    return (
        f"At temperature {config['temperature']:g} both draw from the same distribution, "
        "but not the same tokens: set the temperature to 0 to compare them."
    )


def _rounding_note(dtype: str, index: int | None) -> str:
    if index is None:
        return f"Greedy decoding in {dtype}."
    if dtype == "float32":
        return "In float32 this should not happen beyond exact ties."
    return f"In {dtype} the batch's shape rounds differently, so a near tie can fall either way."
