"""Dynamic trees of Medusa's heads: the likeliest combinations of their guesses, grown anew in each step."""

from __future__ import annotations

import pytest
import tiny
import torch
from grown_trees import grown
from hypothesis import given
from hypothesis import strategies as st

from medusa_core.config import GenerationConfig
from medusa_core.drafters._dynamic_tree import DynamicTree
from medusa_core.drafters._guess_tree import Guesses
from medusa_core.drafters._options import check_options
from medusa_core.errors import MedusaError
from medusa_core.trees.origin import Origin

CPU = torch.device("cpu")


def paths_of(tree):
    """The ranks from the root to each node, but the root's own."""
    paths = [()]
    for parent, origin in zip(tree.parents[1:], tree.origins[1:], strict=True):
        paths.append((*paths[parent], origin.rank))
    return paths[1:]


@given(
    levels=st.integers(1, 4), ranks=st.integers(1, 5), nodes=st.integers(1, 30), depth=st.integers(1, 5),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_it_holds_the_likeliest_combinations(levels, ranks, nodes, depth, seed):
    logits = torch.randn(levels, 1, 11, generator=torch.Generator().manual_seed(seed)) * 3
    guesses = Guesses.of(logits, ranks)
    (tree,) = DynamicTree(nodes, levels, ranks, lambda d, r: Origin("h", d, r), CPU).filled(
        [7], [depth], guesses
    )
    tokens, logp = guesses.tokens[:, 0], guesses.logp[:, 0]
    found = paths_of(tree)
    wanted = grown(lambda path: enumerate(logp[len(path)].tolist()), min(depth, levels), logp.shape[1], nodes)
    assert set(found) == set(wanted)
    assert len(found) == len(set(found))
    for node, path in enumerate(found, start=1):
        level, rank = len(path) - 1, path[-1]
        assert tree.depths[node] == len(path)
        assert tree.tokens[node] == tokens[level, rank]
        assert tree.draft_logp[node] == logp[level, rank]
        assert tree.parents[node] < node
    assert (tree.tokens[0], tree.draft_logp[0]) == (7, 0)


def test_a_greedy_run_writes_what_the_model_alone_writes(engine):
    for name in ("dynamic-2", "dynamic-9", "dynamic-64"):
        steps = tiny.run(engine, tree=name, max_new_tokens=40)
        assert tiny.emitted(steps) == tiny.emitted(tiny.run(engine, method="none", max_new_tokens=40))
        assert max(step.tree.size for step in steps) == int(name.removeprefix("dynamic-"))
        if name == "dynamic-64":
            assert len({tuple(paths_of(step.tree)) for step in steps}) > 1
        assert engine.fixed_tree(GenerationConfig.of(tree=name)) is None


def test_it_stays_within_the_context(engine):
    room = 12
    prompt = tiny.random_tokens(engine.target.context - room, 3)
    config = GenerationConfig.of(tree="dynamic-20", max_new_tokens=100, ignore_eos=True)
    steps = list(engine.stream(prompt, config))
    assert steps[-1].finish_reason == "context"
    assert all(max(step.tree.depths) < engine.target.context - step.cache_length for step in steps)
    plain = engine.stream(prompt, GenerationConfig(method="none", max_new_tokens=100, ignore_eos=True))
    assert tiny.emitted(steps) == tiny.emitted(plain)


@pytest.mark.parametrize(
    "name",
    [
        "dynamic-",
        "dynamic-1",
        "dynamic-257",
        "dynamic-x",
        "dynamic-²",
        "dynamic--4",
        "dynamic-00016",
        "dynamic-" + 5000 * "9",
    ],
)
def test_a_name_without_a_number_of_nodes_is_refused(engine, name):
    with pytest.raises(MedusaError, match=r"no tree is called 'dynamic-.*write dynamic-2 to dynamic-256"):
        tiny.run(engine, tree=name)


def test_a_wrong_number_is_told_before_a_model_is_loaded():
    with pytest.raises(MedusaError, match="write dynamic-2 to dynamic-256"):
        check_options(GenerationConfig.of(tree="dynamic-0"))
