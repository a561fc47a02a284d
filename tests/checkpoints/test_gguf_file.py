"""The GGUF file of a model reads back as the model; a family that llama.cpp computes otherwise is refused."""

from __future__ import annotations

import json

import pytest
import tiny
import torch
from families import family_model

from medusa_core.checkpoints.gguf_file import GgufModel
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.loading.load import load_engine

gguf = pytest.importorskip("gguf")


def written(model, kind, folder):
    file = folder / "model.gguf"
    GgufModel.of(model, kind).write(file)
    return gguf.GGUFReader(file)


def tensors_of(reader):
    """{name: numbers in the order of the model}."""
    return {
        tensor.name: torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type)).reshape(
            *reversed(tensor.shape.tolist())
        )
        for tensor in reader.tensors
    }


def test_metadata_and_tensors_read_back(tmp_path):
    model = tiny.build_model(tiny.tiny_config(kv_heads=2))
    reader = written(model, "F32", tmp_path)
    said = {name: field.contents() for name, field in reader.fields.items()}
    assert said["general.architecture"] == "llama"
    assert said["tokenizer.ggml.model"] == "none"
    wanted = {"vocab_size": 24, "context_length": 96, "embedding_length": 32, "block_count": 2,
              "feed_forward_length": 48, "attention.head_count": 4, "attention.head_count_kv": 2,
              "attention.key_length": 8, "rope.dimension_count": 8, "rope.freq_base": 10_000.0}  # fmt: skip
    assert {name: said[f"llama.{name}"] for name in wanted} == wanted
    found, weights = tensors_of(reader), model.state_dict()
    assert len(found) == len(weights)
    for theirs, ours in (
        ("token_embd", "model.embed_tokens"), ("output", "lm_head"), ("output_norm", "model.norm"),
        ("blk.1.attn_v", "model.layers.1.self_attn.v_proj"),
        ("blk.0.ffn_down", "model.layers.0.mlp.down_proj"),
    ):  # fmt: skip
        assert torch.equal(found[f"{theirs}.weight"], weights[f"{ours}.weight"])


def test_rows_that_turn_together_lie_together(tmp_path):
    """Row i + D / 2 of a head follows row i."""
    model = tiny.build_model(tiny.tiny_config(kv_heads=2))
    found = tensors_of(written(model, "F32", tmp_path))["blk.1.attn_k.weight"]
    keys = model.model.layers[1].self_attn.k_proj.weight
    order = [head * 8 + half * 4 + pair for head in range(2) for pair in range(4) for half in range(2)]
    assert torch.equal(found, keys[order])


@pytest.mark.parametrize(("kind", "off"), [("BF16", 0.0), ("F16", 1e-3), ("Q8_0", 5e-3)])
def test_matrices_are_of_the_kind_asked_for_and_vectors_keep_every_bit(tmp_path, kind, off):
    model = tiny.build_model(tiny.tiny_config(tie_word_embeddings=True), dtype=torch.bfloat16)
    reader = written(model, kind, tmp_path)
    kinds = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert "output.weight" not in kinds  # llama.cpp takes the embedding then
    assert kinds["blk.0.attn_q.weight"] == kind
    # Rows of 48 do not divide into blocks of 32.
    assert kinds["blk.0.ffn_down.weight"] == ("F16" if kind == "Q8_0" else kind)
    assert kinds["output_norm.weight"] == "F32"
    table = tensors_of(reader)["token_embd.weight"]
    wanted = model.model.embed_tokens.weight.float()
    assert (table - wanted).abs().max() <= off * wanted.abs().max()


def test_a_scaled_rotation_is_a_table_of_factors(tmp_path):
    model = family_model("llama 3, scaled rotation")
    factors = tensors_of(written(model, "F32", tmp_path))["rope_freqs.weight"]
    pairs = torch.arange(len(factors)) / len(factors)
    torch.testing.assert_close(1e4**-pairs / factors, model.model.rotary_emb.inv_freq)
    assert factors.max() > 1


def test_another_weight_or_kind_is_another_file():
    model = tiny.build_model(tiny.tiny_config())
    first = GgufModel.of(model, "F32").digest()
    assert GgufModel.of(model, "F32").digest() == first != GgufModel.of(model, "BF16").digest()
    model.lm_head.weight[3, 3] += 1
    assert GgufModel.of(model, "F32").digest() != first


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt2", "gpt2 is not written as GGUF: use one of llama, mistral, qwen2, qwen3"),
        ("mistral, window", "this one has a window"),
        ("qwen2, window", "this one has a window"),
    ],
)
def test_what_llama_cpp_would_compute_otherwise_is_refused(name, words):
    with pytest.raises(MedusaError, match=words):
        GgufModel.of(family_model(name), "F32")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_act": "gelu"}, "llama has silu, and this model gelu"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}, "kind yarn"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}, "kind dynamic"),
    ],
)
def test_a_setting_that_it_does_not_know_is_refused(changes, words):
    with pytest.raises(MedusaError, match=words):
        GgufModel.of(tiny.build_model(tiny.tiny_config(**changes)), "F32")


# --- ``convert --to gguf``: the base as one file, from which llama.cpp writes the same greedy tokens.

PLAIN = GenerationConfig(method="none", max_new_tokens=48, ignore_eos=True)


@pytest.mark.parametrize(("flags", "kind"), [([], "BF16"), (["--weights", "q8_0"], "Q8_0")])
def test_the_embedded_base_is_one_file(command, tmp_path, flags, kind):
    file = tmp_path / "new" / "base.gguf"
    code, out, err = command(["convert", "embedded", file, "--to", "gguf", *flags])
    assert code == 0, err
    assert out.startswith(f"{file}: embedded in {kind.lower()}, ")
    reader = gguf.GGUFReader(file)
    matrices = {tensor.tensor_type.name for tensor in reader.tensors if len(tensor.shape) > 1}
    assert matrices == {kind}
    assert [path.name for path in file.parent.iterdir()] == ["base.gguf"]


@pytest.mark.parametrize("kind", ["bf16", "f32"])
def test_llama_cpp_writes_the_tokens_of_plain_decoding(command, tmp_path, kind):
    llama_cpp = pytest.importorskip("llama_cpp")
    file = tmp_path / "base.gguf"
    assert command(["convert", "embedded", file, "--to", "gguf", "--weights", kind])[0] == 0
    engine = load_engine(LoadConfig(dtype="float32", heads="none"))
    prompt = engine.encode("Once upon a time, there was a small owl")
    ours = [token for step in engine.stream(prompt, PLAIN) for token in step.emitted]
    llama = llama_cpp.Llama(str(file), n_ctx=256, type_k=0, type_v=0, verbose=False)  # float32
    theirs = []
    for token in llama.generate(prompt, temp=0.0, repeat_penalty=1.0):
        theirs.append(token)
        if len(theirs) == len(ours):
            break
    assert engine.decode_text(theirs) == engine.decode_text(ours)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["embedded", "NEW", "--to", "gguf"], "is not the name of a GGUF file: let it end in .gguf"),
        (["embedded", "THERE.gguf", "--to", "gguf"], "is there already: name another file, or use --force"),
        (["embedded", "NEW", "--to", "v1", "--weights", "bf16"], "--weights is for gguf, --to is v1"),
    ],
)
def test_what_makes_no_file_is_refused(command, tmp_path, arguments, words):
    (tmp_path / "THERE.gguf").write_text("mine", encoding="utf-8")
    source, target, *flags = arguments
    code, _, err = command(["convert", source, tmp_path / target, *flags])
    assert (code, err.count("\n")) == (2, 1)
    assert words in err
    assert (tmp_path / "THERE.gguf").read_text("utf-8") == "mine"


def test_force_replaces_the_file(command, tmp_path):
    file = tmp_path / "base.gguf"
    file.write_text("old", encoding="utf-8")
    code, out, _ = command(["convert", "embedded", file, "--to", "gguf", "--force", "--json"])
    assert code == 0
    assert json.loads(out)["bytes"] == file.stat().st_size > 1e6
