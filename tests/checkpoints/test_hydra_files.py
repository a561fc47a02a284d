"""Hydra heads as files: the public layout out and in, what they take, and faults named in a sentence."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import tiny
import torch
from head_files import refusal, settings
from hydra_heads import HEADS, random_hydra
from safetensors.torch import save_file

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters import owner_of
from medusa_core.drafters.hydra import files
from medusa_core.drafters.hydra.files import read_state, save_heads
from medusa_core.drafters.hydra.layout import EMBEDDING, PREFIX_EMBEDDING, to_public
from medusa_core.loading.load import load_engine
from medusa_core.loading.memory import estimate_memory

KINDS = ["mlp", "prefix-mlp"]
V, D = tiny.VOCABULARY, 32
FILE = "hydra_lm_head"


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


def saved(model, folder, kind, *, pickled=False, count=HEADS, layers=3):
    """A folder as the public code writes it, and the heads in it."""
    heads = random_hydra(model, prefix=kind == "prefix-mlp", count=count, layers=layers)
    embedding = model.get_input_embeddings().weight
    save_heads(heads, folder, "../base", embedding, torch.float32)
    if pickled:
        for file in folder.glob(f"{FILE}*"):
            file.unlink()
        torch.save(to_public(heads, embedding), folder / f"{FILE}.pt")
    return heads


def altered(folder, change, config=None):
    """The folder with its tensors changed by a function, as a plain ``.pt``, and its config."""
    state = read_state(folder)
    change(state)
    for file in folder.glob(f"{FILE}*"):
        file.unlink()
    torch.save(state, folder / f"{FILE}.pt")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | (config or {})), encoding="utf-8")
    return folder


@pytest.mark.parametrize("pickled", [False, True], ids=["safetensors", "pt"])
def test_heads_come_back_as_they_were_saved(model, base, tmp_path, kind, pickled):
    """The public code's names; the block that it repeats is held once; the engine drafts with them."""
    folder = tmp_path / "heads"
    heads = saved(model, folder, kind, pickled=pickled)
    assert owner_of(folder) == "hydra"
    names = set(read_state(folder))
    number, last = ("1", ".1") if kind == "prefix-mlp" else ("0", "")
    assert {f"hydra_mlp.2.{number}.res_connection.bias", f"hydra_lm_head.2{last}.weight", EMBEDDING} <= names
    assert (PREFIX_EMBEDDING in names) == (kind == "prefix-mlp")
    engine = load_engine(settings(base, folder))
    assert (engine.info.drafts, engine.info.notes) == ((f"{HEADS} Hydra heads",), ())
    loaded = engine.drafts["hydra"].heads
    assert len(list(loaded.parameters())) == len(list(heads.parameters()))
    for ours, theirs in zip(loaded.parameters(), heads.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    run = GenerationConfig.of(method="hydra", tree="cartesian-3x2", max_new_tokens=12)
    kept = replace(engine, drafts={"hydra": replace(engine.drafts["hydra"], heads=heads)})
    trees = [[step.tree.tokens.tolist() for step in one.stream(tiny.PROMPT, run)] for one in (engine, kept)]
    assert trees[0] == trees[1]


@pytest.mark.sample
@pytest.mark.parametrize("pickled", [False, True], ids=["safetensors", "pt"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_estimate_counts_what_is_held(model, base, tmp_path, kind, pickled, dtype):
    folder = tmp_path / "heads"
    saved(model, folder, kind, pickled=pickled)
    estimate = estimate_memory(settings(base, folder, dtype=dtype))
    engine = load_engine(settings(base, folder, dtype=dtype))
    assert estimate.heads == sum(tensor.nbytes for tensor in engine.drafts["hydra"].tensors())
    bare = estimate_memory(settings(base, "none", dtype=dtype))
    rows = engine.target.context + 64
    row = 2 * 2 * 8 * engine.target.dtype.itemsize  # keys and values of two heads of eight numbers
    assert estimate.cache - bare.cache == (rows * row if kind == "prefix-mlp" else 0)
    for file in folder.glob(f"{FILE}*"):  # as before the hub's large files are fetched
        file.unlink()
    assert owner_of(folder) == "hydra"
    assert estimate_memory(settings(base, folder, dtype=dtype)).heads == estimate.heads


def test_the_heads_bring_their_tree_and_name_their_base(model, base, tmp_path, kind):
    folder = base.parent / "heads"
    saved(model, folder, kind)
    (folder / "tree.json").write_text("[[0], [1], [0, 3]]", encoding="utf-8")
    engine = load_engine(LoadConfig(heads=str(folder), dtype="float32", device="cpu"))
    tree = engine.fixed_tree(GenerationConfig.of(method="hydra"))
    assert tree.choices == ((0,), (1,), (0, 3))
    assert len(engine.fixed_tree(GenerationConfig.of(method="hydra", tree="cartesian-2x2")).choices) == 6


def put(**tensors):
    """A change of some tensors; "__" stands for "."."""
    return lambda state: state.update({name.replace("__", "."): tensor for name, tensor in tensors.items()})


def same(state):
    """No change: the config is at fault."""


FAULTS = {
    "a missing tensor": (
        lambda state: state.pop("hydra_mlp.1.0.res_connection.bias"), {},
        r"lacks hydra_mlp\.1\.0\.res_connection\.bias",
    ),
    "a strange tensor": (put(strange=torch.zeros(1)), {}, r"'strange', which does not belong"),
    "fewer heads": (same, {"hydra_num_heads": 4}, r"lacks hydra_lm_head\.3\.bias"),
    "more layers": (same, {"hydra_num_layers": 4}, r"lacks hydra_mlp\.0\.3\.linear\.bias"),
    "fewer layers": (same, {"hydra_num_layers": 2}, r"'hydra_mlp\.0\.2\.linear\.bias', which does not"),
    "no number": (same, {"hydra_num_heads": None}, r"hydra_num_heads is None: it must be a whole"),
    "no Hydra tensors": (lambda state: state.clear(), {}, r"lacks hydra_lm_head\.0\.bias"),
    "another kind": (same, {"hydra_head_arch": "eagle-attn"}, r"'eagle-attn' .* use mlp or prefix-mlp"),
    "the other kind": (same, {"hydra_head_arch": "prefix-mlp"}, r"lacks hydra_lm_head\.0\.1\.bias"),
    "heads that see no drafts": (same, {"grounded_heads": False}, r"grounded_heads false"),
    "another hidden state": (same, {"hidden_state_offset": 1}, r"1 layers before the last .*offset"),
    "NaN": (put(hydra_lm_head__1__bias=torch.full((V,), torch.nan)), {}, r"NaN or infinity"),
    "a shape": (put(hydra_lm_head__2__weight=torch.zeros(V, D + 1)), {}, r"must be \[24, 32\]"),
    "a lone number": (put(hydra_mlp__0__0__linear__weight=torch.tensor(1.0)), {}, r"are 0 wide"),
    "a complex copy": (put(input_embed_fn__weight=torch.zeros(V, D) + 0j), {}, r"not a plain tensor"),
    "whole numbers": (put(hydra_lm_head__2__bias=torch.zeros(V).long()), {}, r"is int64, it must hold"),
}  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(model, base, tmp_path, fault):
    change, config, words = FAULTS[fault]
    saved(model, tmp_path / "heads", "mlp")
    said = refusal(base, altered(tmp_path / "heads", change, config))
    assert re.search(words, said), said


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"hidden_size": 40}, r"are 32 wide, the base model 40: they belong to another base"),
        ({"vocab_size": 30}, r"know 24 tokens, the base model 30: they belong to another base"),
        ({"kv_heads": 4}, r"self_attn\.k_proj\.weight .* has shape \[16, 32\].* must be \[32, 32\]"),
    ],
    ids=["hidden size", "vocabulary", "prefix layer"],
)
def test_heads_of_another_base_are_refused(model, tmp_path, shape, words):
    other = tmp_path / "other"
    tiny.build_model(tiny.tiny_config(**({"kv_heads": 2} | shape))).save_pretrained(other)
    tiny.tiny_tokenizer().save_pretrained(other)
    saved(model, tmp_path / "heads", "prefix-mlp")
    assert re.search(words, refusal(other, tmp_path / "heads"))


def test_a_base_of_the_same_size_is_told_by_its_embedding(model, tmp_path, kind):
    other = tmp_path / "other"
    tiny.build_model(tiny.tiny_config(kv_heads=2), seed=77).save_pretrained(other)
    tiny.tiny_tokenizer().save_pretrained(other)
    saved(model, tmp_path / "heads", kind)
    (note,) = load_engine(settings(other, tmp_path / "heads")).info.notes
    assert "the heads may belong to another base" in note


def test_safetensors_of_another_hand_need_no_notes_of_shared_tensors(model, base, tmp_path):
    folder = tmp_path / "heads"
    saved(model, folder, "mlp")
    state = {name: tensor.clone() for name, tensor in read_state(folder).items()}
    for file in folder.glob(f"{FILE}*"):
        file.unlink()
    save_file(state, folder / f"{FILE}.safetensors")
    assert load_engine(settings(base, folder)).drafts["hydra"].heads.layers == 3


def test_a_config_without_its_tensors_is_named(model, base, tmp_path):
    saved(model, tmp_path / "heads", "mlp")
    for file in (tmp_path / "heads").glob(f"{FILE}*"):
        file.unlink()
    assert "no hydra_lm_head.safetensors or hydra_lm_head.pt" in refusal(base, tmp_path / "heads")


@pytest.mark.parametrize("shard", [10**9, 5000], ids=["one file", "shards"])
def test_lm_heads_that_are_the_same_are_held_once(model, base, tmp_path, monkeypatch, shard):
    monkeypatch.setattr(files, "SHARD_SIZE", shard)
    heads = random_hydra(model, prefix=False)
    for number in range(1, HEADS):
        heads.head(number).last.load_state_dict(heads.head(0).last.state_dict())
    folder = tmp_path / "heads"
    save_heads(heads, folder, "../base", model.get_input_embeddings().weight, torch.float32)
    assert (len(list(folder.glob("*.safetensors"))) > 1) == (shard == 5000)
    loaded = load_engine(settings(base, folder)).drafts["hydra"].heads
    assert all(loaded.head(number).last is loaded.head(0).last for number in range(HEADS))
    for number in range(HEADS):
        for ours, theirs in zip(
            loaded.head(number).parameters(), heads.head(number).parameters(), strict=True
        ):
            assert torch.equal(ours, theirs)
    counted = estimate_memory(settings(base, folder)).heads // 4
    assert counted >= sum(tensor.numel() for tensor in loaded.parameters())
