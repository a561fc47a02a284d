"""TokenSwift's heads as files: the public layout out and in, alone or with their model, and named faults."""

from __future__ import annotations

import json
import re

import pytest
import tiny
import torch
from head_files import refusal, settings
from safetensors.torch import load_file, save_file
from tokenswift_heads import HEADS, random_tokenswift

from medusa_core.checkpoints.files import read_pickled
from medusa_core.config import GenerationConfig
from medusa_core.drafters import owner_of
from medusa_core.drafters.tokenswift.files import save_heads
from medusa_core.errors import MedusaError
from medusa_core.loading.load import load_engine
from medusa_core.loading.memory import estimate_memory

FILE, D = "model.safetensors", 32
NAMES = {
    f"model.medusa_layers.{head}.{part}.weight"
    for head in range(HEADS) for part in ("linear", "input_layernorm", "post_layernorm")
}  # fmt: skip


@pytest.fixture
def folder(model, tmp_path):
    """Heads alone, in float32."""
    save_heads(random_tokenswift(model), tmp_path / "heads", "../base", torch.float32)
    return tmp_path / "heads"


def test_heads_come_back_as_they_were_saved(model, base, folder):
    assert owner_of(folder) == "tokenswift"
    assert set(load_file(folder / FILE)) == NAMES
    engine = load_engine(settings(base, folder))
    assert engine.info.drafts == (f"{HEADS} TokenSwift heads",)
    loaded, saved = engine.drafts["tokenswift"].heads, random_tokenswift(model)
    for ours, wanted in zip(loaded.parameters(), saved.parameters(), strict=True):
        assert torch.equal(ours, wanted)
    assert loaded.epsilon == model.config.rms_norm_eps
    run = GenerationConfig.of(method="tokenswift", max_new_tokens=12)
    said = tiny.emitted(engine.stream(tiny.PROMPT, run))
    assert said == tiny.transformers_greedy(model, tiny.PROMPT, 12)


def test_heads_alone_name_their_base(base, folder):
    engine = load_engine(settings("", folder))
    assert (engine.info.base, engine.info.heads) == ("base", "heads")
    assert load_engine(settings(folder, "")).info.base == "base"


def test_a_whole_model_brings_its_heads_by_its_own_name(model, base, folder, tmp_path):
    """The public code keeps both in one checkpoint, here in shards."""
    whole = tmp_path / "whole"
    model.save_pretrained(whole)
    tiny.tiny_tokenizer().save_pretrained(whole)
    weights, heads = load_file(whole / FILE), load_file(folder / FILE)
    (whole / FILE).unlink()
    parts = {"model-00001-of-00002.safetensors": weights, "model-00002-of-00002.safetensors": heads}
    for name, state in parts.items():
        save_file(state, whole / name, {"format": "pt"})
    index = {"metadata": {}, "weight_map": {key: name for name, state in parts.items() for key in state}}
    (whole / f"{FILE}.index.json").write_text(json.dumps(index), "utf-8")
    change_config(whole, medusa_heads=HEADS)
    assert owner_of(whole) == "tokenswift"
    engine = load_engine(settings(whole, whole))
    for ours, wanted in zip(
        engine.drafts["tokenswift"].tensors(), random_tokenswift(model).parameters(), strict=True
    ):
        assert torch.equal(ours, wanted)
    assert engine.drafts["tokenswift"].heads.lm_head.equal(engine.target.held.lm_head())


def test_the_estimate_counts_the_heads_and_no_cache_by_rows(base, folder):
    wanted = HEADS * (D * D + 2 * D) * 4
    assert estimate_memory(settings(base, folder)).heads == wanted
    (folder / FILE).unlink()  # before anything large is fetched
    assert estimate_memory(settings(base, folder)).heads == wanted


def test_what_lies_beside_heads_is_read(base, folder):
    (folder / "tree.json").write_text("[[0], [0, 0], [0, 1]]", "utf-8")
    (folder / "accuracies.json").write_text(json.dumps([[0.5, 0.1], [0.4, 0.1], [0.3, 0.1]]), "utf-8")
    engine = load_engine(settings(base, folder))
    draft = engine.drafts["tokenswift"]
    assert len(draft.tree("default").choices) == 3
    assert draft.accuracies[0] == [0.5, 0.1]
    assert draft.budget_tree(3).choices == ((0,), (0, 0), (0, 0, 0))


def change_config(folder, **changes):
    file = folder / "config.json"
    data = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    file.write_text(json.dumps(data | changes), "utf-8")


def put(name, tensor):
    return lambda state: state.update({name: tensor})


FIRST = "model.medusa_layers.0."
FAULTS = {
    "a gap": (lambda state: state.pop(f"{FIRST}linear.weight"), {}, r"lacks model\.medusa_layers\.0\.linear"),
    "a stranger": (
        put(f"{FIRST}bias", torch.zeros(D)), {}, r"holds 'model\.medusa_layers\.0\.bias', which"
    ),
    "fewer heads": (dict, {"medusa_heads": 4}, r"lacks model\.medusa_layers\.3\.input_layernorm"),
    "no number": (dict, {"medusa_heads": "3"}, r"medusa_heads is '3': it must be .* from 1 to 64"),
    "no heads": (lambda state: state.clear() or state.update(x=torch.zeros(1)), {}, r"lacks model\.medusa"),
    "NaN": (put(f"{FIRST}post_layernorm.weight", torch.full((D,), torch.nan)), {}, r"NaN or infinity"),
    "a shape": (put(f"{FIRST}input_layernorm.weight", torch.zeros(D + 1)), {}, r"\[33\].* must be \[32\]"),
    "whole numbers": (put(f"{FIRST}linear.weight", torch.zeros(D, D).long()), {}, r"is int64, it must hold"),
}  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(base, folder, fault):
    change, config, words = FAULTS[fault]
    state = load_file(folder / FILE)
    change(state)
    save_file(state, folder / FILE, {"format": "pt"})
    change_config(folder, **config)
    said = refusal(base, folder)
    assert re.search(words, said), said
    assert re.search("fetch|name another|give --heads", said)


def test_heads_of_another_base_are_refused(folder, tmp_path):
    other = tmp_path / "other"
    tiny.build_model(tiny.tiny_config(hidden_size=40)).save_pretrained(other)
    tiny.tiny_tokenizer().save_pretrained(other)
    said = refusal(other, folder)
    assert re.search("are 32 wide, the base model 40: they belong to another base, so give --heads", said)


def test_a_file_that_was_cut_off_or_is_missing_is_named(base, folder):
    (folder / FILE).write_bytes((folder / FILE).read_bytes()[:500])
    assert "model.safetensors is damaged or cut off" in refusal(base, folder)
    (folder / FILE).unlink()
    assert "has no model.safetensors: fetch or save the heads again" in refusal(base, folder)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"model.medusa_layers.0.linear.weight": torch.eye(4).to_sparse()}, "not a plain tensor"),
        ({"model.medusa_layers.0.linear.weight": torch.empty(4, 4, device="meta")}, "not a plain tensor"),
    ],
)
def test_a_pickle_of_other_tensors_is_refused(tmp_path, state, words):
    torch.save(state, tmp_path / "pytorch_model.bin")
    with pytest.raises(MedusaError, match=words):
        read_pickled(tmp_path / "pytorch_model.bin")
