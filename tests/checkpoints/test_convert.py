"""Conversion: every format into every other and back, bit for bit; what engines read; what is refused."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest
import tiny
import torch
from head_files import (
    BASE_KEY,
    HIDDEN,
    config_of,
    heads_of,
    hub_repository,
    named_heads,
    public_state,
    same,
    tensors_in,
    to,
    vllm_state,
    write,
    write_vllm,
)
from huggingface_hub import constants
from safetensors.torch import load_file

from medusa_core.checkpoints.convert import FORMATS, ConversionRequest, convert
from medusa_core.cli.main import main
from medusa_core.config import LoadConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError
from medusa_core.loading.load import load_engine
from medusa_core.trees.tree import load_tree

V = tiny.VOCABULARY


# --- every format into every other -------------------------------------------------------------------------


@pytest.mark.sample
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("there", ["v1", "vllm", "tgi", "trtllm", "native"])
@pytest.mark.parametrize("layers", [1, 2])
def test_v1_there_and_back_is_bit_for_bit(tmp_path, model, base, there, dtype, layers):
    heads = heads_of(model, "own", dtype, layers)
    folder = named_heads(tmp_path / "a", "v1", heads, base)
    middle = to(folder, tmp_path / "b", there)
    back = to(middle, tmp_path / "c", "v1")
    assert same(tensors_in(back), public_state(heads))
    assert config_of(back) == config_of(folder)


@pytest.mark.sample
@pytest.mark.parametrize("there", ["v1", "vllm", "tgi", "trtllm", "native"])
@pytest.mark.parametrize("layers", [1, 2])
def test_v2_there_and_back_is_bit_for_bit(tmp_path, model, base, there, layers):
    heads = heads_of(model, "shared", layers=layers)
    middle = to(named_heads(tmp_path / "a", "v2", heads, base), tmp_path / "b", there)
    back = to(middle, tmp_path / "c", "v2")
    assert same(tensors_in(back), public_state(heads, version=2))
    assert config_of(back)["version"] == "2"


@pytest.mark.sample(12)
@pytest.mark.parametrize("layout", ["v1", "v1 pt", "v2", "vllm", "full"])
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_from_every_other_computes_the_same(tmp_path, model, base, layout, kind):
    heads = heads_of(model, "shared" if layout in ("v2", "vllm") else "copies")
    folder = to(named_heads(tmp_path / "a", layout, heads, base), tmp_path / "b", kind, model=str(base))
    engine = load_engine(LoadConfig(model=str(base), heads=str(folder), dtype="float32", device="cpu"))
    assert torch.equal(medusa_draft(engine).heads(HIDDEN), heads(HIDDEN))
    # The heads name their base, so they are enough.
    assert load_engine(LoadConfig(heads=str(folder), dtype="float32", device="cpu")).info.base == "base"


def test_a_short_vocabulary_stays_in_vllms_format(tmp_path, model, base):
    state = vllm_state(heads_of(model, "own"))
    known = torch.tensor([3, 0, 7])
    state |= {f"lm_heads.{i}.weight": state[f"lm_heads.{i}.weight"][known].clone() for i in range(3)}
    state["token_map"] = known
    folder = write_vllm(
        tmp_path / "a", state, base_model_name_or_path=str(base), vocab_size=V, truncated_vocab_size=3
    )
    again = to(folder, tmp_path / "b", "vllm")
    assert same(tensors_in(again), state)
    assert (config_of(again)["vocab_size"], config_of(again)["truncated_vocab_size"]) == (V, 3)
    for kind in ("v1", "v2", "tgi", "trtllm", "native"):
        with pytest.raises(MedusaError, match="convert them to vllm"):
            to(folder, tmp_path / kind, kind)
        assert not (tmp_path / kind).exists()


# --- what each engine reads --------------------------------------------------------------------------------


def test_what_vllm_reads(tmp_path, model, base):
    own = to(
        named_heads(tmp_path / "a", "v1", heads_of(model, "own", layers=2), base), tmp_path / "b", "vllm"
    )
    assert sorted(file.name for file in own.iterdir()) == ["config.json", "model.safetensors"]
    assert set(load_file(own / "model.safetensors")) == {
        *(f"blocks.{i}.layers.{j}.{part}" for i in range(3) for j in range(2) for part in ("weight", "bias")),
        *(f"lm_heads.{i}.weight" for i in range(3)),
    }
    assert config_of(own) == {
        "architectures": ["MedusaModel"], "model_type": "medusa", BASE_KEY: str(base), "hidden_size": 32,
        "vocab_size": V, "num_heads": 3, "num_hidden_layers": 2, "truncated_vocab_size": None,
        "original_lm_head": False, "medusa_fc_bias": True, "logit_scale": 1.0, "max_paths": 64, "topk": 10,
    }  # fmt: skip
    shared = to(named_heads(tmp_path / "c", "v2", heads_of(model, "shared"), base), tmp_path / "d", "vllm")
    assert config_of(shared)["original_lm_head"]
    state = load_file(shared / "model.safetensors")
    assert torch.equal(state["lm_head.weight"], model.get_output_embeddings().weight)
    assert not any(name.startswith("lm_heads") for name in state)


@pytest.mark.parametrize(("kind", "layers", "version"), [("own", 1, 1), ("shared", 1, 2), ("shared", 2, 1)])
def test_what_tgi_reads(tmp_path, model, base, kind, layers, version):
    """One file, a config without ``architectures``, no last layers left out but of heads of one layer."""
    heads = heads_of(model, kind, layers=layers)
    layout = "v2" if kind == "shared" else "v1"
    folder = to(named_heads(tmp_path / "a", layout, heads, base), tmp_path / "b", "tgi")
    assert {file.name for file in folder.glob("*.safetensors")} == {"medusa_lm_head.safetensors"}
    config = config_of(folder)
    assert config.pop("version", "1") == str(version)
    assert config == {BASE_KEY: str(base), "medusa_num_heads": 3, "medusa_num_layers": layers}
    assert ("0.1.weight" in tensors_in(folder)) == (version == 1 and layers == 1)
    assert (folder / "tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()


def test_what_tensorrt_llm_reads(tmp_path, model, base):
    folder = named_heads(tmp_path / "a", "v1", heads_of(model, "own"), base)
    out = to(folder, tmp_path / "b", "trtllm")
    assert same(
        torch.load(out / "medusa_lm_head.pt", weights_only=True), public_state(heads_of(model, "own"))
    )
    # Three heads: the published tree of four levels without its deepest.
    published = load_tree("mc_sim_7b_63").limited(3)
    assert json.loads((out / "medusa_choices.txt").read_text()) == [list(c) for c in published.choices]
    assert (out / "medusa_choices.txt").read_text().startswith("[[0], [1], ")
    (folder / "tree.json").write_text("[[0], [0, 0]]")
    assert (to(folder, tmp_path / "c", "trtllm") / "medusa_choices.txt").read_text() == "[[0], [0, 0]]\n"
    (folder / "tree-gpu.json").write_text("[[0], [1], [0, 0]]")
    assert "[1]" in (to(folder, tmp_path / "d", "trtllm") / "medusa_choices.txt").read_text()
    asked = to(folder, tmp_path / "e", "trtllm", tree="cartesian-2x1")
    assert json.loads((asked / "medusa_choices.txt").read_text()) == [[0], [1], [0, 0], [1, 0]]
    with pytest.raises(MedusaError, match="4"):
        to(folder, tmp_path / "f", "trtllm", tree="cartesian-1x1x1x1")


def test_what_the_native_format_keeps(tmp_path, model, base):
    folder = named_heads(tmp_path / "a", "v1", heads_of(model, "own"), base)
    for name in ("tree.json", "tree-gpu.json", "accuracies.json", "adapter_model.safetensors"):
        (folder / name).write_text(name)
    (folder / "private.txt").write_text("not for others")
    out = to(folder, tmp_path / "b", "native")
    for name in ("tree.json", "tree-gpu.json", "accuracies.json", "adapter_model.safetensors"):
        assert (out / name).read_text() == name
    assert not (out / "private.txt").exists()


def test_v1_as_the_public_code_reads_it(tmp_path, model, base):
    heads = heads_of(model, "own")
    out = to(named_heads(tmp_path / "a", "v1", heads, base), tmp_path / "b", "v1", pickled=True)
    assert sorted(file.name for file in out.iterdir()) == ["config.json", "medusa_lm_head.pt"]
    assert same(torch.load(out / "medusa_lm_head.pt", weights_only=True), public_state(heads))


def test_the_commands_that_serve(tmp_path, model, base):
    folder = named_heads(tmp_path / "a b", "v1", heads_of(model, "own"), base)
    (vllm,) = convert(ConversionRequest(str(folder), tmp_path / "v", "vllm")).commands
    words = shlex.split(vllm)
    assert words[:4] == ["vllm", "serve", str(base), "--speculative-config"]
    settings = {"method": "medusa", "model": str(tmp_path / "v"), "num_speculative_tokens": 3}
    assert json.loads(words[4]) == settings
    (tgi,) = convert(ConversionRequest(str(folder), tmp_path / "t t", "tgi")).commands
    assert shlex.split(tgi) == [
        "text-generation-launcher", "--model-id", str(tmp_path / "t t"), "--speculate", "3"
    ]  # fmt: skip
    work = convert(ConversionRequest(str(folder), tmp_path / "x", "trtllm", tree="cartesian-2x1"))
    first, second, third = (shlex.split(command) for command in work.commands)
    flags = dict(zip(first[2::2], first[3::2], strict=True))
    assert flags["--model_dir"] == str(base)
    assert flags["--medusa_model_dir"] == str(tmp_path / "x")
    assert (flags["--dtype"], flags["--num_medusa_heads"], flags["--num_medusa_layers"]) == (
        "float32",
        "3",
        "1",
    )
    assert flags["--max_medusa_token_len"] == "4"
    assert second[second.index("--speculative_decoding_mode") + 1] == "medusa"
    assert any(word.startswith("--medusa_choices=") for word in third)


# --- what is refused ---------------------------------------------------------------------------------------


def test_nothing_is_overwritten_unless_asked_for(tmp_path, model, base):
    folder = named_heads(tmp_path / "a", "v1", heads_of(model, "own"), base)
    out = to(folder, tmp_path / "b", "native")
    (out / "notes.txt").write_text("mine")
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    with pytest.raises(MedusaError, match="is not empty: name another folder, or use --force"):
        to(folder, out, "vllm")
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    to(folder, out, "vllm", force=True)
    # Heads of another format are gone, or the folder would hold two; what is not ours stays.
    assert sorted(file.name for file in out.iterdir()) == ["config.json", "model.safetensors", "notes.txt"]
    to(folder, out, "trtllm", force=True)
    to(folder, out, "v1", force=True)
    assert sorted(file.name for file in out.iterdir()) == [
        "config.json", "medusa_lm_head.safetensors", "notes.txt"
    ]  # fmt: skip
    (tmp_path / "empty").mkdir()
    to(folder, tmp_path / "empty", "v1")


REFUSED = {
    "the source itself": ({"target": "a", "force": True}, "is where this comes from: name another folder"),
    "a file": ({"target": "file"}, "is a file: name a folder"),
    "no adapter to merge": ({"merge_base": "m"}, "nothing to merge, these heads have no adapter"),
    "no such tree": ({"to": "trtllm", "tree": "nowhere"}, "nowhere"),
    "no such source": ({"source": "/nowhere"}, "there is no folder /nowhere"),
    "a source without heads": ({"source": "base"}, "holds no heads"),
    "a base that is gone": ({"to": "v2", "model": "/gone"}, "there is no folder /gone"),
    "another base": ({"to": "v2", "model": "other"}, "are 32 wide, the base model 16"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_cannot_be_done_is_refused(tmp_path, model, base, fault, monkeypatch):
    changes, message = REFUSED[fault]
    monkeypatch.chdir(tmp_path)
    named_heads(tmp_path / "a", "v1", heads_of(model, "copies"), base)
    (tmp_path / "file").write_text("x")
    tiny.build_model(tiny.tiny_config(hidden_size=16)).save_pretrained(tmp_path / "other")
    before = sorted(file.name for file in tmp_path.iterdir())
    changes = changes | {"target": tmp_path / changes.get("target", "b")}
    with pytest.raises(MedusaError, match=message):
        convert(replace(ConversionRequest("a", tmp_path / "b", "v1"), **changes))
    assert sorted(file.name for file in tmp_path.iterdir()) == before


def test_heads_that_do_not_name_their_base(tmp_path, model, base):
    folder = write(tmp_path / "a", public_state(heads_of(model, "own")))
    with pytest.raises(MedusaError, match="do not name their base: give it with --model"):
        to(folder, tmp_path / "b", "v1")
    assert config_of(to(folder, tmp_path / "b", "v1", model="x/y"))[BASE_KEY] == "x/y"


# --- the command -------------------------------------------------------------------------------------------


def test_the_command_says_what_it_did(tmp_path, model, base, command, capsys, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = named_heads(tmp_path / "a", "v1", heads_of(model, "own"), base)
    hub_repository(tmp_path / "hub", "a/heads", folder)
    assert main(["convert", "a/heads", str(tmp_path / "out"), "--to", "vllm"]) == 0
    said = capsys.readouterr()
    assert "3 heads of 1 layer in float32" in said.out
    assert "vllm serve" in said.out
    assert "no server was run here" in said.out
    assert "note: vLLM drafts a chain" in said.err
    assert main(["convert", "a/heads", str(tmp_path / "out"), "--to", "tgi", "--force", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["format"], record["heads"], record["layers"], record["dtype"]) == ("tgi", 3, 1, "float32")
    assert "medusa_lm_head.safetensors" in record["files"]
    for wrong in (["--to", "v2", "--pt"], ["--to", "v1", "--tree", "x"], ["--to", "gguf"], []):
        code, _, err = command(["convert", "a/heads", tmp_path / "other", *wrong])
        assert (code, err.count("\n")) == (2, 1)
    assert not (tmp_path / "other").exists()
