"""The forward in C: the logits of transformers, and a row's bits in any batch and over any slots."""

from __future__ import annotations

import copy
import random
import statistics
from dataclasses import replace
from types import SimpleNamespace

import pytest
import tiny
import torch
from families import DEEP_TREE, FAMILIES, SHORT_ROTATION, alone, family_model
from hypothesis import given
from hypothesis import strategies as st
from native_case import CONTEXT, VOCABULARY, off, run, text
from transformers import LlamaConfig, MistralConfig, Phi3Config, Qwen2Config, Qwen3Config, SmolLM3Config

from medusa_core.errors import MedusaError
from medusa_core.llama.families import FAMILIES as TAKEN
from medusa_core.llama.forward import LlamaForward
from medusa_core.llama.library import INSTRUCTION_SETS, machine
from medusa_core.llama.weights import NotLlamaError, originals, read_weights, require_plain
from medusa_core.model.features import BEFORE_NORM, Features
from medusa_core.model.forward import Part, Rows
from medusa_core.model.target import Target
from medusa_core.trees.token_tree import TokenTree

CPU = torch.device("cpu")
DEEPEST = 64  # nodes that a drafter puts behind each other (lookup_tokens)
SLOW_ISAS = [pytest.param(isa.name, marks=pytest.mark.slow) for isa in INSTRUCTION_SETS.get(machine(), ())]
DTYPES = [torch.bfloat16, torch.float32]
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": CONTEXT, "initializer_range": 0.2,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "tie_word_embeddings": False,
}  # fmt: skip
MODELS = {
    "MHA": LlamaConfig(**SIZES, num_key_value_heads=4),
    "GQA": LlamaConfig(**SIZES, num_key_value_heads=2, head_dim=32),
    "MQA, tied": LlamaConfig(**{**SIZES, "tie_word_embeddings": True}, num_key_value_heads=1),
    "biases everywhere": LlamaConfig(**SIZES, num_key_value_heads=2, attention_bias=True, mlp_bias=True),
    "no size a multiple of a vector": LlamaConfig(
        **{**SIZES, "hidden_size": 100, "intermediate_size": 77, "vocab_size": 83},
        num_key_value_heads=2,
        head_dim=18,
    ),
    "heads of 64": LlamaConfig(**SIZES, num_key_value_heads=1, head_dim=64),
    "heads of 160": LlamaConfig(**SIZES, num_key_value_heads=4, head_dim=160),
    "qwen2": Qwen2Config(**SIZES, num_key_value_heads=2),
    "qwen3": Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=16),
    "smollm3": SmolLM3Config(**SIZES, num_key_value_heads=2, no_rope_layers=[1, 0]),
    "phi3, in part rotated": Phi3Config(**SIZES, num_key_value_heads=4, partial_rotary_factor=0.5),
    "mistral, window": MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=40, head_dim=16),
}  # fmt: skip


def forward_of(model, library, *, int8=False):
    """Of a model in memory."""
    target = Target(model)
    weights = read_weights(model, target.layer_kinds, target.masks.window, int8=int8)
    return LlamaForward(weights, target.masks, target.context, library)


def built(config, library, dtype=torch.bfloat16, *, int8=False):
    model = tiny.build_model(config, dtype=dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.3)
            elif "norm" in name:
                parameter.uniform_(0.5, 1.5)
    return model, forward_of(model, library, int8=int8)


def read(forward, tokens, slots=0, kept=1):
    """A cache with these tokens committed, and their logits."""
    cache = forward.new_cache(slots or len(tokens) + 300)
    logits, _ = run(forward, Rows.of_text(tokens, CPU, kept), cache)
    cache.commit(range(len(tokens)))
    return cache, logits


def tree_of(parents, seed=3, vocabulary=80):
    tokens = random.Random(seed).choices(range(vocabulary), k=len(parents))
    return TokenTree.from_lists(tokens, parents, [tiny.ROOT] * len(parents))


def random_parents(size, seed):
    chosen = random.Random(seed)
    return [-1, *(chosen.randrange(node) for node in range(1, size))]


def short(length, seed=0):
    """A text in the vocabulary of all models here."""
    return random.Random(seed).choices(range(80), k=length)


@pytest.fixture(params=["largest", "avx2"])
def some_library(llama_libraries, request):
    return llama_libraries("" if request.param == "largest" else request.param)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_it_gives_the_logits_and_states_of_transformers(name, dtype, llama_libraries):
    model, forward = built(MODELS[name], llama_libraries(""), dtype)
    exact = copy.deepcopy(model).float()
    prompt, parents, layers = short(50), random_parents(21, 1), (0, 1, -1)
    tree = tree_of(parents)
    logits, states = run(forward, Rows.of_tree(tree, CPU, Features(layers)), read(forward, prompt)[0])
    assert logits.dtype == states[0].dtype == dtype
    mine, theirs = [], []
    for node in range(21):
        path = [int(tree.tokens[step]) for step in tiny.path_to(parents, node)]
        for found, wanted in zip([logits, *states], all_of(exact, [*prompt, *path], layers), strict=True):
            mine.append(off(found[node], wanted))
        if dtype == torch.bfloat16:
            pairs = zip(*(all_of(one, [*prompt, *path], layers) for one in (model, exact)), strict=True)
            theirs += [off(found, wanted) for found, wanted in pairs]
    if dtype == torch.float32:
        assert max(mine) < 1e-5
    else:  # rounding less often than transformers does
        assert statistics.mean(mine) <= statistics.mean(theirs)
        assert max(mine) < 1.5 * max(theirs)


def all_of(model, tokens, layers):
    """Logits and hidden states of the last token, by transformers."""
    output = model(torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    return [output.logits[0, -1], *(output.hidden_states[layer][0, -1] for layer in layers)]


@pytest.mark.sample
@pytest.mark.parametrize("prompt_length", [3, 15, SHORT_ROTATION - 16])
@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.model_type in TAKEN])
@torch.inference_mode()
def test_every_family_gives_what_each_branch_gives_alone(name, prompt_length, llama_libraries):
    """Two branches deeper than a window, and a second tree over rows that the first commit moved."""
    model = family_model(name)
    forward = forward_of(model, llama_libraries(""))
    prompt = tiny.random_tokens(prompt_length, 1)
    cache = forward.new_cache(64)
    for part in (prompt[:4], prompt[4:]):
        if part:
            run(forward, Rows.of_text(part, CPU, 1), cache)
            cache.commit(range(len(part)))
    for seed in (3, 4):
        tree = tiny.token_tree(DEEP_TREE, tiny.random_tokens(len(DEEP_TREE), seed))
        logits, (hidden,) = run(forward, Rows.of_tree(tree, CPU, Features((-1,))), cache)
        for node in range(len(DEEP_TREE)):
            path = [int(tree.tokens[step]) for step in tiny.path_to(DEEP_TREE, node)]
            wanted, state = alone(model, [*prompt, *path])
            torch.testing.assert_close(logits[node], wanted, atol=5e-5, rtol=5e-5)
            torch.testing.assert_close(hidden[node], state, atol=5e-5, rtol=5e-5)
        cache.commit([0, 2, 5])
        prompt = [*prompt, *(int(tree.tokens[node]) for node in (0, 2, 5))]


def in_8_bits(weight):
    """What is left of a weight with one scale an output."""
    scales = weight.float().abs().amax(dim=1, keepdim=True) / 127
    return ((weight.float() / scales).round() * scales).to(weight.dtype)


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_in_8_bits_it_gives_the_logits_of_transformers_on_rounded_weights(name, llama_libraries):
    """The numbers between products are float32, and a row of them loses what 14 bits do not hold."""
    model, forward = built(MODELS[name], llama_libraries(""), torch.float32, int8=True)
    assert {panels.numbers.dtype for panels in forward.weights.products()} == {torch.int8}
    whole = copy.deepcopy(model)
    for layer, kind in ((layer, type(layer)) for layer in model.modules()):
        if kind is torch.nn.Linear:
            layer.weight.data = in_8_bits(layer.weight)
    if model.config.tie_word_embeddings:
        model.model.embed_tokens.weight = model.lm_head.weight
    tokens = short(50)
    logits = read(forward, tokens, kept=50)[1]
    rounded, exact = (one(torch.tensor([tokens]), use_cache=False).logits[0] for one in (model, whole))
    assert off(logits, rounded) < 1e-3
    assert off(rounded, exact) > 5e-3  # weights were rounded at all
    for layers, make in originals(forward.weights, model):
        for layer, weight in zip(layers, make(), strict=True):
            torch.testing.assert_close(layer.weight, weight)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
@torch.inference_mode()
def test_in_8_bits_a_number_that_is_none_stays_one(wrong, some_library):
    """Whole numbers have no NaN, so a row's unit carries it on."""
    model, _ = built(MODELS["GQA"], some_library)
    model.model.norm.weight[3] = wrong
    assert read(forward_of(model, some_library, int8=True), short(5))[1].isnan().all()


@pytest.mark.sample(16)
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_a_node_has_the_bits_of_its_token_alone(name, dtype, int8, some_library, two_threads):
    _, forward = built(MODELS[name], some_library, dtype, int8=int8)
    for length, size in ((3, 2), (130, 16), (255, 40), (700, 5), (20, 250)):
        parents = random_parents(size, length)
        tree, cache = tree_of(parents), read(forward, short(length))[0]
        logits, _ = run(forward, Rows.of_tree(tree, CPU), cache)
        for node in random.Random(size).sample(range(size), min(size, 3)):
            for step in tiny.path_to(parents, node):
                one, _ = run(forward, Rows.of_text([int(tree.tokens[step])], CPU), cache)
                cache.commit([0])
            assert torch.equal(one[0], logits[node]), (length, size, node)
            cache.truncate(length)


@pytest.mark.parametrize("isa", ["", *SLOW_ISAS])
@torch.inference_mode()
def test_the_deepest_tree_that_a_drafter_makes_is_exact_too(isa, llama_libraries):
    """Its nodes lie at other slots than in a text, each behind one that it does not see."""
    _, forward = built(MODELS["heads of 64"], llama_libraries(isa))
    parents = [-1, *(max(node - 2, 0) for node in range(1, 2 * DEEPEST))]
    for length in (95, 700):
        tree, cache = tree_of(parents), read(forward, text(length))[0]
        logits, _ = run(forward, Rows.of_tree(tree, CPU), cache)
        for node in (0, *range(1, 2 * DEEPEST, 2)):
            one, _ = run(forward, Rows.of_text([int(tree.tokens[node])], CPU), cache)
            assert torch.equal(one[0], logits[node]), (length, node)
            cache.commit([0])


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.inference_mode()
def test_a_text_read_at_once_is_what_it_is_token_by_token(dtype, int8, llama_libraries, two_threads):
    _, forward = built(MODELS["heads of 64"], llama_libraries(""), dtype, int8=int8)
    tokens = text(600)
    features = Features((0, BEFORE_NORM, -1), queries=True)
    rows, cache = Rows.of_text(tokens, CPU, 300, features), forward.new_cache(600)
    logits, states = run(forward, rows, cache)
    cache.commit(range(600))
    assert len(logits) == 300
    slow = forward.new_cache(600)
    for number, token in enumerate(tokens):
        one, own = run(forward, Rows.of_text([token], CPU, 1, features), slow)
        slow.commit([0])
        assert number < 300 or torch.equal(one[0], logits[number - 300])
        assert all(torch.equal(state[0], all_of[number]) for state, all_of in zip(own, states, strict=True))
    assert slow.keys.equal(cache.keys)
    assert slow.values.equal(cache.values)


@torch.inference_mode()
def test_the_number_of_threads_changes_no_bit(llama_libraries):
    _, forward = built(MODELS["GQA"], llama_libraries(""))
    tree = Rows.of_tree(tree_of(random_parents(40, 5)), CPU)
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        cache, logits = read(forward, text(600), kept=200)
        results.append([logits, run(forward, tree, cache)[0], run(forward, Rows.of_text([3], CPU), cache)[0]])
    torch.set_num_threads(1)
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(1, 40)), min_size=1, max_size=6), st.integers(0, 99)
)
@torch.inference_mode()
def test_texts_that_share_a_forward_get_what_they_get_alone(fast, sizes, seed):
    features = Features((1,))
    parts, wanted = [], []
    for number, (length, size) in enumerate(sizes):
        cache = read(fast, text(length, seed + number))[0]
        rows = Rows.of_tree(tree_of(random_parents(size, seed + number)), CPU, features)
        rows = replace(rows, kept=number % 2 * min(2, size))
        parts.append(Part(rows, cache))
        wanted.append(run(fast, rows, cache))
    for (logits, states), (own_logits, own_states) in zip(fast(parts), wanted, strict=True):
        assert torch.equal(logits, own_logits)
        assert torch.equal(states[0], own_states[0])


@pytest.fixture(scope="module")
def fast(llama_libraries):
    return built(MODELS["GQA"], llama_libraries(""))[1]


@torch.inference_mode()
def test_what_lies_in_the_cache_beyond_the_rows_is_not_read(fast):
    row = Rows.of_text([5], CPU)
    cache = read(fast, text(30))[0]
    wanted, _ = run(fast, row, cache)
    cache.keys[:, :, 31:] = cache.values[:, :, 31:] = torch.nan
    assert torch.equal(run(fast, row, cache)[0], wanted)


@torch.inference_mode()
def test_rows_of_a_window_alone_are_dropped_and_change_nothing(llama_libraries):
    _, forward = built(MODELS["mistral, window"], llama_libraries(""))
    tokens, results = text(2000), []
    for slots in (2000, 100):
        cache = forward.new_cache(slots)
        cache.reserve(2000)
        for start in range(0, 1960, 70):
            part = tokens[start : start + 70]
            logits, _ = run(forward, Rows.of_text(part, CPU, 1), cache)
            cache.commit(range(len(part)))
        results.append(logits)
        assert cache.rows < 2000
        assert cache.first > 0
    assert results[0].equal(results[1])


def test_wrong_tokens_and_full_caches_are_refused(fast):
    cache = read(fast, text(5), slots=8)[0]
    with pytest.raises(MedusaError, match="none of the 96"):
        run(fast, Rows.of_text([VOCABULARY], CPU), cache)
    with pytest.raises(MedusaError, match="none of the 96"):
        run(fast, Rows.of_text([-1], CPU), cache)
    with pytest.raises(MedusaError, match="room for 8 rows"):
        run(fast, Rows.of_text([1] * 4, CPU), cache)
    with pytest.raises(MedusaError, match="another forward"):
        run(fast, Rows.of_text([1], CPU), SimpleNamespace(position=0))


def test_a_model_with_another_activation_is_refused():
    model = tiny.build_model(LlamaConfig(**{**SIZES, "hidden_act": "gelu"}))
    with pytest.raises(NotLlamaError, match="activation"):
        require_plain(model)
