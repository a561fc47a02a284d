"""Hydra runs recorded from the public code, step by step (tests/golden)."""

from __future__ import annotations

import functools

import pytest
import torch
from golden import golden_rows

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.hydra.prefix import PrefixCache
from medusa_core.loading.load import load_engine
from medusa_core.trees.tree import Topology

ENOUGH = 64  # a whole run stops after the step that reaches so many tokens, which is not cut
DIGITS = 2e-5  # rounding of the recorded numbers, which have six digits
HALF = 2e-3  # effect of weights rounded to float16


@functools.cache
def golden_engine(golden, kind):
    heads = golden.models() / "models" / kind.replace("-", "_")
    return load_engine(LoadConfig(heads=str(heads), dtype="float32", device="cpu"))


def kinds(golden):
    return [(kind,) for kind in golden.recorded()["heads"]]


def cases(golden):
    return [
        (kind, number, run["tree"])
        for kind, heads in golden.recorded()["heads"].items()
        for number, run in enumerate(heads["runs"])
    ]


@pytest.mark.parametrize(("golden", "kind"), golden_rows("hydra", kinds))
def test_each_head_computes_the_recorded_numbers(golden, kind):
    engine = golden_engine(golden, kind)
    close = functools.partial(torch.testing.assert_close, rtol=DIGITS, atol=golden.within(DIGITS, HALF))
    heads, embed = engine.drafts["hydra"].heads, engine.target.model.get_input_embeddings()
    for unit in golden.recorded()["heads"][kind]["unit"]:
        hidden = torch.tensor(unit["hidden_states"])
        state = hidden[-1]
        if heads.prefix is not None:
            cache = PrefixCache(len(hidden))
            heads.prefix.read(hidden, cache)
            state = heads.prefix.last(state, cache)
            wanted = torch.tensor(unit["prefix_embedding_last"])
            close(state, wanted)
        for number in range(heads.count):
            head = heads.head(number)
            path = embed(torch.tensor(unit["path_tokens"][: number + 1]))
            x = torch.cat([state, path.flatten()])
            for ours, theirs in ((head.features(x), "mlp_out"), (heads(number, x[None])[0], "logits")):
                close(ours, torch.tensor(unit[theirs][number]))


@pytest.mark.parametrize(
    ("golden", "name"), golden_rows("hydra", lambda golden: [(name,) for name in golden.recorded()["trees"]])
)
def test_trees_have_the_recorded_nodes(golden, name):
    recorded = golden.recorded()
    tree, buffers = Topology.from_choices(recorded["trees"][name]), recorded["buffers"][name]
    assert [list(choice) for choice in tree.choices] == buffers["sorted"]
    assert tree.depths == buffers["position_ids"]
    rows = [[node for node in row if node >= 0] for row in buffers["retrieve_indices"]]
    assert sorted(rows) == sorted(tree.paths())


@pytest.mark.parametrize(("golden", "kind", "number", "tree"), golden_rows("hydra", cases))
def test_every_step_drafts_and_emits_what_was_recorded(golden, kind, number, tree):
    recorded = golden.recorded()
    run = recorded["heads"][kind]["runs"][number]
    config = GenerationConfig.of(
        method="hydra",
        tree=Topology.from_choices(recorded["trees"][tree]),
        max_new_tokens=2 * ENOUGH,
        ignore_eos=True,
    )
    stream = golden_engine(golden, kind).stream(recorded["prompts"][run["prompt"]], config)
    said: list[int] = []
    for step, wanted in zip(stream, run["steps"], strict=False):
        assert int(step.tree.tokens[0]) == wanted["root"]
        assert step.tree.tokens.tolist() == wanted["tree_tokens"]
        assert step.emitted == wanted["emitted"]
        assert len(step.verdict.path) - 1 == wanted["accept_length"]
        said += step.emitted
    output = run["output_ids"]  # of some runs in tests/golden there are only the first steps
    assert len(output) == ENOUGH or not golden.full
    assert said[: len(output)] == output == recorded["plain_greedy"][run["prompt"]][: len(output)]
