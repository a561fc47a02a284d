"""Greedy texts of every drafter, compared with plain decoding's.

``python greedy_texts.py PROMPTS TOKENS`` prints a JSON line for each method and kind of weights.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from paths import ROOT

from medusa_core.api import load
from medusa_core.config import GenerationConfig
from medusa_core.drafters import drafter_names, method
from medusa_core.engine import Engine
from medusa_core.evaluation.prompts import HELD_OUT, shipped_kinds

KINDS = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "8 bits": {"dtype": "bfloat16", "quantize": "8bit"},
}
EMBEDDED = {  # drafters of the embedded model: those without weights, and those whose weights it has
    name
    for name in drafter_names()
    if not method(name).has_weights or name == "medusa" or (ROOT / "assets/model/drafters" / name).is_dir()
}


class Row(NamedTuple):
    """What one method wrote after some prompts."""

    isa: str
    kind: str
    method: str
    tokens: int
    steps: int
    differing: int  # texts


def rows(prompts: int, tokens: int, *kinds: str, merged: bool = True) -> Iterator[Row]:
    """The texts of all the embedded model's methods, ``merged`` ones included, in these kinds of weights."""
    for kind in kinds:
        engine = load(device="cpu", **KINDS[kind])
        assert engine.target.choice.exact, engine.info.forward
        texts = list(chain.from_iterable(zip(*shipped_kinds(engine, HELD_OUT).values(), strict=False)))
        plain = [_written(engine, text, tokens, "none")[0] for text in texts[:prompts]]
        for name in engine.methods():
            if name == "none" or ("+" in name and not merged):
                continue
            found = [_written(engine, text, tokens, name) for text in texts[:prompts]]
            differing = sum(mine != wanted for (mine, _), wanted in zip(found, plain, strict=True))
            counts = sum(len(mine) for mine, _ in found), sum(steps for _, steps in found)
            yield Row(engine.target.library.isa, kind, name, *counts, differing)


def _written(engine: Engine, prompt: list[int], tokens: int, method: str) -> tuple[list[int], int]:
    config = GenerationConfig.of(method=method, max_new_tokens=tokens, ignore_eos=True)
    steps = list(engine.stream(prompt, config))
    return [token for step in steps for token in step.emitted], len(steps)


if __name__ == "__main__":
    for row in rows(int(sys.argv[1]), int(sys.argv[2]), *KINDS):
        print(json.dumps(row._asdict()), flush=True)
