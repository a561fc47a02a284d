"""The published repositories by their names: their files and configs as they are, tensors tiny.

Over real HTTP from a hub on this machine, by the real loading code, to a decoded text; and no file more than
is needed.
"""

from __future__ import annotations

import json
import shutil

import pytest
import tiny
import torch
from head_files import public_state, vllm_state, write_full
from hub_server import Hub, serving
from pickled_bases import INDEX, pickled
from safetensors.torch import load_file, save_file
from small_model import first_layers
from transformers import MistralConfig

from medusa_core.checkpoints.heads import read_heads
from medusa_core.checkpoints.sources import locate_heads
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError

VICUNA, VICUNA_HEADS = "lmsys/vicuna-7b-v1.3", "FasterDecoding/medusa-vicuna-7b-v1.3"
ZEPHYR = "FasterDecoding/medusa-1.0-zephyr-7b-beta"
MISTRAL = "mistralai/Mistral-7B-Instruct-v0.2"
MISTRAL_HEADS = "text-generation-inference/Mistral-7B-Instruct-v0.2-medusa"
VLLM_HEADS = "abhigoyal/vllm-medusa-vicuna-7b-v1.3"
TOKENIZER = {"tokenizer.json", "tokenizer_config.json"}


@pytest.fixture
def hub(tmp_path):
    """An empty cache, and a hub that the library really asks."""
    with serving(Hub(), tmp_path / "cache") as served:
        yield served


def add(hub, folder, name, config=None, files=()):
    """Publish a folder; ``files`` lie there as well, and nobody should fetch them."""
    folder.mkdir(exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for file in (".gitattributes", "README.md", *files):
        (folder / file).write_bytes(b"not for us")
    hub.repositories[name] = folder
    return folder


def decodes(engine, heads):
    """Greedy Medusa with these heads writes what transformers' own greedy writes, in fewer steps."""
    hidden = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(medusa_draft(engine).heads(hidden), heads(hidden))
    steps = tiny.run(engine, max_new_tokens=20)
    wanted = tiny.transformers_greedy(engine.target.model, tiny.PROMPT, 20)
    assert tiny.emitted(steps) == wanted
    assert len(steps) < 20


@pytest.fixture
def heads(model):
    return tiny.fitted_heads(model, 5)


@pytest.fixture
def vicuna(hub, engine_folder, tmp_path):
    """lmsys/vicuna-7b-v1.3: two shards of pickles and no safetensors."""
    return add(hub, pickled(engine_folder, tmp_path / "vicuna", shards=2), VICUNA)


WEIGHTS = {"pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"}


@pytest.fixture
def vicuna_heads(hub, heads, tmp_path):
    """FasterDecoding/medusa-vicuna-7b-v1.3: a pickle of five heads, and a config that says two."""
    config = {
        "base_model_name_or_path": VICUNA, "medusa_num_heads": 2, "medusa_num_layers": 1,
        "transformers_version": "4.31.0",
    }  # fmt: skip
    folder = add(hub, tmp_path / "heads", VICUNA_HEADS, config)
    torch.save(public_state(heads), folder / "medusa_lm_head.pt")
    return folder


@pytest.mark.sample(1)
@pytest.mark.usefixtures("vicuna", "vicuna_heads")
@pytest.mark.parametrize("named", [("", VICUNA_HEADS), (VICUNA, VICUNA_HEADS), (VICUNA_HEADS, "")])
def test_vicuna_and_its_heads_in_pickles(hub, heads, named):
    """The README's first example."""
    engine = tiny.load_from(*named)
    decodes(engine, heads)
    assert engine.info.notes == ("config.json says medusa_num_heads 2, the file holds 5, which is used",)
    assert (engine.info.base, engine.info.heads) == (VICUNA, VICUNA_HEADS)
    ours = {"config.json", "medusa_lm_head.pt"}
    assert set(hub.sent) == ours | TOKENIZER | WEIGHTS | {INDEX, "generation_config.json"}
    assert len(hub.sent) == len(set(hub.sent)) + 1  # both have a config.json
    hub.sent.clear()
    assert medusa_draft(tiny.load_from(*named)).heads.count == 5
    assert hub.sent == []  # from the cache


def test_heads_alone_are_fetched_for_a_base_that_is_here(hub, vicuna_heads, heads, engine_folder):
    decodes(tiny.load_from(engine_folder, VICUNA_HEADS), heads)
    assert set(hub.sent) == {"config.json", "medusa_lm_head.pt"}


@pytest.fixture
def mistral(hub, tmp_path):
    """mistralai/Mistral-7B-Instruct-v0.2: the weights three times over."""
    settings = tiny.tiny_config(kv_heads=2).to_dict() | {"sliding_window": None}
    for name in ("model_type", "architectures", "head_dim"):
        settings.pop(name)
    model = tiny.build_model(MistralConfig(**settings), seed=1)
    folder = tmp_path / "mistral"
    model.save_pretrained(folder)
    tiny.tiny_tokenizer().save_pretrained(folder)
    state = load_file(folder / "model.safetensors")
    torch.save(state, folder / "pytorch_model.bin")
    add(hub, folder, MISTRAL, files=["consolidated.safetensors", "consolidated.00.pth"])
    return model


def test_heads_for_a_base_that_has_its_weights_thrice(hub, mistral, tmp_path):
    """text-generation-inference/…-medusa: safetensors, and a config that names the base."""
    heads = tiny.fitted_heads(mistral, 3)
    config = {
        "base_model_name_or_path": MISTRAL, "medusa_num_heads": 3, "medusa_num_layers": 1,
        "transformers_version": "4.36.2",
    }  # fmt: skip
    folder = add(hub, tmp_path / "heads", MISTRAL_HEADS, config)
    save_file(public_state(heads), folder / "medusa_lm_head.safetensors")
    engine = tiny.load_from(heads=MISTRAL_HEADS)
    decodes(engine, heads)
    assert engine.info.notes == ()
    weights = {file for file in hub.sent if file.endswith((".safetensors", ".bin", ".pth"))}
    assert weights == {"medusa_lm_head.safetensors", "model.safetensors"}


@pytest.mark.sample(1)
@pytest.mark.parametrize("named", [("", ZEPHYR), (ZEPHYR, ""), (ZEPHYR, ZEPHYR)])
def test_a_whole_model_with_its_heads_among_its_shards(hub, mistral, tmp_path, named):
    """FasterDecoding/medusa-1.0-zephyr-7b-beta: the base's config and shards, and the heads in them."""
    heads = tiny.fitted_heads(mistral, 5)
    source = hub.repositories.pop(MISTRAL)
    for file in (*source.glob("*.bin"), *source.glob("*.pth")):
        file.unlink()
    folder = add(hub, write_full(tmp_path / "zephyr", source, heads, 16), ZEPHYR)
    engine = tiny.load_from(*named)
    decodes(engine, heads)
    assert (engine.info.base, engine.info.heads, engine.info.notes) == (ZEPHYR, ZEPHYR, ())
    # Named for its heads alone, it is asked for the shards that have them.
    hub.sent.clear()
    shutil.rmtree(tmp_path / "cache")
    assert torch.equal(read_heads(locate_heads(ZEPHYR)).lm_weight, heads.lm_weight)
    shards = {file for file in hub.sent if file.endswith(".safetensors")}
    weight_map = json.loads((folder / "model.safetensors.index.json").read_text("utf-8"))["weight_map"]
    assert shards == {file for name, file in weight_map.items() if name.startswith("medusa_head.")}
    assert len(shards) < 16


@pytest.mark.usefixtures("vicuna")
def test_heads_in_vllms_format_do_not_name_their_base(hub, heads, tmp_path):
    """abhigoyal/vllm-medusa-…: a model.safetensors of heads, so the base has to be given."""
    config = {
        "architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": 32, "vocab_size": 24,
        "num_heads": 5, "num_hidden_layers": 1, "truncated_vocab_size": None, "original_lm_head": False,
        "medusa_fc_bias": True, "logit_scale": 1.0, "max_paths": 64, "topk": 10,
        "transformers_version": "4.41.2",
    }  # fmt: skip
    folder = add(hub, tmp_path / "heads", VLLM_HEADS, config)
    save_file(vllm_state(heads), folder / "model.safetensors")
    decodes(tiny.load_from(VICUNA, VLLM_HEADS), heads)
    with pytest.raises(MedusaError, match="do not name their base: give the base with --model"):
        tiny.load_from(heads=VLLM_HEADS)


def test_a_tokenizer_of_sentencepiece(hub, vicuna, vicuna_heads, tmp_path):
    """As Vicuna v1.3 has it: tokenizer.model and no tokenizer.json."""
    trainer = pytest.importorskip("sentencepiece").SentencePieceTrainer
    (tmp_path / "text.txt").write_text("\n".join(["the cat saw a tree and an owl"] * 50), encoding="utf-8")
    trainer.train(
        input=str(tmp_path / "text.txt"), model_prefix=str(vicuna / "tokenizer"), vocab_size=24,
        model_type="bpe", pad_id=-1, minloglevel=2,
    )  # fmt: skip
    (vicuna / "tokenizer.json").unlink()
    config = {
        "tokenizer_class": "LlamaTokenizer",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    (vicuna / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    engine = tiny.load_from(heads=VICUNA_HEADS)
    assert "tokenizer.model" in hub.sent
    ids = engine.encode("the cat saw")
    assert engine.decode_text(ids) == "the cat saw"
    assert tiny.run(engine, ids, max_new_tokens=4)


@pytest.mark.sample(1)
@pytest.mark.parametrize("sharded", [False, True])
def test_a_draft_model_by_its_name(hub, engine, tmp_path, sharded):
    """Its weights come whole, and so does the tokenizer that is compared with the base's."""
    base, small = tmp_path / "base", tmp_path / "small"
    for folder, model in ((base, engine.target.model), (small, first_layers(engine.target.model))):
        model.save_pretrained(folder, **({"max_shard_size": "20KB"} if sharded else {}))
        engine.tokenizer.save_pretrained(folder)
    add(hub, base, "o/base")
    add(hub, small, "o/small", files=("training.txt.gz",))
    loaded = tiny.load_from("o/base", "o/small")
    assert "draft_model" in loaded.drafts
    assert loaded.info.heads == "o/small"
    wanted = tiny.transformers_greedy(engine.target.model, tiny.PROMPT, 12)
    assert tiny.emitted(tiny.run(loaded, method="draft_model", max_new_tokens=12)) == wanted
    assert not {"training.txt.gz", "README.md"} & set(hub.sent)
