"""EAGLE-3 against runs recorded from the public code (tests/golden).

Every tree of every step: its tokens, its shape, the drafter's scores, and what is kept of it.
"""

from __future__ import annotations

import functools
import json
import shutil

import pytest
import torch
from golden import Golden, golden_rows
from safetensors.torch import load_file, save_file

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.eagle3 import Settings
from medusa_core.drafters.eagle3.drafter import Eagle3Drafter
from medusa_core.loading.load import load_engine

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
        names = {"model": str(models / "target"), "heads": str(heads)}
        return load_engine(LoadConfig(**names, dtype="float32", device="cpu"))

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
        method="eagle3",
        draft_top_k=run["top_k"],
        draft_depth=run["depth"] + 1,
        draft_nodes=run["total_token"] - 1,
        max_new_tokens=2 * len(run["output_ids"]),
        ignore_eos=True,
    )
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
    names = {"model": str(models / "target"), "heads": str(tmp_path)}
    pickled = load_engine(LoadConfig(**names, dtype="float32", device="cpu"))
    whole = engine_of(golden, "whole vocabulary")
    both = [list(one.drafts["eagle3"].tensors()) for one in (pickled, whole)]
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))


@pytest.mark.parametrize("golden", golden_rows("eagle3"))
def test_the_draft_layer_gives_the_recorded_numbers(engine_of, golden):
    """Ten rows of text, then two levels of four nodes that are fed outputs of the layer."""
    unit = load_file(golden.folder / "unit.safetensors")
    draft = engine_of(golden, "whole vocabulary").drafts["eagle3"]
    drafter = Eagle3Drafter(draft, torch.device("cpu"), Settings())
    text = unit["tokens"].tolist()
    close = functools.partial(torch.testing.assert_close, atol=golden.within(1e-4, 1e-2), rtol=1e-4)
    with torch.inference_mode():
        drafter._append([0, *text[:-1]], unit["features"])
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
    features = Eagle3Drafter(engine.drafts["eagle3"], target.device, Settings()).features
    assert features.layers == tuple(golden.recorded()["feature_layers"])
    with torch.inference_mode():
        _, found = target.prefill(unit["target_prompt"].tolist(), target.new_cache(16), features)
        logits, _ = target.read(unit["target_prompt"].tolist())
    close = functools.partial(torch.testing.assert_close, atol=golden.within(1e-4, 2e-2), rtol=1e-4)
    close(found, unit["target_features"])
    close(logits, unit["target_logits"])
