"""Heads that are not as they should be: refused with the fault named, and nothing in a file is executed."""

from __future__ import annotations

import json
import pickle

import pytest
import tiny
import torch
from bad_input import Trap
from head_files import D, load, public_state, vllm_state, write, write_full, write_vllm
from safetensors.torch import load_file, save_file

from medusa_core.checkpoints.heads import read_heads
from medusa_core.drafters import draft_size
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.errors import MedusaError

V = tiny.VOCABULARY


def changed(state, **changes):
    """The state with tensors replaced, or left out when None; "__" stands for "."."""
    for name, tensor in changes.items():
        key = name.replace("__", ".").removeprefix("h")
        if tensor is None:
            del state[key]
        else:
            state[key] = tensor
    return state


FAULTS = {
    "missing weight": ({"h1__0__linear__weight": None}, r"lacks 1\.0\.linear\.weight"),
    "missing head": (
        {"h1__0__linear__weight": None, "h1__0__linear__bias": None, "h1__1__weight": None},
        r"lacks 1\.0\.linear\.weight",
    ),
    "unknown tensor": ({"hlm_head__weight": torch.zeros(1)}, r"'lm_head\.weight' that belongs to no Medusa"),
    "last layer too many": ({"h0__5__weight": torch.zeros(V, D)}, r"'0\.5\.weight' does not belong"),
    "last layer without blocks": ({"h3__1__weight": torch.zeros(V, D)}, r"'3\.1\.weight' does not belong"),
    "stray huge number": ({"h99999999999__0__linear__weight": torch.zeros(D, D)}, "lacks"),
    "another width in one head": ({"h1__0__linear__weight": torch.zeros(D, D + 1)}, "differ in shape"),
    "biases of another width": (
        {f"h{i}__0__linear__bias": torch.zeros(D + 1) for i in range(3)}, "do not fit together"
    ),
    "blocks that are not square": (
        {f"h{i}__0__linear__weight": torch.zeros(D + 1, D) for i in range(3)}, "do not fit together"
    ),
    "last layers of another width": (
        {f"h{i}__1__weight": torch.zeros(V, D + 1) for i in range(3)}, "do not fit together"
    ),
    "numbers instead of matrices": (
        {f"h{i}__0__linear__{kind}": torch.tensor(1.0) for i in range(3) for kind in ("weight", "bias")},
        "do not fit together",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_tensors_are_refused_with_the_fault_named(fault, tmp_path, model):
    changes, message = FAULTS[fault]
    folder = write(tmp_path / "heads", changed(public_state(tiny.random_heads(model)), **changes))
    with pytest.raises(MedusaError, match=message) as caught:
        read_heads(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("how", ["plain pickle", "torch.save"])
def test_code_in_a_pickle_is_not_executed(tmp_path, how):
    mark = tmp_path / "executed"
    file = tmp_path / "medusa_lm_head.pt"
    state = {"0.0.linear.weight": Trap(mark)}
    if how == "torch.save":
        torch.save(state, file)
    else:
        file.write_bytes(pickle.dumps(state))
    with pytest.raises(MedusaError, match="cannot read the heads"):
        read_heads(tmp_path)
    assert not mark.exists()
    pickle.loads(pickle.dumps(state))  # the trap itself works
    assert mark.is_dir()


def size(folder):
    return draft_size(folder, None)  # the file is refused before a base is looked at


@pytest.mark.parametrize("content", [[1, 2], {"0.0.linear.weight": 3}, torch.zeros(2)])
@pytest.mark.parametrize(("read", "name"), [(read_heads, "medusa"), (size, "medusa"), (size, "hydra")])
def test_a_pickle_of_something_else_is_no_heads_file(tmp_path, content, read, name):
    torch.save(content, tmp_path / f"{name}_lm_head.pt")
    (tmp_path / "config.json").write_text(
        json.dumps({f"{name}_num_{what}": 1 for what in ("heads", "layers")})
    )
    with pytest.raises(MedusaError, match="is not a dictionary of tensors"):
        read(tmp_path)


OTHER_KINDS = {
    "nested": lambda ones: torch.nested.nested_tensor([ones, ones[:1]]),
    "quantised": lambda ones: torch.quantize_per_tensor(ones, 0.1, 0, torch.qint8),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_an_estimate_does_not_call_a_file_damaged_that_is_of_another_kind(tmp_path, kind):
    state = {"0.0.linear.weight": OTHER_KINDS[kind](torch.ones(2, 3))}
    torch.save(state, tmp_path / "medusa_lm_head.pt")
    with pytest.raises(MedusaError, match="holds nested or quantised tensors: save dense ones"):
        size(tmp_path)


def test_names_that_are_no_text_are_refused(tmp_path):
    torch.save({0: torch.zeros(2)}, tmp_path / "medusa_lm_head.pt")
    with pytest.raises(MedusaError, match="calls a tensor 0, which is not a string"):
        read_heads(tmp_path)


def test_a_head_of_another_dtype_is_refused(tmp_path, model):
    """Stacked with the others it would change their dtype without a word."""
    state = public_state(tiny.random_heads(model))
    state["1.0.linear.weight"] = state["1.0.linear.weight"].double()
    with pytest.raises(MedusaError, match="are float32, float64: they must be of one"):
        read_heads(write(tmp_path / "heads", state))


INDEXES = {
    "no JSON": ("{", "is not JSON"),
    "no map": ("{}", "has no weight_map"),
    "a missing shard": ('{"weight_map": {"0.0.linear.weight": "x.safetensors"}}', "names x.safetensors, w"),
    "a path": ('{"weight_map": {"0.0.linear.weight": "../x.safetensors"}}', "names ../x.safetensors, which"),
}  # fmt: skip


@pytest.mark.parametrize("fault", INDEXES)
def test_a_faulty_index_is_refused(tmp_path, model, fault):
    content, message = INDEXES[fault]
    folder = write(tmp_path / "heads", public_state(tiny.random_heads(model)), "shards")
    save_file({}, tmp_path / "x.safetensors")  # the path's target is there
    (folder / "medusa_lm_head.safetensors.index.json").write_text(content, encoding="utf-8")
    with pytest.raises(MedusaError, match=message):
        read_heads(folder)


# --- vLLM's format -----------------------------------------------------------------------------------------


VLLM_FAULTS = {
    "missing block": ({"blocks.1.layers.0.weight": None}, r"lacks blocks\.1\.layers\.0\.weight"),
    "missing LM head": ({"lm_heads.1.weight": None}, r"lacks lm_heads\.1\.weight"),
    "LM head too many": ({"lm_heads.7.weight": torch.zeros(V, D)}, r"'lm_heads\.7\.weight' does not belong"),
    "unknown tensor": ({"0.0.linear.weight": torch.zeros(D, D)}, "that belongs to no Medusa head"),
    "two kinds of LM head": ({"lm_head.weight": torch.zeros(V, D)}, r"has both lm_head\.weight and lm_heads"),
    "no blocks": (
        {f"blocks.{i}.layers.0.{part}": None for i in range(3) for part in ("weight", "bias")},
        r"no tensor is called blocks\.0\.layers\.0\.weight",
    ),
    "more mapped tokens than rows": ({"token_map": torch.arange(V + 1)}, "must name one token, each once"),
    "a token twice": ({"token_map": torch.zeros(V, dtype=torch.long)}, "must name one token, each once"),
    "a map of fractions": ({"token_map": torch.rand(V)}, "must name one token, each once"),
}


@pytest.mark.parametrize("fault", VLLM_FAULTS)
def test_faulty_vllm_heads_are_refused(tmp_path, model, fault):
    changes, message = VLLM_FAULTS[fault]
    state = vllm_state(tiny.random_heads(model)) | changes
    folder = write_vllm(tmp_path / "heads", {n: t for n, t in state.items() if t is not None})
    with pytest.raises(MedusaError, match=message):
        read_heads(folder)


def test_a_shared_lm_head_that_is_no_matrix_is_refused(tmp_path, model):
    heads = tiny.random_heads(model)
    shared = MedusaHeads(heads.block_weight.data, heads.block_bias.data, heads.lm_weight[0].data)
    state = vllm_state(shared) | {"lm_head.weight": torch.zeros(V)}
    with pytest.raises(MedusaError, match=r"has shape \[24\], it must be a matrix"):
        read_heads(write_vllm(tmp_path, state))


def test_tokens_the_base_does_not_have_are_refused(tmp_path, model):
    state = vllm_state(tiny.random_heads(model)) | {"token_map": torch.arange(V) + 10}
    with pytest.raises(MedusaError, match="know token 33, the base model has 24"):
        load(write_vllm(tmp_path, state), model.get_output_embeddings().weight)


def test_vllm_folders_without_weights(tmp_path):
    with pytest.raises(MedusaError, match="holds no Medusa heads"):
        read_heads(write_vllm(tmp_path, {}))


# --- inside a model ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 3])
def test_a_gap_among_the_heads_of_a_model_is_refused(tmp_path, engine_folder, model, shards):
    heads = tiny.random_heads(model)
    folder = write_full(tmp_path / "full", engine_folder, heads, shards)
    assert read_heads(folder).count == 3
    for file in folder.glob("*.safetensors"):
        state = load_file(file)
        state.pop("medusa_head.1.1.weight", None)
        save_file(state, file, {"format": "pt"})
    with pytest.raises(MedusaError, match=r"3 heads of 1 layers but lacks 1\.1\.weight"):
        read_heads(folder)


def test_a_stranger_among_the_heads_of_a_model_is_refused(tmp_path, engine_folder, model):
    folder = write_full(tmp_path / "full", engine_folder, tiny.random_heads(model), 1)

    state = load_file(folder / "model.safetensors") | {"medusa_head.norm.weight": torch.ones(D)}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(MedusaError, match=r"'norm\.weight' that belongs to no Medusa head"):
        read_heads(folder)
