"""A context beyond the trained one: YaRN and a window against transformers, the window's bounded cache."""

from __future__ import annotations

import pytest
import tiny
import torch
from tokenswift_heads import with_tokenswift
from transformers import (
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
)

from medusa_core.config import GenerationConfig
from medusa_core.decoding import check_prompt
from medusa_core.drafters.medusa.draft import MedusaDraft
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.llama import cache as cache_in_c
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.loading import memory
from medusa_core.loading.load import load_engine
from medusa_core.loading.memory import estimate_memory
from medusa_core.model.context import WINDOW, YARN, LongerContext, longer_context, why_not_longer
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.model.target import Target
from medusa_core.model.try_capture import capture_model
from medusa_core.trace.builder import TraceBuilder
from medusa_core.trace.format import RunTrace

TRAINED = 32
TEXT = tiny.random_tokens(150, seed=3)
TREE = tiny.token_tree([-1, 0, 0, 2, 1], [4, 6, 8, 9, 2])
FAMILIES = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config, "phi3": Phi3Config}


def small_config(kind, **changes):
    """A tiny decoder that was trained with TRAINED positions."""
    settings = tiny.tiny_config(2).to_dict() | {"max_position_embeddings": TRAINED}
    names = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings", "initializer_range", "bos_token_id", "eos_token_id",
        "pad_token_id", "tie_word_embeddings",
    )  # fmt: skip
    return kind(**{name: settings[name] for name in names} | {"head_dim": 8} | changes)


def target_of(model, longer=None, library=None):
    """The target with the forward in C, or with transformers' own."""
    target = Target(model, longer)
    if library is not None:
        assert choose_forward(target, library=library).native
    return target


def read(target, text=TEXT):
    """Logits of the text's last token, and of each node of a tree behind it."""
    cache = target.new_cache(len(text) + 16)
    with torch.inference_mode():
        last, _ = target.prefill(text, cache, LAST_HIDDEN)
        return torch.cat([last[None], target.verify(TREE, cache)[0]])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.sample(2)
def test_yarn_is_that_of_transformers_in_both_forwards(family, tmp_path):
    model = tiny.build_model(small_config(FAMILIES[family]))
    model.save_pretrained(tmp_path)
    engine = tiny.load_from(tmp_path, context=256)
    assert engine.target.context == 256
    assert "256 by YaRN" in engine.info.extended
    # As a user of transformers would ask for it.
    rope = dict(model.config.rope_parameters)
    rope |= {"rope_type": "yarn", "factor": 256 / TRAINED, "original_max_position_embeddings": TRAINED}
    config = small_config(FAMILIES[family])
    config.rope_parameters = rope  # Phi-3's config refuses it when it is made
    config.max_position_embeddings = 256
    stretched = tiny.build_model(config)
    stretched.load_state_dict(model.state_dict())
    path = [*TEXT, 4, 8, 9]
    alone = stretched(input_ids=torch.tensor([path])).logits[0, -1]
    fast, own = read(engine.target), read(target_of(engine.target.model))
    torch.testing.assert_close(fast, own, atol=2e-4, rtol=1e-3)
    torch.testing.assert_close(fast[4], alone, atol=2e-4, rtol=1e-3)
    # The rotations are other ones: without them the model says something else.
    assert (read(target_of(model, LongerContext(256, TRAINED, YARN)))[4] - alone).abs().max() > 1e-2


@pytest.fixture(scope="module")
def pair():
    """A Llama, and a Mistral of the same weights with a window of the Llama's trained context."""
    llama = tiny.build_model(small_config(LlamaConfig))
    mistral = tiny.build_model(
        small_config(MistralConfig, sliding_window=TRAINED, max_position_embeddings=4096)
    )
    mistral.load_state_dict(llama.state_dict())
    return llama, mistral


WINDOWED = LongerContext(4096, TRAINED, WINDOW)


@pytest.mark.parametrize("in_c", [True, False])
def test_a_window_is_that_of_a_mistral(pair, in_c, library):
    chosen = library if in_c else None
    llama, mistral = pair
    found = read(target_of(llama, WINDOWED, chosen))
    alone = mistral(input_ids=torch.tensor([[*TEXT, 4, 8, 9]])).logits[0, -1]
    torch.testing.assert_close(found[4], alone, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(found, read(target_of(mistral)), atol=1e-4, rtol=1e-3)
    whole, _ = target_of(llama, WINDOWED, chosen).read([*TEXT, 4, 8, 9])  # without a cache
    torch.testing.assert_close(whole[-1], alone, atol=1e-4, rtol=1e-3)


def test_the_captured_forward_has_the_same_window(pair):
    """On a CPU, without a recording: it keeps all rows and masks those outside."""
    target = target_of(pair[0], WINDOWED)
    found = read(target)
    capture_model(target, lambda work: work)
    assert target.choice.captured
    torch.testing.assert_close(read(target), found, atol=1e-4, rtol=1e-3)
    cache = target.new_cache(300)
    with torch.inference_mode():
        target.prefill(TEXT, cache)
    assert target.cache_bytes(300) == cache.nbytes


def engine_of(model, longer, library=None):
    heads = tiny.fitted_heads(model)
    engine = tiny.build_engine(model, heads)
    return Engine(
        target_of(model, longer, library), {"medusa": MedusaDraft(heads)}, engine.tokenizer, engine.info
    )


def test_far_beyond_the_window_medusa_gives_plain_text_out_of_a_bounded_cache(pair, library, monkeypatch):
    monkeypatch.setattr(cache_in_c, "_STRIDE", 200)
    monkeypatch.setattr(cache_in_c, "_BACK", 64)
    llama, mistral = pair
    engine = engine_of(llama, WINDOWED, library)
    plain = tiny.emitted(tiny.run(engine, method="none", max_new_tokens=900, ignore_eos=True))
    drafted = tiny.run(engine, max_new_tokens=900, ignore_eos=True)
    assert tiny.emitted(drafted) == plain
    assert len(drafted) < 860
    kept = engine_of(mistral, None)  # transformers' forward, whose cache keeps all rows
    assert tiny.emitted(tiny.run(kept, max_new_tokens=300, ignore_eos=True)) == plain[:300]
    most = cache_in_c.buffer_rows(4000, TRAINED)
    cache = engine.target.new_cache(4000)
    assert cache.rows == most < 1000
    with torch.inference_mode():
        for start in range(0, 3000, 100):
            engine.target.prefill(tiny.random_tokens(100, seed=start), cache)
    assert (cache.rows, cache.length) == (most, 3000)
    assert cache.first > 2000


def test_tokenswift_drafts_over_a_cache_that_dropped_rows(pair, library, monkeypatch):
    monkeypatch.setattr(cache_in_c, "_STRIDE", 100)
    monkeypatch.setattr(cache_in_c, "_BACK", 64)
    engine = with_tokenswift(engine_of(pair[0], WINDOWED, library))
    settings = {"max_new_tokens": 800, "ignore_eos": True}
    plain = tiny.emitted(tiny.run(engine, method="none", **settings))
    steps = tiny.run(engine, method="tokenswift", draft_budget=32, draft_sinks=4, **settings)
    assert tiny.emitted(steps) == plain
    assert len(steps) < 800


def test_a_cache_that_dropped_rows_goes_back_a_little_or_begins_anew(pair, library):
    target = target_of(pair[0], WINDOWED, library)
    text = tiny.random_tokens(2600, seed=1)
    cache = target.new_cache(4096)
    with torch.inference_mode():
        target.prefill(text, cache)
        assert cache.first > 0
        cache.truncate(2300)
        assert cache.length == 2300
        again, _ = target.prefill(text[2300:], cache)
        cache.truncate(cache.first + 1)
        assert (cache.length, cache.first) == (0, 0)
        anew, _ = target.prefill(text, cache)
    torch.testing.assert_close(again, anew, atol=1e-4, rtol=1e-3)


def test_without_the_flag_a_model_is_as_before(engine_folder):
    engine = tiny.load_from(engine_folder)
    assert (engine.target.context, engine.info.extended, engine.target.longer) == (96, "", None)
    assert engine.target.new_cache(50).rows == 50
    with pytest.raises(
        MedusaError, match="shorten the prompt or have the model loaded with a longer --context"
    ):
        check_prompt([1] * 96, engine.target)


@pytest.mark.parametrize("extend", ["yarn", "window"])
def test_the_estimate_counts_the_longer_cache(engine_folder, extend):
    config = tiny.load_config(engine_folder, context=9000, extend=extend)
    engine = load_engine(config)
    estimate, cache = estimate_memory(config), engine.target.new_cache(9000 + 64)
    assert estimate.cache <= cache.nbytes < estimate.cache + estimate.margin


def test_a_context_that_does_not_fit_is_refused_before_loading(engine_folder, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda device: 2**30)
    with pytest.raises(MedusaError, match=r"needs about .* GB of memory, 1\.07 GB are free: use --context 0"):
        tiny.load_from(engine_folder, context=2**24)


REFUSED = {
    "learned positions": (GPT2Config(), YARN, "not rotary"),
    "scaled": (
        LlamaConfig(rope_parameters={"rope_theta": 1e4, "rope_type": "linear", "factor": 2.0}),
        YARN,
        r"scaled already \(linear\)",
    ),
    "by kind of layer": (Gemma3TextConfig(), YARN, "kinds of layers differently"),
    "own window": (MistralConfig(sliding_window=128), WINDOW, "sliding window of its own"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_extended_is_refused_in_a_sentence(case):
    config, how, words = REFUSED[case]
    with pytest.raises(MedusaError, match=words):
        longer_context(config, 10**6, how)
    assert why_not_longer(config, how)


def test_a_context_within_the_trained_one_is_refused(engine_folder):
    with pytest.raises(MedusaError, match="--context is 90, the model takes 96 as it is"):
        tiny.load_from(engine_folder, context=90)


def test_a_window_without_a_context_is_told_to_count_for_nothing(engine_folder, caplog):
    tiny.load_from(engine_folder, extend="window")
    assert "--extend window counts for nothing without --context: give --context N too" in caplog.text


@pytest.mark.parametrize(
    ("longer", "told"), [(WINDOWED, {"context": 4096, "extend": WINDOW, "window": TRAINED}), (None, {})]
)
def test_a_trace_says_how_far_the_model_sees(pair, longer, told):
    engine = engine_of(pair[0], longer)
    builder = TraceBuilder(engine, GenerationConfig(), tiny.PROMPT)
    found = RunTrace.model_validate(builder.finish()).model_dump()["model"]
    assert {name: found[name] for name in ("context", "extend", "window") if name in found} == told
    mistral = TraceBuilder(engine_of(pair[1], None), GenerationConfig(), tiny.PROMPT).finish()["model"]
    assert (mistral["window"], "context" in mistral) == (TRAINED, False)
