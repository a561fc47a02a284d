"""A language model named by ``--heads``: recognised, counted, loaded strictly, or refused in a line."""

from __future__ import annotations

import json
import shutil

import pytest
import small_model
import tiny
import torch
from bad_input import CONFIG, WEIGHTS, change_json, change_tensors, cut

from medusa_core.drafters import owner_of
from medusa_core.errors import MedusaError
from medusa_core.loading.load import load_engine
from medusa_core.loading.memory import estimate_memory


@pytest.fixture(scope="module")
def saved(engine, tmp_path_factory):
    """The folder of a draft model with its tokenizer."""
    folder = tmp_path_factory.mktemp("draft") / "small"
    small_model.first_layers(engine.target.model).save_pretrained(folder)
    engine.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def small(saved, tmp_path):
    """A copy to damage."""
    return shutil.copytree(saved, tmp_path / "small")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_heads_and_a_draft_model_load_together(engine_folder, saved, dtype):
    both = tiny.load_from(engine_folder, f"{engine_folder / 'heads'}+{saved}", dtype=dtype)
    assert both.info.drafts[0] == "3 Medusa heads"
    assert both.info.drafts[1].startswith("draft model, 9.31 k parameters")
    model = both.drafts["draft_model"].model
    assert (model.dtype, model.device) == (both.target.dtype, both.target.device)
    assert {"medusa", "draft_model", "draft_model+ngram"} <= set(both.methods())
    steps = tiny.run(both, method="draft_model", max_new_tokens=30)
    assert any(len(step.verdict.path) > 1 for step in steps)
    if dtype == "float32":
        assert tiny.emitted(steps) == tiny.emitted(tiny.run(both, method="none", max_new_tokens=30))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_estimate_counts_its_weights_and_its_cache(engine_folder, saved, dtype):
    with_it = tiny.load_config(engine_folder, saved, dtype=dtype)
    estimate, alone = (
        estimate_memory(with_it),
        estimate_memory(tiny.load_config(engine_folder, "none", dtype=dtype)),
    )
    model = load_engine(with_it).drafts["draft_model"].model
    assert estimate.heads == sum(p.numel() * p.element_size() for p in model.model.parameters())
    cache = model.new_cache(model.context + 64)
    with torch.inference_mode():
        model.prefill(tiny.PROMPT, cache)
    counted = estimate.cache - alone.cache
    assert cache.nbytes / 4 <= counted <= cache.nbytes  # the C pads the numbers of a tiny model's heads
    assert alone.heads == 0
    assert estimate.total > alone.total + estimate.heads + counted  # and a margin
    if dtype == "float32":  # in bfloat16 kernels take more than all of a tiny model
        assert any(one.flags == "--heads none" for one in estimate.alternatives)


def test_who_asks_for_other_weights_is_told_what_is_there(engine_folder, saved):
    engine = tiny.load_from(engine_folder, saved)
    with pytest.raises(MedusaError, match=r"method medusa needs weights, .* or use --method draft_model$"):
        tiny.run(engine)


def test_a_model_that_holds_heads_is_theirs(engine_folder, saved, small):
    assert owner_of(saved) == "draft_model"
    shutil.copy(engine_folder / "heads" / "medusa_lm_head.safetensors", small)
    assert owner_of(small) == "medusa"


def other_vocabulary(folder, engine):
    tiny.build_model(tiny.tiny_config(vocab_size=25, num_hidden_layers=1)).save_pretrained(folder)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()


def too_few_rows(folder, engine):
    tiny.build_model(tiny.tiny_config(vocab_size=23, num_hidden_layers=1)).save_pretrained(folder)


def larger(folder, engine):
    tiny.build_model(tiny.tiny_config(num_hidden_layers=3)).save_pretrained(folder)


def other_tokenizer(folder, engine):
    file = folder / "tokenizer.json"
    model = json.loads(file.read_text(encoding="utf-8"))["model"]
    change_json(file, model=model | {"vocab": model["vocab"] | {"c": 3, "d": 2}})


def without_a_tensor(folder, engine):
    change_tensors(folder / WEIGHTS, lambda weights: weights.pop("model.norm.weight"))


def cut_off(folder, engine):
    cut(folder / WEIGHTS, 0.01)


def without_weights(folder, engine):
    (folder / WEIGHTS).unlink()


def packed(folder, engine):
    change_json(folder / CONFIG, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})


WRONG = {
    other_vocabulary: "has 25 tokens, the target 24: name a model with the target's vocabulary",
    too_few_rows: "has 23 tokens, the target 24: name a model with the target's vocabulary",
    larger: r"has [\d.]+ k parameters, the target [\d.]+ k: .* name a smaller model",
    other_tokenizer: r"calls token [23] '[cd]', the target '[cd]': name a model with the target's tokenizer",
    without_a_tensor: "lack model.norm.weight: fetch or save the model again",
    cut_off: "model.safetensors is damaged or cut off .*: fetch or save it again",
    without_weights: "it has no model.safetensors: fetch or save it again",
    packed: "is .*4.bit.*: name one whose weights are plain numbers",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("damage", WRONG, ids=lambda damage: damage.__name__)
def test_what_cannot_draft_is_refused_in_a_sentence(engine, engine_folder, small, damage):
    damage(small, engine)
    with pytest.raises(MedusaError, match=WRONG[damage]) as caught:
        tiny.load_from(engine_folder, small)
    assert "\n" not in str(caught.value)


def test_a_draft_model_does_not_say_which_base_it_is_for(saved):
    with pytest.raises(MedusaError, match="give the base with --model"):
        tiny.load_from("", saved)


@pytest.mark.parametrize(("rows", "small_rows"), [(24, 32), (32, 24)])
def test_rows_that_pad_a_vocabulary_may_differ(engine, tmp_path, rows, small_rows):
    """With one tokenizer, as in families whose larger models pad the LM head; a padded row is no token."""
    sizes = {"base": (rows, 2), "small": (small_rows, 1)}
    for name, (size, layers) in sizes.items():
        config = tiny.tiny_config(vocab_size=size, num_hidden_layers=layers)
        tiny.build_model(config, seed=2).save_pretrained(tmp_path / name)
        engine.tokenizer.save_pretrained(tmp_path / name)
    both = tiny.load_from(tmp_path / "base", tmp_path / "small")
    prompt = [3, rows - 1, 5]  # a row that pads, where the base has such
    settings = {"max_new_tokens": 20, "draft_top_k": 2}
    steps = tiny.run(both, prompt, method="draft_model", **settings)
    assert tiny.emitted(steps) == tiny.emitted(tiny.run(both, prompt, method="none", **settings))
    assert all(int(step.tree.tokens[1:].max()) < 24 for step in steps if step.tree.size > 1)
    drawn = tiny.run(both, prompt, method="draft_model", acceptance="rejection", temperature=1.5, **settings)
    assert {step.tree.draft_probs.shape[1] for step in drawn if step.tree.size > 1} == {rows}
