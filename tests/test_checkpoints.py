"""Head files: both formats, pickles and shards read right; anything else refused with its fault named."""

from __future__ import annotations

import json
import os
import pickle
import shutil

import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

from medusa_core import checkpoints
from medusa_core.checkpoints import build_heads, read_heads, save_heads
from medusa_core.config import LoadConfig
from medusa_core.engine import load_engine
from medusa_core.errors import MedusaError
from medusa_core.heads import MedusaHeads

D = 32
V = tiny.VOCABULARY
HIDDEN = torch.randn(4, D, generator=torch.Generator().manual_seed(9))


@pytest.fixture
def lm_head(model):
    return model.get_output_embeddings().weight


def public_state(heads, *, version=1):
    """Tensors under the names the public code writes, in no particular order."""
    state = {}
    for i in reversed(range(heads.count)):
        for j in range(heads.layers):
            state[f"{i}.{j}.linear.weight"] = heads.block_weight[i, j].detach().clone()
            state[f"{i}.{j}.linear.bias"] = heads.block_bias[i, j].detach().clone()
        if version == 1:
            state[f"{i}.{heads.layers}.weight"] = heads.lm_weight[i].detach().clone()
    return state


def write(folder, state, kind="safetensors"):
    folder.mkdir(exist_ok=True)
    if kind == "safetensors":
        save_file(state, folder / "medusa_lm_head.safetensors")
    elif kind == "pt":
        torch.save(state, folder / "medusa_lm_head.pt")
    else:  # shards, as the hub's tools name them
        names = sorted(state)
        for number, part in enumerate((names[::2], names[1::2]), start=1):
            save_file(
                {n: state[n] for n in part}, folder / f"medusa_lm_head-0000{number}-of-00002.safetensors"
            )
    return folder


def load(folder, lm_head):
    return build_heads(read_heads(folder), lm_head, folder)


# --- what can be read --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["safetensors", "pt", "shards"])
@pytest.mark.parametrize(("count", "layers"), [(5, 1), (2, 3), (12, 1)])
@pytest.mark.parametrize("version", [1, 2])
def test_both_formats_in_every_kind_of_file(tmp_path, model, lm_head, kind, count, layers, version):
    """Twelve heads: "10" sorts before "2" as text, so the numbers have to be read as numbers."""
    heads = tiny.random_heads(model, count, layers)
    if version == 2:
        heads = MedusaHeads(heads.block_weight.data, heads.block_bias.data, lm_head)
    read = load(write(tmp_path / "heads", public_state(heads, version=version), kind), lm_head)
    assert (read.count, read.layers, read.shares_lm_head) == (count, layers, version == 2)
    assert torch.equal(read(HIDDEN), heads(HIDDEN))


def test_counts_come_from_the_tensors_not_from_the_config(tmp_path, model, lm_head):
    """The hub's v1.3 configs say 2 heads while their files hold 5."""
    folder = write(tmp_path / "heads", public_state(tiny.random_heads(model, 5)))
    config = {
        "medusa_num_heads": 2,
        "medusa_num_layers": 7,
        "version": "2",
        "base_model_name_or_path": "other",
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    heads = load(folder, lm_head)
    assert (heads.count, heads.layers, heads.shares_lm_head) == (5, 1, False)


def test_heads_take_the_dtype_of_the_base(tmp_path, model, lm_head):
    folder = write(tmp_path / "heads", public_state(tiny.random_heads(model)))
    heads = load(folder, lm_head.to(torch.bfloat16))
    assert {parameter.dtype for parameter in heads.parameters()} == {torch.bfloat16}
    assert not any(parameter.requires_grad for parameter in heads.parameters())


@pytest.mark.parametrize("version", [1, 2])
def test_saved_heads_come_back(tmp_path, model, lm_head, version):
    lm_head = lm_head.to(torch.bfloat16)
    heads = tiny.random_heads(model, 3, 2).to(torch.bfloat16)
    if version == 2:
        heads = MedusaHeads(heads.block_weight.data, heads.block_bias.data, lm_head)
    save_heads(heads, tmp_path / "heads", "some base")
    read = load(tmp_path / "heads", lm_head)
    for name in ("block_weight", "block_bias", "lm_weight"):
        assert torch.equal(getattr(read, name), getattr(heads, name))
    config = json.loads((tmp_path / "heads" / "config.json").read_text(encoding="utf-8"))
    assert config == {
        "base_model_name_or_path": "some base", "medusa_num_heads": 3, "medusa_num_layers": 2,
    } | ({"version": "2"} if version == 2 else {})  # fmt: skip


def test_large_heads_are_saved_in_shards_and_come_back(tmp_path, model, lm_head, monkeypatch):
    monkeypatch.setattr(checkpoints, "SHARD_SIZE", "4KB")
    heads = tiny.random_heads(model)
    save_heads(heads, tmp_path / "heads", "base", torch.float32)
    files = list((tmp_path / "heads").glob("*.safetensors"))
    assert len(files) > 2
    assert torch.equal(load(tmp_path / "heads", lm_head)(HIDDEN), heads(HIDDEN))
    files[0].unlink()
    with pytest.raises(MedusaError, match="but lacks"):
        read_heads(tmp_path / "heads")


def test_saving_again_leaves_no_stale_shards(tmp_path, model, lm_head, monkeypatch):
    monkeypatch.setattr(checkpoints, "SHARD_SIZE", "4KB")
    save_heads(tiny.random_heads(model, 5), tmp_path / "heads", "base", torch.float32)
    monkeypatch.undo()
    heads = tiny.random_heads(model, 2, seed=1)
    save_heads(heads, tmp_path / "heads", "base", torch.float32)
    assert torch.equal(load(tmp_path / "heads", lm_head)(HIDDEN), heads(HIDDEN))


# --- what is refused ---------------------------------------------------------------------------------------


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
    "missing bias": ({"h2__0__linear__bias": None}, r"lacks 2\.0\.linear\.bias"),
    "missing last layer": ({"h1__1__weight": None}, r"lacks 1\.1\.weight"),
    "missing head": (
        {"h1__0__linear__weight": None, "h1__0__linear__bias": None, "h1__1__weight": None},
        r"lacks 1\.0\.linear\.weight",
    ),
    "unknown tensor": ({"hlm_head__weight": torch.zeros(1)}, r"'lm_head\.weight' that belongs to no Medusa"),
    "last layer too many": ({"h0__5__weight": torch.zeros(V, D)}, r"'0\.5\.weight' does not belong"),
    "last layer without blocks": ({"h3__1__weight": torch.zeros(V, D)}, r"'3\.1\.weight' does not belong"),
    "stray huge number": ({"h99999999999__0__linear__weight": torch.zeros(D, D)}, "lacks"),
    "another width in one head": ({"h1__0__linear__weight": torch.zeros(D, D + 1)}, "differ in shape"),
    "another bias in one head": ({"h1__0__linear__bias": torch.zeros(D + 1)}, "differ in shape"),
    "another vocabulary in one head": ({"h1__1__weight": torch.zeros(V + 1, D)}, "differ in shape"),
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


@pytest.mark.parametrize("version", [1, 2])
def test_heads_of_another_base_are_refused(tmp_path, model, version):
    folder = write(tmp_path / "heads", public_state(tiny.random_heads(model), version=version))
    with pytest.raises(MedusaError, match="are 32 wide, the base model 16: they belong to another base"):
        load(folder, torch.zeros(V, 16))
    if version == 1:
        with pytest.raises(
            MedusaError, match="know 24 tokens, the base model 30: they belong to another base"
        ):
            load(folder, torch.zeros(30, D))


@pytest.mark.parametrize("kind", ["safetensors", "pt"])
@pytest.mark.parametrize("keep", [0, 3, 100, 0.5, 0.99])
def test_truncated_files_are_refused(tmp_path, model, kind, keep):
    folder = write(tmp_path / "heads", public_state(tiny.random_heads(model)), kind)
    file = folder / f"medusa_lm_head.{kind}"
    content = file.read_bytes()
    file.write_bytes(content[: keep if isinstance(keep, int) else int(len(content) * keep)])
    with pytest.raises(MedusaError, match=f"cannot read the heads in {folder}"):
        read_heads(folder)


class Trap:
    """A pickle that runs a command when it is loaded carelessly."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


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


@pytest.mark.parametrize("content", [[1, 2], {"0.0.linear.weight": 3}, torch.zeros(2)])
def test_a_pickle_of_something_else_is_no_heads_file(tmp_path, content):
    torch.save(content, tmp_path / "medusa_lm_head.pt")
    with pytest.raises(MedusaError, match="is not a dictionary of tensors"):
        read_heads(tmp_path)


def test_names_that_are_no_text_are_unknown_tensors(tmp_path):
    torch.save({0: torch.zeros(2)}, tmp_path / "medusa_lm_head.pt")
    with pytest.raises(MedusaError, match="tensor 0 that belongs to no Medusa head"):
        read_heads(tmp_path)


def test_folders_without_heads(tmp_path):
    with pytest.raises(MedusaError, match=r"holds no heads: expected medusa_lm_head.safetensors"):
        read_heads(tmp_path)
    save_file({}, tmp_path / "medusa_lm_head.safetensors")
    with pytest.raises(MedusaError, match="holds no Medusa heads"):
        read_heads(tmp_path)


# --- loading a whole engine --------------------------------------------------------------------------------


def load_from(folder, **settings):
    return load_engine(LoadConfig(**({"model": str(folder), "dtype": "float32", "device": "cpu"} | settings)))


def test_the_heads_beside_the_model_are_found(engine, engine_folder, tmp_path):
    loaded = load_from(engine_folder)
    assert torch.equal(loaded.heads(HIDDEN), engine.heads(HIDDEN))
    assert (loaded.info.head_count, loaded.info.dtype, loaded.info.device) == (3, "float32", "cpu")
    assert loaded.info.parameters == sum(p.numel() for p in engine.target.model.parameters())
    beside = tmp_path / "beside"
    shutil.copytree(engine_folder, beside)
    (beside / "heads" / "medusa_lm_head.safetensors").rename(beside / "medusa_lm_head.safetensors")
    assert load_from(beside).heads.count == 3
    (beside / "medusa_lm_head.safetensors").unlink()
    assert load_from(beside).heads is None


@pytest.mark.parametrize(
    ("device", "file"), [("cpu", "tree.json"), ("cuda", "tree-gpu.json"), ("mps", "tree-gpu.json")]
)
def test_each_kind_of_device_has_its_tree(tmp_path, device, file):
    assert checkpoints.tree_beside(tmp_path, torch.device(device)) is None
    (tmp_path / checkpoints.TREE_NAME).write_text("[[0]]", encoding="utf-8")
    assert checkpoints.tree_beside(tmp_path, torch.device(device)).name == "tree.json"
    (tmp_path / checkpoints.GPU_TREE_NAME).write_text("[[0], [1]]", encoding="utf-8")
    assert checkpoints.tree_beside(tmp_path, torch.device(device)).name == file


def test_other_heads_can_be_named(engine_folder, model, tmp_path):
    write(tmp_path / "other", public_state(tiny.random_heads(model, 5)), "pt")
    loaded = load_from(engine_folder, heads=str(tmp_path / "other"))
    assert loaded.heads.count == 5
    assert loaded.tree("default").size == 16  # searched, since these heads bring no tree


def damaged(folder, tmp_path, name, content):
    copy = tmp_path / "damaged"
    shutil.copytree(folder, copy)
    (copy / name).write_bytes(content)
    return copy


def test_damaged_model_folders_are_refused(engine_folder, tmp_path):
    with pytest.raises(MedusaError, match="there is no folder"):
        load_from(tmp_path / "nowhere")
    with pytest.raises(MedusaError, match=r"has no config.json: it is not a model folder"):
        load_from(tmp_path)
    with pytest.raises(MedusaError, match="cannot load a causal language model"):
        load_from(damaged(engine_folder, tmp_path, "config.json", b"{"))


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_truncated_model_weights_are_refused(engine_folder, tmp_path, share):
    content = (engine_folder / "model.safetensors").read_bytes()
    copy = damaged(engine_folder, tmp_path, "model.safetensors", content[: int(len(content) * share)])
    with pytest.raises(MedusaError, match="cannot load a causal language model"):
        load_from(copy)


def test_model_weights_that_lack_a_tensor_are_refused(engine_folder, tmp_path):
    """transformers fills the gap with random numbers and a warning; here nothing may be random in silence."""
    copy = tmp_path / "model"
    shutil.copytree(engine_folder, copy)
    state = load_file(copy / "model.safetensors")
    del state["model.layers.1.mlp.up_proj.weight"]
    save_file(state, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(MedusaError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        load_from(copy)


def test_tied_weights_are_not_missing(tmp_path):
    model = tiny.build_model(tiny.tiny_config(tie_word_embeddings=True))
    model.save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    weights = load_from(tmp_path).target.model.get_output_embeddings().weight
    assert torch.equal(weights, model.get_input_embeddings().weight)


def test_a_damaged_tree_or_tokenizer_is_refused(engine_folder, tmp_path):
    with pytest.raises(MedusaError, match="is not JSON"):
        load_from(damaged(engine_folder, tmp_path / "a", "heads/tree.json", b"[[0]"))
    with pytest.raises(MedusaError, match="cannot load the tokenizer"):
        load_from(damaged(engine_folder, tmp_path / "b", "tokenizer.json", b"{"))


def test_a_missing_device_is_named(engine_folder):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(MedusaError, match="no cuda device here: use --device"):
        load_from(engine_folder, device="cuda")
