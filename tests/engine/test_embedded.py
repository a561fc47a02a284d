"""What is shipped: the embedded model with its heads, tree, accuracies and card, and the recorded runs."""

from __future__ import annotations

import json
import math

import pytest
import tiny
import torch
from transformers import AutoConfig

from medusa_core.checkpoints.locate import embedded_model, has_adapter, tree_beside
from medusa_core.checkpoints.names import HEADS_FOLDER
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.trace.format import read_trace
from medusa_core.trees.tree import Topology, load_tree

ASSETS = embedded_model().parent
TRACES = sorted((ASSETS / "traces").glob("*.json"))
MEGABYTE = 1_000_000
WITH_WEIGHTS = {"hydra", "eagle3", "mtp", "block", "tokenswift", "draft_model"}


def test_it_is_what_the_card_says(shipped):
    config = AutoConfig.from_pretrained(embedded_model())
    assert config.model_type == "llama"
    assert config.num_key_value_heads < config.num_attention_heads
    assert config.max_position_embeddings == 8192
    assert 10e6 <= shipped.info.parameters <= 20e6
    assert medusa_draft(shipped).heads.count == 5
    card = (embedded_model() / "README.md").read_text(encoding="utf-8")
    recipe = json.loads((embedded_model() / "recipe.json").read_text(encoding="utf-8"))
    for source in recipe["sources"]:
        assert all(file.split("/")[-1] in card for file in source["files"])
    for words in ("tools.make_model", "train medusa1", "licence", "Held-out"):
        assert words in card


def test_no_file_is_too_large_for_a_space():
    files = [file for file in ASSETS.rglob("*") if file.is_file()]
    assert files
    assert len(TRACES) >= 3
    assert {file.name for file in files if file.stat().st_size > 10 * MEGABYTE} == set()


def test_every_kind_of_weights_is_shipped_small_and_with_a_card(shipped):
    folders = {folder.name: folder for folder in (embedded_model() / "drafters").iterdir() if folder.is_dir()}
    assert set(shipped.drafts) == {"medusa", *folders} == {"medusa", *WITH_WEIGHTS}
    sizes = {name: sum(file.stat().st_size for file in folder.iterdir()) for name, folder in folders.items()}
    assert sum(sizes.values()) - sizes["tokenswift"] < 40 * MEGABYTE
    for name, folder in folders.items():
        card = (folder / "README.md").read_text(encoding="utf-8")
        assert all(words in card for words in ("license: cc-by-sa-4.0", f"--method {name}"))
        assert "-m medusa_core train" in card or "-m tools.make_model" in card


def test_the_shipped_tree_fits_few_cores_and_the_heads(shipped):
    assert 8 <= medusa_draft(shipped).default_tree.size <= 33
    medusa_draft(shipped).default_tree.check(medusa_draft(shipped).heads.count)
    assert medusa_draft(shipped).tree("default") == medusa_draft(shipped).default_tree


def test_a_gpu_gets_a_larger_tree(shipped):
    file = tree_beside(embedded_model() / HEADS_FOLDER, torch.device("cuda"))
    tree = load_tree(str(file))
    assert tree.size == 64
    tree.check(medusa_draft(shipped).heads.count)


def test_plain_decoding_is_by_the_model_that_the_heads_were_trained_with(shipped):
    """The adapter of their training is merged into the base, so every drafter has the same target."""
    bare = tiny.load_from(heads="none")
    assert bare.drafts == {}
    assert not has_adapter(embedded_model() / HEADS_FOLDER)
    ids = torch.tensor([shipped.encode("Once upon a time, there was a little girl who had a red ball.")])
    with torch.inference_mode():
        without, beside = (engine.target.model(ids).logits for engine in (bare, shipped))
    assert torch.equal(without, beside)


def test_the_measured_accuracies_fall_with_head_and_rank(shipped):
    rows = medusa_draft(shipped).accuracies
    assert len(rows) == medusa_draft(shipped).heads.count
    assert [row[0] for row in rows] == sorted((row[0] for row in rows), reverse=True)
    assert rows[0][0] > 0.4
    assert medusa_draft(shipped).budget_tree(20).size == 21


def test_a_prompt_starts_like_a_document_and_every_text_survives(shipped):
    end = shipped.tokenizer.eos_token_id
    for text in ("Once upon a time", "12 + 3 = 15", "naïve ☃", "tabs\tand\n\nlines"):
        tokens = shipped.encode(text)
        assert tokens[0] == end
        assert shipped.decode_text(tokens) == text


def test_a_chat_reads_like_the_training_dialogues(shipped):
    text = shipped.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi."}], tokenize=False, add_generation_prompt=True
    )
    assert text == "User: Hi.\nAssistant:"


@pytest.mark.parametrize("file", TRACES, ids=lambda file: file.stem)
def test_a_recorded_run_is_whole_and_its_verdicts_follow_from_its_numbers(file):
    """That its parts agree is checked when it is read."""
    trace = read_trace(file)
    assert trace.model.base == "embedded"
    rule, shape = trace.config.acceptance, trace.config.tree  # no shape where each step grows its own
    for step in trace.steps:
        if shape is not None:
            depths = Topology.from_choices(shape).depths
            assert [node.depth for node in step.nodes] == depths[: len(step.nodes)]
        for node in step.nodes[1:] if rule.name == "typical" else ():
            bar = min(rule.settings["epsilon"], rule.settings["delta"] * math.exp(-node.entropy))
            assert node.threshold == pytest.approx(bar, rel=1e-4)
            assert node.passes == (node.p > node.threshold)
