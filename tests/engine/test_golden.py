"""Runs recorded from the public implementation, step by step (tests/golden)."""

from __future__ import annotations

import functools
import json

import pytest
import tiny
from golden import golden_rows

from medusa_core.config import GenerationConfig

ENOUGH = 96  # a recorded run stops after the step that reaches so many tokens, which is not cut


@functools.cache
def golden_engine(golden, heads):
    models = golden.models() / "models"
    return tiny.load_from(models / "m1", models / heads)


def cases(golden):
    return [
        (heads, number, run["mode"], run["tree"])
        for heads, recorded in golden.recorded().items()
        for number, run in enumerate(recorded["runs"])
    ]


@pytest.mark.parametrize(("golden", "heads", "number", "mode", "tree"), golden_rows("medusa", cases))
def test_every_step_emits_what_was_recorded(golden, heads, number, mode, tree, tmp_path):
    recorded = golden.recorded()[heads]
    run = recorded["runs"][number]
    file = tmp_path / "tree.json"
    file.write_text(json.dumps(recorded["trees"][tree]), encoding="utf-8")
    config = GenerationConfig.of(
        acceptance="match" if mode == "greedy" else "typical", temperature=run["temperature"],
        epsilon=run["epsilon"], delta=run["delta"], tree=str(file), max_new_tokens=2 * ENOUGH,
        ignore_eos=True,
    )  # fmt: skip
    prompt = recorded["prompts"][run["prompt"]]
    emitted, first_tree, count = [], None, 0
    for step in golden_engine(golden, heads).stream(prompt, config):
        first_tree = first_tree or step.tree.tokens.tolist()
        emitted.append(step.emitted)
        count += len(step.emitted)
        if count >= ENOUGH:
            break
    assert first_tree == run["tree_tokens_first_step"]
    assert emitted == run["emitted"]
    assert len(emitted) == run["steps"]
    assert count / len(emitted) == pytest.approx(run["tokens_per_step"], abs=1e-3)


@pytest.mark.parametrize(
    ("golden", "heads"), golden_rows("medusa", lambda golden: [(heads,) for heads in golden.recorded()])
)
def test_plain_decoding_is_the_recorded_continuation(golden, heads):
    recorded = golden.recorded()[heads]
    for prompt, wanted in zip(recorded["prompts"], recorded["vanilla"], strict=True):
        config = GenerationConfig.of(method="none", max_new_tokens=len(wanted), ignore_eos=True)
        steps = list(golden_engine(golden, heads).stream(prompt, config))
        assert tiny.emitted(steps) == wanted
