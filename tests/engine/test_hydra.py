"""Hydra's drafter against a slow version and against runs recorded from the public code (tests/golden)."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import tiny
import torch
from golden import golden_rows
from hydra_heads import hydra_draft, slow_state, slow_tree

from medusa_core.config import GenerationConfig
from medusa_core.drafters.hydra.draft import HydraDraft
from medusa_core.drafters.hydra.heads import HydraHeads
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError
from medusa_core.evaluation.head_check import check_heads
from medusa_core.model.kv_cache import TreeCache
from medusa_core.trees.tree import Topology, load_tree

KINDS = {"mlp": False, "prefix-mlp": True}
TREES = {
    "cartesian": load_tree("cartesian-3x2x2"),
    "gaps": Topology.from_choices(
        [[2], [0], [0, 1], [2, 3], [2, 3, 1], [2, 0]]
    ),  # ranks left out, leaves between
}
PROMPT = [*tiny.PROMPT, 5, 0, 7]


@pytest.fixture(params=KINDS, scope="module")
def hydra_engine(request, engine):
    return replace(engine, drafts={"hydra": hydra_draft(engine.target.model, prefix=KINDS[request.param])})


@pytest.fixture(params=["c", "transformers"])
def either_forward(request, hydra_engine, library):
    """The same engine with each forward of the target."""
    if request.param == "transformers":
        return hydra_engine
    return replace(hydra_engine, target=tiny.target_in_c(hydra_engine.target.model, library))


def hydra_run(engine, prompt=PROMPT, **settings):
    return tiny.run(engine, prompt, method="hydra", **settings)


@pytest.mark.parametrize("name", TREES)
def test_every_tree_is_the_one_filled_node_by_node(either_forward, name):
    """Tokens and log q of each node, step by step, from the whole text anew each time."""
    engine, tree = either_forward, TREES[name]
    text = list(PROMPT)
    for step in hydra_run(engine, tree=tree, max_new_tokens=20):
        root = int(step.tree.tokens[0])
        heads, model = engine.drafts["hydra"].heads, engine.target.model
        tokens, logq = slow_tree(heads, model, text, root, tree)
        assert step.tree.tokens.tolist() == tokens
        assert step.tree.draft_logp.tolist() == pytest.approx(logq, abs=1e-4)
        text += step.tree.tokens[step.verdict.path].tolist()


def test_a_tree_that_asks_for_more_is_refused(hydra_engine):
    with pytest.raises(MedusaError, match=r"depth 4, there are 3 heads"):
        hydra_run(hydra_engine, tree="cartesian-1x1x1x1")


def test_nodes_say_in_words_where_they_come_from(hydra_engine):
    step = hydra_run(hydra_engine, tree="cartesian-2x1x1")[0]
    first, *_, last = step.tree.origins[1:]
    assert (first.by, first.head, first.rank) == ("hydra", 1, 0)
    assert first.note == "by reading the last kept hidden state and the root"
    assert last.note == (
        "by reading the last kept hidden state, the root and the 2 tokens drafted on this path"
    )


def test_the_check_asks_each_head_after_the_text_s_own_tokens(hydra_engine):
    """The best guesses of all positions at once are those that a drafted chain of the text would get."""
    draft, target = hydra_engine.drafts["hydra"], hydra_engine.target
    text = tiny.random_tokens(12, seed=3)
    guesses = draft.guesses(target, text, 1)[..., 0]
    hidden = target.model(torch.tensor([text]), output_hidden_states=True).hidden_states[-1][0]
    embedded = target.model.get_input_embeddings()(torch.tensor(text))
    for head in range(draft.count):
        for at in range(12 - head - 2):
            state = slow_state(draft.heads, target.model.config, hidden[: at + 1])
            path = torch.cat([state, embedded[at + 1 : at + head + 2].flatten()])
            assert int(guesses[head, at]) == int(draft.heads(head, path[None]).argmax())
    assert not draft.is_untrained(target)


def test_fresh_heads_are_untrained(engine):
    lm_head = engine.target.model.get_output_embeddings().weight
    fresh = HydraDraft(HydraHeads.fresh(lm_head, 2, 1))
    assert check_heads(replace(engine, drafts={"hydra": fresh})).verdict == "untrained"


def test_what_needs_medusa_heads_says_which_heads_there_are(hydra_engine):
    with pytest.raises(MedusaError, match="tiny has 3 Hydra heads but no Medusa heads, which this needs"):
        medusa_draft(hydra_engine)


# --- Hydra runs recorded from the public code, step by step (tests/golden).


ENOUGH = 64  # a whole run stops after the step that reaches so many tokens, which is not cut
DIGITS = 2e-5  # rounding of the recorded numbers, which have six digits
HALF = 2e-3  # effect of weights rounded to float16


@functools.cache
def golden_engine(golden, kind):
    heads = golden.models() / "models" / kind.replace("-", "_")
    return tiny.load_from(heads=heads)


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
            cache = TreeCache(1, len(hidden))
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
