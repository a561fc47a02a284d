"""EAGLE-3 against a slow version without a cache, and against recorded runs of the public code."""

from __future__ import annotations

import functools
import json
import shutil
from dataclasses import replace

import eagle3_files
import pytest
import tiny
import torch
from eagle3_slow import SlowDraft
from golden import Golden, golden_rows
from grown_trees import paths_of
from safetensors.torch import load_file, save_file

from medusa_core.config import GenerationConfig
from medusa_core.drafters.eagle3 import Settings
from medusa_core.drafters.eagle3.drafter import Eagle3Drafter
from medusa_core.drafters.eagle3.shape import feature_layers

SMALL = {"method": "eagle3", "draft_top_k": 3, "draft_depth": 4, "draft_nodes": 14}
EVERY = list(range(tiny.VOCABULARY))  # a draft vocabulary that is the target's


@pytest.fixture(scope="module")
def eagle(engine):
    return eagle3_files.with_draft(engine)


def fused_states(model, text):
    """Embeddings, output of the first layer and of the second, which is the last, in front of its norm."""
    rows = torch.tensor([text])
    outputs = [model.get_input_embeddings()(rows)]
    hooks = [
        layer.register_forward_hook(lambda *call: outputs.append(call[2])) for layer in model.model.layers
    ]
    states = model(rows, output_hidden_states=True).hidden_states
    for hook in hooks:
        hook.remove()
    torch.testing.assert_close(outputs[:2], list(states[:2]))
    torch.testing.assert_close(model.model.norm(outputs[2]), states[2])
    return torch.cat([state[0] for state in outputs], dim=-1)


KINDS = {
    "part": (eagle3_files.KNOWN, ()),
    "whole": (EVERY, ()),
    "norm before the residual": (EVERY, ("norm_before_residual",)),
    "norm before fc": (EVERY, ("norm_before_fc",)),
    "norms of each feature": (EVERY, ("fc_norm",)),
    "normed output": (EVERY, ("norm_output",)),
    "EAGLE-3.1": (EVERY, ("norm_before_residual", "fc_norm", "norm_output")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_tree_is_the_slow_version_s(engine, kind):
    known, flags = KINDS[kind]
    eagle = eagle3_files.with_draft(engine, known=known, flags=flags)
    weights = eagle3_files.state(known) | eagle3_files.norms(flags)
    slow = SlowDraft(weights, engine.target.model.get_input_embeddings().weight, flags)
    text = list(tiny.PROMPT)
    steps = tiny.run(eagle, text, **SMALL, max_new_tokens=6)
    assert len({tuple(step.tree.parents) for step in steps}) > 1  # its shape changes
    for step in steps:
        features = fused_states(engine.target.model, text)
        root = int(step.tree.tokens[0])
        wanted = slow.tree(features, [*text, root], 3, 4, 14)
        found = paths_of(step.tree)
        assert list(found) == list(wanted)
        assert list(found.values()) == pytest.approx(list(wanted.values()), abs=1e-4)
        text += step.emitted


def in_c(eagle, library):
    return replace(eagle, target=tiny.target_in_c(eagle.target.model, library))


def test_both_forwards_give_the_same_run(eagle, library):
    """transformers' own forward hands out the hidden states of inner layers as the one in C does."""
    runs = [tiny.run(one, **SMALL, max_new_tokens=24) for one in (eagle, in_c(eagle, library))]
    fast, slow = ([step.tree.tokens.tolist() for step in steps] for steps in runs)
    assert fast == slow


def test_more_guesses_than_the_draft_vocabulary_has_are_not_asked_for(engine):
    eagle = eagle3_files.with_draft(engine, known=[0, 3, 7])
    steps = tiny.run(eagle, method="eagle3", draft_top_k=64, draft_depth=3, draft_nodes=128, max_new_tokens=6)
    assert all({*step.tree.tokens[1:].tolist()} <= {0, 3, 7} for step in steps)
    assert steps[0].tree.size == 1 + 3 + 9 + 9


def test_the_public_rule_for_the_features_and_ours_for_small_models():
    assert feature_layers(32) == (2, 16, 29)
    assert feature_layers(8) == (2, 4, 5)
    assert feature_layers(7) == (2, 3, 4)
    assert feature_layers(6) == (2, 4, 6)
    assert feature_layers(4) == (1, 2, 4)
    assert feature_layers(2) == (0, 1, 2)


def test_a_node_says_which_level_and_which_guess_it_is(eagle):
    step = tiny.run(eagle, **SMALL, max_new_tokens=4)[0]
    for node in range(1, step.tree.size):
        origin, depth = step.tree.origins[node], step.tree.depths[node]
        siblings = [n for n in range(node) if step.tree.parents[n] == step.tree.parents[node]]
        assert (origin.by, origin.rank) == ("eagle3", len(siblings))
        parent = step.tree.parents[node]
        fed = "its own output" if parent else "three hidden states of the model"
        of = f"node {parent}" if parent else "the root"
        assert origin.note == f"EAGLE-3, level {depth}, fed {fed}: child {len(siblings) + 1} of {of}"


# --- EAGLE-3 against runs recorded from the public code (tests/golden).
# Every tree of every step: its tokens, its shape, the drafter's scores, and what is kept of it.


RUNS = {"whole vocabulary": "runs.json", "150 tokens": "runs_v150.json"}


@pytest.fixture(scope="module")
def engine_of(tmp_path_factory):
    """Loads the target with one of the two draft models, from their files."""

    @functools.cache
    def load(golden: Golden, kind):
        models = golden.models() / "models"
        heads = models / "draft"
        if kind != "whole vocabulary":
            overlay = load_file(models / "draft_v150_overlay.safetensors")
            part = tmp_path_factory.mktemp("draft")
            config = json.loads((heads / "config.json").read_text(encoding="utf-8"))
            (part / "config.json").write_text(json.dumps(config | {"draft_vocab_size": 150}))
            save_file(load_file(heads / "model.safetensors") | overlay, part / "model.safetensors")
            heads = part
        return tiny.load_from(models / "target", heads)

    return load


def cases(golden):
    return [
        (kind, number) for kind, file in RUNS.items() for number in range(len(golden.recorded(file)["runs"]))
    ]


@pytest.mark.parametrize(("golden", "kind", "number"), golden_rows("eagle3", cases))
def test_every_step_is_the_recorded_one(engine_of, golden, kind, number):
    recorded = golden.recorded(RUNS[kind])
    run = recorded["runs"][number]
    config = GenerationConfig.of(
        method="eagle3", draft_top_k=run["top_k"], draft_depth=run["depth"] + 1,
        draft_nodes=run["total_token"] - 1, max_new_tokens=2 * len(run["output_ids"]), ignore_eos=True,
    )  # fmt: skip
    steps = engine_of(golden, kind).stream(recorded["prompts"][run["prompt"]], config)
    for wanted in run["steps"]:
        step = next(steps)
        tree = step.tree
        assert step.cache_length == wanted["ctx"]
        assert tree.tokens.tolist() == wanted["draft_tokens"]
        assert tree.parents == wanted["parents"]
        assert "".join(map(str, tree.depths)) == wanted["tree_position_ids"]
        sums = tree.mask.float() @ tree.draft_logp  # along each node's path
        assert sums[1:].tolist() == pytest.approx(wanted["scores"], abs=golden.within(2e-4, 2e-2))
        assert step.emitted == wanted["emitted"]
        assert step.verdict.bonus == wanted["next_root"]
    assert len(run["steps"]) == run["steps_n"]


@pytest.mark.parametrize("golden", [row for row in golden_rows("eagle3") if row.values[0].full])
def test_the_pickle_holds_the_same_weights(engine_of, golden, tmp_path):
    models = golden.models() / "models"
    shutil.copy(models / "draft" / "config.json", tmp_path)
    shutil.copy(models / "draft" / "pytorch_model.bin", tmp_path)
    pickled = tiny.load_from(models / "target", tmp_path)
    whole = engine_of(golden, "whole vocabulary")
    both = [list(one.drafts["eagle3"].tensors()) for one in (pickled, whole)]
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))


@pytest.mark.parametrize("golden", golden_rows("eagle3"))
def test_the_draft_layer_gives_the_recorded_numbers(engine_of, golden):
    """Ten rows of text, then two levels of four nodes that are fed outputs of the layer."""
    unit = load_file(golden.folder / "unit.safetensors")
    engine = engine_of(golden, "whole vocabulary")
    draft = engine.drafts["eagle3"]
    drafter = Eagle3Drafter(engine.target, draft, Settings())
    text = unit["tokens"].tolist()
    close = functools.partial(torch.testing.assert_close, atol=golden.within(1e-4, 1e-2), rtol=1e-4)
    with torch.inference_mode():
        drafter.reserve(10)
        drafter.observe([0, *text[:-1]], unit["features"])
        close(drafter._fused[:10], unit["fc_out"])
        visible = torch.ones(10, 10, dtype=torch.bool).tril()
        hidden, logits = drafter._forward(unit["tokens"], drafter._fused[:10], visible, 0)
        close(hidden, unit["hidden"])
        close(logits, unit["logits"][-1:])
        close(draft.model.norm(hidden), unit["normed"])
        close(draft.model.logits(hidden), unit["logits"])
        see = torch.eye(4, dtype=torch.bool)
        level = hidden[-1:].expand(4, -1)
        level1, logits = drafter._forward(unit["level1_tokens"], level, see, 10, together=True)
        close(level1, unit["level1_hidden"])
        close(logits, unit["level1_logits"])
        see = unit["level2_mask"][:, -8:].bool()
        level2, logits = drafter._forward(
            unit["level2_tokens"], level1[unit["level2_parents"]], see, 11, together=True
        )
        close(level2, unit["level2_hidden"])
        close(logits, unit["level2_logits"])


@pytest.mark.parametrize("golden", golden_rows("eagle3"))
def test_the_target_s_features_and_logits_are_the_recorded_ones(engine_of, golden):
    unit = load_file(golden.folder / "unit.safetensors")
    engine = engine_of(golden, "whole vocabulary")
    target = engine.target
    features = Eagle3Drafter(target, engine.drafts["eagle3"], Settings()).features
    assert features.layers == tuple(golden.recorded()["feature_layers"])
    with torch.inference_mode():
        _, found = target.prefill(unit["target_prompt"].tolist(), target.new_cache(16), features)
        logits, _ = target.read(unit["target_prompt"].tolist())
    close = functools.partial(torch.testing.assert_close, atol=golden.within(1e-4, 2e-2), rtol=1e-4)
    close(found, unit["target_features"])
    close(logits, unit["target_logits"])
