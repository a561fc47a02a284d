"""A plain Llama is read without transformers' models, and is the model that transformers would load."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import fields

import pytest
import tiny
import torch
from bad_input import WEIGHTS, change_json, change_tensors
from transformers import AutoTokenizer, GenerationConfig, LlamaForCausalLM

from medusa_core.checkpoints.base import empty_base, load_tokenizer
from medusa_core.checkpoints.plain_llama import plain_llama_config
from medusa_core.config import GenerationConfig as RunConfig
from medusa_core.config import LoadConfig
from medusa_core.loading import load, model_size
from medusa_core.loading.bare_llama import plain_llama_files
from medusa_core.loading.load import load_engine
from medusa_core.longrun.run import identity
from medusa_core.model.bare_llama import BareLlama, BareModel
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.model.loaded_model import LoadedModel

SHAPES = {
    "multi-head": {},
    "grouped": {"num_key_value_heads": 2},
    "tied": {"tie_word_embeddings": True, "num_key_value_heads": 1},
    "biased": {"attention_bias": True, "mlp_bias": True},
    "wide heads": {"head_dim": 12, "rms_norm_eps": 0.01},
    "another base of the rotation": {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}},
}


def saved(folder, *, shards=False, dtype=torch.float32, **changes):
    """A random Llama's folder, with numbers where transformers begins with ones and zeros."""
    kv_heads = changes.pop("num_key_value_heads", 4)
    model = tiny.build_model(tiny.tiny_config(kv_heads, **changes), dtype=dtype)
    generator = torch.Generator().manual_seed(5)
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator).to(dtype)
    model.generation_config = GenerationConfig(eos_token_id=[7, 9])
    model.save_pretrained(folder, **({"max_shard_size": "8KB"} if shards else {}))
    return folder


def loaded(folder, monkeypatch=None, *, dtype="float32", heads="none"):
    """The engine of a folder; by transformers where the short cut can be taken away."""
    if monkeypatch is None:
        return load_engine(LoadConfig(str(folder), str(heads), dtype, "cpu"))
    with monkeypatch.context() as patch:
        patch.setattr(load, "read_bare_llama", lambda *_: None)
        return loaded(folder, dtype=dtype, heads=heads)


def results(engine):
    """Logits and hidden states of a prompt and of a tree, through the forward in C."""
    target = engine.target
    assert target.choice.native, target.choice.why
    cache = target.new_cache(64)
    tree = tiny.token_tree([-1, 0, 0, 1, 2, 2, 5], tiny.random_tokens(7, 3))
    with torch.inference_mode():
        return *target.prefill([1, 2, 3, 4, 5], cache, LAST_HIDDEN), *target.verify(tree, cache, LAST_HIDDEN)


def require_same(direct, reference):
    assert type(direct.target.held) is BareModel
    assert type(reference.target.held) is LoadedModel
    assert direct.info == reference.info
    assert direct.end_tokens() == reference.end_tokens() != frozenset()
    for name in ("context", "context_note", "vocab_size", "dtype", "device", "output_device", "masks"):
        assert getattr(direct.target, name) == getattr(reference.target, name), name
    assert direct.target.held.nbytes == reference.target.held.nbytes
    assert torch.equal(direct.target.held.lm_head(), reference.target.held.lm_head())
    for mine, theirs in zip(results(direct), results(reference), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_it_is_the_model_that_transformers_loads_to_the_last_bit(changes, tmp_path, monkeypatch):
    folder = saved(tmp_path, **changes)
    require_same(loaded(folder), loaded(folder, monkeypatch))


def test_shards_and_other_numbers_are_read_alike(tmp_path, monkeypatch):
    folder = saved(tmp_path, shards=True, dtype=torch.bfloat16)
    assert len(list(folder.glob("*.safetensors"))) > 1
    require_same(loaded(folder), loaded(folder, monkeypatch))


def test_a_config_of_version_4_is_read_alike(tmp_path, monkeypatch):
    folder = saved(tmp_path, num_key_value_heads=2)
    said = json.loads((folder / "config.json").read_text())
    del said["rope_parameters"], said["head_dim"], said["attention_bias"], said["mlp_bias"], said["dtype"]
    said |= {"rope_theta": 500.0, "rope_scaling": None, "torch_dtype": "float32", "eos_token_id": 11}
    (folder / "config.json").write_text(json.dumps(said))
    (folder / "generation_config.json").unlink()
    assert plain_llama_config(folder).rope_theta == 500
    direct = loaded(folder)
    require_same(direct, loaded(folder, monkeypatch))
    assert direct.end_tokens() == {11}


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_its_sizes_are_those_of_transformers_model(changes, tmp_path):
    folder = saved(tmp_path, **changes)
    ours, theirs = model_size.model_size(folder), model_size._shape_of(empty_base(folder))
    assert [getattr(ours, one.name) for one in fields(ours)] == [
        getattr(theirs, one.name) for one in fields(theirs)
    ]


def set_in(name, **values):
    return lambda folder: change_json(folder / name, **values)


def with_tensors(edit):
    return lambda folder: change_tensors(folder / WEIGHTS, edit)


NORM = "model.norm.weight"
NOT_PLAIN = {
    "another family": set_in("config.json", model_type="mistral"),
    "an unknown setting": set_in("config.json", sliding_window=8),
    "a setting of another kind": set_in("config.json", vocab_size="24"),
    "a truth value for a number": set_in("config.json", num_hidden_layers=True),
    "too many layers": set_in("config.json", num_hidden_layers=100_000),
    "heads that do not share": set_in("config.json", num_key_value_heads=3),
    "another activation": set_in("config.json", hidden_act="gelu"),
    "a scaled rotation": set_in(
        "config.json", rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 10.0}
    ),
    "packed weights": set_in("config.json", quantization_config={"quant_method": "bitsandbytes"}),
    "code of its own": set_in("config.json", auto_map={"AutoModelForCausalLM": "code.Model"}),
    "no word of tying": set_in("config.json", tie_word_embeddings=None),
    "no base of the rotation": set_in("config.json", rope_parameters=None),
    "ends that are no numbers": set_in("generation_config.json", eos_token_id="<end>"),
    "a damaged config": lambda folder: (folder / "config.json").write_text("{"),
    "a missing tensor": with_tensors(lambda state: state.pop(NORM)),
    "one tensor more": with_tensors(lambda state: state.update(more=torch.zeros(2))),
    "another shape": with_tensors(lambda state: state.update({NORM: torch.zeros(31)})),
    "whole numbers": with_tensors(lambda state: state.update({NORM: torch.zeros(32, dtype=torch.int32)})),
    "an adapter of the base": lambda folder: (folder / "adapter_config.json").write_text("{}"),
    "weights cut off": lambda folder: (folder / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{"),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
}


@pytest.fixture(scope="module")
def plain_folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("change", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_all_else_is_left_to_transformers_and_its_checks(change, plain_folder, tmp_path):
    folder = tmp_path / "changed"
    shutil.copytree(plain_folder, folder)
    assert plain_llama_files(folder, BareLlama(plain_llama_config(folder))) is not None
    change(folder)
    config = plain_llama_config(folder)
    assert config is None or plain_llama_files(folder, BareLlama(config)) is None


def test_transformers_model_is_built_on_the_same_weights_when_asked_for(plain_folder):
    target = loaded(plain_folder).target
    with torch.inference_mode():
        model = target.model
    assert type(model) is LlamaForCausalLM
    assert target.model is model
    held = dict(target.held.weights.named_parameters())
    assert {name: p.data_ptr() for name, p in model.named_parameters()} == {
        name: p.data_ptr() for name, p in held.items()
    }
    saved = LlamaForCausalLM.from_pretrained(plain_folder, dtype="auto").state_dict()
    assert all(parameter.equal(saved[name]) for name, parameter in model.named_parameters())
    model(
        torch.tensor([[1, 2, 3]])
    ).logits.sum().backward()  # tensors made in inference mode know no gradient
    assert model.model.norm.weight.grad is not None
    assert torch.equal(target.read([1, 2, 3])[0], model(torch.tensor([[1, 2, 3]])).logits[0])


def test_a_long_run_looks_at_the_weights_without_keeping_them(plain_folder):
    engine = loaded(plain_folder)
    config, before = RunConfig.of(method="none"), engine.target.weight_bytes
    about = identity(engine, [1, 2], config)
    assert engine.target.weight_bytes == before
    assert engine.target.model  # whoever asks for the weights gets them, and then they stay
    whole = engine.target.weight_bytes
    assert (whole > before) == engine.target.choice.native
    assert identity(engine, [1, 2], config) == about
    assert engine.target.weight_bytes == whole


def test_threads_that_ask_at_once_get_one_model(plain_folder):
    target, found = loaded(plain_folder).target, []
    threads = [threading.Thread(target=lambda: found.append(target.model)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(map(id, found))) == 1


@pytest.mark.parametrize("kind", ["TokenizersBackend", "PreTrainedTokenizerFast"])
def test_its_tokenizer_is_the_one_that_transformers_chooses(kind, plain_folder, tmp_path):
    shutil.copytree(plain_folder, tmp_path, dirs_exist_ok=True)
    tiny.tiny_tokenizer(end_token=23).save_pretrained(tmp_path)
    set_in("tokenizer_config.json", tokenizer_class=kind)(tmp_path)
    ours, theirs = load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert type(ours) is type(theirs)
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.special_tokens_map == theirs.special_tokens_map
    assert ours("abcz")["input_ids"] == theirs("abcz")["input_ids"]
    assert ours.init_kwargs.keys() == theirs.init_kwargs.keys()
