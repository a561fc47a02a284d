"""EAGLE-3 against runs recorded from the public code (data beside the repository, when present).

Every tree of every step: its tokens, its shape, the drafter's scores, and what is kept of it.
"""

from __future__ import annotations

import functools
import json
import shutil

import pytest
import torch
from paths import BESIDE
from safetensors.torch import load_file, save_file

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.eagle3 import Settings
from medusa_core.drafters.eagle3.drafter import Eagle3Drafter
from medusa_core.loading.load import load_engine

GOLDEN = BESIDE / "golden" / "eagle3"
RUNS = {"whole vocabulary": "runs.json", "150 tokens": "runs_v150.json"}

pytestmark = pytest.mark.skipif(
    not (GOLDEN / "runs.json").is_file(), reason="no golden runs of EAGLE-3 beside the repository"
)


@functools.cache
def recorded(kind):
    return json.loads((GOLDEN / RUNS[kind]).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def engine_of(tmp_path_factory):
    """Loads the target with one of the two draft models, from their files."""

    @functools.cache
    def load(kind):
        heads = GOLDEN / "models" / "draft"
        if kind != "whole vocabulary":
            overlay = load_file(GOLDEN / "models" / "draft_v150_overlay.safetensors")
            part = tmp_path_factory.mktemp("draft")
            config = json.loads((heads / "config.json").read_text(encoding="utf-8"))
            (part / "config.json").write_text(json.dumps(config | {"draft_vocab_size": 150}))
            save_file(load_file(heads / "model.safetensors") | overlay, part / "model.safetensors")
            heads = part
        names = {"model": str(GOLDEN / "models" / "target"), "heads": str(heads)}
        return load_engine(LoadConfig(**names, dtype="float32", device="cpu"))

    return load


def cases():
    if not (GOLDEN / "runs.json").is_file():
        return []
    return [(kind, number) for kind in RUNS for number in range(len(recorded(kind)["runs"]))]


@pytest.mark.sample(8)
@pytest.mark.parametrize(("kind", "number"), cases())
def test_every_step_is_the_recorded_one(engine_of, kind, number):
    golden = recorded(kind)
    run = golden["runs"][number]
    config = GenerationConfig.of(
        method="eagle3",
        draft_top_k=run["top_k"],
        draft_depth=run["depth"] + 1,
        draft_nodes=run["total_token"] - 1,
        max_new_tokens=2 * len(run["output_ids"]),
        ignore_eos=True,
    )
    steps = engine_of(kind).stream(golden["prompts"][run["prompt"]], config)
    for wanted in run["steps"]:
        step = next(steps)
        tree = step.tree
        assert step.cache_length == wanted["ctx"]
        assert tree.tokens.tolist() == wanted["draft_tokens"]
        assert tree.parents == wanted["parents"]
        assert "".join(map(str, tree.depths)) == wanted["tree_position_ids"]
        sums = tree.mask.float() @ tree.draft_logp  # along each node's path
        assert sums[1:].tolist() == pytest.approx(wanted["scores"], abs=2e-4)
        assert step.emitted == wanted["emitted"]
        assert step.verdict.bonus == wanted["next_root"]
    assert len(run["steps"]) == run["steps_n"]


def test_the_pickle_holds_the_same_weights(engine_of, tmp_path):
    shutil.copy(GOLDEN / "models" / "draft" / "config.json", tmp_path)
    shutil.copy(GOLDEN / "models" / "draft" / "pytorch_model.bin", tmp_path)
    names = {"model": str(GOLDEN / "models" / "target"), "heads": str(tmp_path)}
    pickled = load_engine(LoadConfig(**names, dtype="float32", device="cpu"))
    both = [list(one.drafts["eagle3"].tensors()) for one in (pickled, engine_of("whole vocabulary"))]
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))


def test_the_draft_layer_gives_the_recorded_numbers(engine_of):
    """Ten rows of text, then two levels of four nodes that are fed outputs of the layer."""
    unit = load_file(GOLDEN / "unit.safetensors")
    draft = engine_of("whole vocabulary").drafts["eagle3"]
    drafter = Eagle3Drafter(draft, torch.device("cpu"), Settings())
    text = unit["tokens"].tolist()
    close = functools.partial(torch.testing.assert_close, atol=1e-4, rtol=1e-4)
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


def test_the_target_s_features_and_logits_are_the_recorded_ones(engine_of):
    unit = load_file(GOLDEN / "unit.safetensors")
    target = engine_of("whole vocabulary").target
    features = Eagle3Drafter(
        engine_of("whole vocabulary").drafts["eagle3"], target.device, Settings()
    ).features
    assert features.layers == tuple(recorded("whole vocabulary")["feature_layers"])
    with torch.inference_mode():
        _, found = target.prefill(unit["target_prompt"].tolist(), target.new_cache(16), features)
        logits, _ = target.read(unit["target_prompt"].tolist())
    torch.testing.assert_close(found, unit["target_features"], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits, unit["target_logits"], atol=1e-4, rtol=1e-4)
