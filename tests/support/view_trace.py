"""A small trace made by the typical rule itself, without page or engine; step 1 holds hostile texts."""

from __future__ import annotations

import math
import random

from medusa_core.trace.version1 import upgraded

IMAGE = "<img src=x onerror=alert(2)>"
HOSTILE = ["<script>alert(1)</script>", "${1+1}", "{{value}}", IMAGE, "`", "\\", "�", ""]
TREE = [[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0, 0]]
EPSILON, DELTA = 0.09, 0.3


def threshold(entropy: float, epsilon: float, delta: float) -> float:
    return min(epsilon, delta * math.exp(-entropy))


def judge(nodes: list[dict], epsilon: float, delta: float) -> list[int]:
    """The accepted path under typical acceptance, the slow and obvious way."""

    def line(i: int) -> list[int]:
        return [i] if i == 0 else [*line(nodes[i]["parent"]), i]

    def passes(i: int) -> bool:
        return i == 0 or nodes[i]["p"] > threshold(nodes[i]["entropy"], epsilon, delta)

    alive = [line(i) for i in range(len(nodes)) if all(passes(j) for j in line(i))]
    return max(alive, key=lambda path: (len(path), sum(math.log(nodes[j]["p"]) for j in path[1:]), -path[-1]))


def make_step(rng: random.Random, index: int, cache_length: int, acceptance: str) -> dict:
    paths = [(), *(tuple(path) for path in TREE)]
    words = [" the", " cat", "\n", " sat", "on", *HOSTILE]
    nodes: list[dict] = []
    for i, path in enumerate(paths):
        parent = None if i == 0 else paths.index(path[:-1])
        sibling = next((node for node in nodes if i and node["parent"] == parent), None)
        entropy = None if i == 0 else sibling["entropy"] if sibling else rng.uniform(0.2, 3.0)
        text = HOSTILE[i % len(HOSTILE)] if index == 1 else rng.choice(words)
        nodes.append({
            "id": i, "parent": parent, "depth": len(path), "token_id": 100 + i, "text": text,
            "head": len(path), "rank": path[-1] if path else 0, "draft_p": rng.random() if i else None,
            "p": rng.random() ** 2 * 0.5 if i else None, "entropy": entropy,
            "threshold": threshold(entropy, EPSILON, DELTA) if i and acceptance == "typical" else None,
        })  # fmt: skip
    path = judge(nodes, EPSILON, DELTA) if acceptance == "typical" else [0, 1]
    for i, node in enumerate(nodes):
        bar = node["threshold"]
        node["passes"] = i == 0 or (node["p"] > bar if bar is not None else i in path)
        node["accepted"] = i in path
        node["reason"] = "root" if i == 0 else "accepted" if i in path else "below threshold"
    return {
        "index": index, "cache_length": cache_length, "nodes": nodes, "path": path,
        "emitted": [nodes[i]["token_id"] for i in path], "bonus": {"token_id": 100, "text": " bonus"},
        "ms": {"propose": 0.5, "verify": 6.0, "accept": 0.3, "commit": 0.2, "total": 7.2},
    }  # fmt: skip


def make_trace(steps: int = 8, acceptance: str = "typical") -> dict:
    rng = random.Random(7)
    made: list[dict] = []
    for index in range(steps):
        cache_length = 10 + sum(len(step["path"]) for step in made)
        made.append(make_step(rng, index, cache_length, acceptance))
    tokens = [token for step in made for token in step["emitted"]]
    temperature = 0.7 if acceptance == "typical" else 0
    trace = {
        "schema_version": 1,
        "model": {"name": "tiny", "base": "b", "heads": "h", "dtype": "float32", "device": "cpu",
                  "parameters": 1},
        "config": {"method": "medusa", "acceptance": acceptance, "temperature": temperature,
                   "epsilon": EPSILON, "delta": DELTA, "seed": 0, "max_new_tokens": 99, "tree": TREE},
        "prompt": {"text": "Once <b>upon</b> a time ${1+1}", "token_ids": [1, 2, 3]}, "steps": made,
        "output": {"text": "", "token_ids": tokens, "finish_reason": "length", "new_tokens": len(tokens),
                   "steps": steps, "tokens_per_step": len(tokens) / steps, "tokens_per_second": 99.0,
                   "seconds": 1},
    }  # fmt: skip
    # Written as version 1, which knew only Medusa's heads: its nodes are easiest to make up.
    return upgraded(trace)
