"""RunTrace dicts made up from words, for tests of charts and page that need a trace but no model."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from medusa_core.trace.version1 import upgraded

WORDS = (
    "Once upon a time there was a little fox who lived near the river . Every morning she ran to the old "
    "bridge and looked at the water . One day she saw a small boat , and in the boat sat a frog with a red "
    "hat . “ Good morning , ” said the frog . “ Would you like to come with me ? ” The fox was not sure , "
    "but the sun was warm and the water was calm , so she said yes and stepped in ."
)


@dataclass(frozen=True)
class Shape:
    """A step's tree and time."""

    heads: int
    ranks: int
    total_ms: float


def make_trace(
    words: list[str] | None = None, *, heads: int = 3, ranks: int = 2, step_ms: float = 8.0, seed: int = 0
) -> dict[str, Any]:
    """A run over `words`. With heads = 0 it is plain decoding: trees of one node, one token per step."""
    rng = random.Random(seed)
    tokens = [
        word if i == 0 or word in ".,?" else " " + word for i, word in enumerate(words or WORDS.split())
    ]
    steps, done, length = [], 0, 12
    while done < len(tokens):
        kept = min(len(tokens) - done, 1 + (rng.choice([0, 0, 1, 1, 2, heads]) if heads else 0))
        shape = Shape(heads, ranks, step_ms * rng.uniform(0.9, 1.2))
        steps.append({"index": len(steps), "cache_length": length, **_step(tokens, done, kept, shape)})
        done += kept
        length += kept
    seconds = sum(step["ms"]["total"] for step in steps) / 1000
    trace = {
        "schema_version": 1,
        "model": {
            "name": "made up", "base": "made up", "heads": "made up", "dtype": "float32", "device": "cpu",
            "parameters": 1,
        },
        "config": {
            "method": "medusa" if heads else "none", "acceptance": "match", "temperature": 0.0,
            "epsilon": 0.3, "delta": 0.09, "seed": 0, "max_new_tokens": len(tokens), "tree": None,
        },
        "prompt": {"text": "Tell a story.", "token_ids": [1, 2, 3]},
        "steps": steps,
        "output": {
            "text": "".join(tokens), "token_ids": list(range(len(tokens))), "finish_reason": "length",
            "new_tokens": len(tokens), "steps": len(steps), "tokens_per_step": len(tokens) / len(steps),
            "tokens_per_second": len(tokens) / seconds, "seconds": seconds,
        },
    }  # fmt: skip
    # Written as version 1, which knew only Medusa's heads: its nodes are easiest to make up.
    return upgraded(trace)


def _step(tokens: list[str], done: int, kept: int, shape: Shape) -> dict[str, Any]:
    nodes = [_node(0, None, 0, tokens[done], right=True)]
    path, parent = [0], 0
    for depth in range(1, shape.heads + 1):
        first = len(nodes)
        for rank in range(shape.ranks):
            right = rank == 0 and depth < kept
            text = tokens[done + depth] if right else f" wrong{rank}"
            nodes.append(_node(len(nodes), parent, depth, text, right=right) | {"rank": rank})
        parent = first
        if depth < kept:
            path.append(first)
    total = shape.total_ms
    return {
        "nodes": nodes,
        "path": path,
        "emitted": list(range(done, done + kept)),
        "bonus": {"token_id": done + kept, "text": "?"},
        "ms": {
            "propose": 0.1 * total if shape.heads else 0.0, "verify": 0.8 * total, "accept": 0.05 * total,
            "commit": 0.02 * total, "total": total,
        },
    }  # fmt: skip


def _node(number: int, parent: int | None, depth: int, text: str, *, right: bool) -> dict[str, Any]:
    return {
        "id": number,
        "parent": parent,
        "depth": depth,
        "token_id": number,
        "text": text,
        "head": depth,
        "rank": 0,
        "draft_p": 0.5 if depth else None,
        "p": (0.6 if right else 0.05) if depth else None,
        "entropy": 1.2 if depth else None,
        "threshold": None,
        "passes": right,
        "accepted": right,
        "reason": "root" if depth == 0 else "accepted" if right else "not the model's choice",
    }


def put(*keys, to):
    """A change that sets the value at a place of the trace."""

    def change(trace):
        for key in keys[:-1]:
            trace = trace[key]
        trace[keys[-1]] = to

    return change
