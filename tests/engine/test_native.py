"""The forward in C: the logits of the one in torch, a row's bits whatever runs with it, and its refusals."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from native_case import CONTEXT, VOCABULARY, off, text
from transformers import LlamaConfig, MistralConfig, Phi3Config, Qwen2Config, Qwen3Config, SmolLM3Config

from medusa_core.errors import MedusaError
from medusa_core.target.choose_forward import choose_forward
from medusa_core.target.features import BEFORE_NORM, Features
from medusa_core.target.forward import Part, Rows
from medusa_core.target.lean import LeanForward
from medusa_core.target.lean_weights import read_weights
from medusa_core.target.model import Target
from medusa_core.target.native import computation
from medusa_core.target.native.cache import TileCache
from medusa_core.target.native.computation import NotNativeError
from medusa_core.target.native_forward import NativeForward
from medusa_core.trees.token_tree import TokenTree

DEEPEST = 64  # nodes that a drafter puts behind each other (lookup_tokens)
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
    "sums of an odd number of blocks": LlamaConfig(
        **{**SIZES, "hidden_size": 160, "intermediate_size": 224, "num_attention_heads": 5},
        num_key_value_heads=5,
    ),
    "heads of 64": LlamaConfig(**SIZES, num_key_value_heads=1, head_dim=64),
    "heads of 160": LlamaConfig(**SIZES, num_key_value_heads=4, head_dim=160),
    "qwen2": Qwen2Config(**SIZES, num_key_value_heads=2),
    "qwen3": Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=16),
    "smollm3": SmolLM3Config(**SIZES, num_key_value_heads=2, no_rope_layers=[1, 0]),
    "phi3, in part rotated": Phi3Config(**SIZES, num_key_value_heads=4, partial_rotary_factor=0.5),
    "mistral": MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=None, head_dim=16),
}


def forwards(config, library):
    """The forward in torch and the one in C on the same weights."""
    model = tiny.build_model(config, dtype=torch.bfloat16)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.3)
    target = Target(model)
    weights = read_weights(model, pack=False, kinds=target.layer_kinds)
    lean = LeanForward(weights, target.masks, CONTEXT)
    return lean, NativeForward(weights, target.masks, CONTEXT, library)


def read(forward, tokens, slots=0, kept=1):
    """A cache with these tokens committed, and their logits."""
    cache = forward.new_cache(slots or len(tokens) + 300)
    logits, _ = forward(Rows.of_text(tokens, torch.device("cpu"), kept), cache)
    cache.commit(range(len(tokens)))
    return cache, logits


def tree_of(parents, seed=3):
    return TokenTree.from_lists(text(len(parents), seed), parents, [tiny.ROOT] * len(parents))


def random_parents(size, seed):
    chosen = random.Random(seed)
    return [-1, *(chosen.randrange(node) for node in range(1, size))]


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_it_gives_the_logits_states_and_queries_of_the_forward_in_torch(name, either):
    lean, fast = forwards(MODELS[name], either)
    features = Features((0, 1, BEFORE_NORM, -1), queries=True)
    tree = Rows.of_tree(tree_of(random_parents(21, 1)), torch.device("cpu"), features)
    (wanted, wanted_states), (found, states) = (
        forward(tree, read(forward, text(50))[0]) for forward in (lean, fast)
    )
    assert off(found, wanted) < 0.03
    assert len(states) == len(wanted_states) == 4 + 2
    for mine, theirs in zip(states, wanted_states, strict=True):
        assert mine.shape == theirs.shape
        assert mine.dtype == theirs.dtype == torch.bfloat16
        assert off(mine, theirs) < 0.03


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_a_node_has_the_bits_of_its_token_alone(name, either, two_threads):
    _, fast = forwards(MODELS[name], either)
    for length, size in ((3, 2), (130, 16), (255, 40), (700, 33), (20, 250)):
        parents = random_parents(size, length)
        tree, cache = tree_of(parents), read(fast, text(length))[0]
        logits, _ = fast(Rows.of_tree(tree, torch.device("cpu")), cache)
        for node in random.Random(size).sample(range(size), min(size, 4)):
            path = [node]
            while parents[path[0]] >= 0:
                path.insert(0, parents[path[0]])
            for step in path:
                alone, _ = fast(Rows.of_text([int(tree.tokens[step])], torch.device("cpu")), cache)
                cache.commit([0])
            assert torch.equal(alone[0], logits[node]), (length, size, node)
            cache.truncate(length)


@torch.inference_mode()
def test_the_deepest_tree_that_a_drafter_makes_is_exact_too(either):
    """Its nodes lie at other slots than in a text, each behind one that it does not see."""
    _, fast = forwards(MODELS["heads of 64"], either)
    parents = [-1, *(max(node - 2, 0) for node in range(1, 2 * DEEPEST))]
    for length in (95, 700):
        tree, cache = tree_of(parents), read(fast, text(length))[0]
        logits, _ = fast(Rows.of_tree(tree, torch.device("cpu")), cache)
        for node in (0, *range(1, 2 * DEEPEST, 2)):
            alone, _ = fast(Rows.of_text([int(tree.tokens[node])], torch.device("cpu")), cache)
            assert torch.equal(alone[0], logits[node]), (length, node)
            cache.commit([0])


@torch.inference_mode()
def test_a_text_read_at_once_is_what_it_is_token_by_token(library, two_threads):
    _, fast = forwards(MODELS["heads of 64"], library)
    if not library.tiles:
        pytest.skip("long texts are read in C where there is AMX")
    tokens = text(700)
    features = Features((0, -1), queries=True)
    rows, cache = Rows.of_text(tokens, torch.device("cpu"), 300, features), fast.new_cache(700)
    logits, states = fast(rows, cache)
    cache.commit(range(700))
    assert len(logits) == 300
    slow = fast.new_cache(700)
    for number, token in enumerate(tokens):
        alone, own = fast(Rows.of_text([token], torch.device("cpu"), 1, features), slow)
        slow.commit([0])
        assert number < 400 or torch.equal(alone[0], logits[number - 400])
        assert all(torch.equal(one[0], all_of[number]) for one, all_of in zip(own, states, strict=True))
    assert slow.keys[:, :, :700].equal(cache.keys[:, :, :700])


@torch.inference_mode()
def test_the_number_of_threads_changes_no_bit(library):
    _, fast = forwards(MODELS["GQA"], library)
    tree = Rows.of_tree(tree_of(random_parents(40, 5)), torch.device("cpu"))
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        cache, logits = read(fast, text(600), kept=200)
        results.append([logits, fast(tree, cache)[0], fast(Rows.of_text([3], torch.device("cpu")), cache)[0]])
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
        rows = Rows.of_tree(tree_of(random_parents(size, seed + number)), torch.device("cpu"), features)
        rows = replace(rows, kept=number % 2 * min(2, size))
        parts.append(Part(rows, cache))
        wanted.append(fast(rows, cache))
    for (logits, states), (own_logits, own_states) in zip(fast.together(parts), wanted, strict=True):
        assert torch.equal(logits, own_logits)
        assert torch.equal(states[0], own_states[0])


@pytest.fixture(scope="module")
def fast(library):
    return forwards(MODELS["GQA"], library)[1]


@torch.inference_mode()
def test_rows_that_attend_in_turns_get_the_same(fast, monkeypatch, two_threads):
    tree = Rows.of_tree(tree_of(random_parents(50, 2)), torch.device("cpu"))
    cache = read(fast, text(250))[0]
    whole, _ = fast(tree, cache)
    for room in (1, 20_000, 100_000):  # bytes of scores: a row at a time, and a few
        monkeypatch.setattr(computation, "WEIGHTS_BYTES", room)
        assert torch.equal(fast(tree, cache)[0], whole)


@torch.inference_mode()
def test_what_lies_in_the_cache_beyond_the_rows_is_not_read(fast):
    row = Rows.of_text([5], torch.device("cpu"))
    cache = read(fast, text(30))[0]
    wanted, _ = fast(row, cache)
    if isinstance(cache, TileCache):
        cache.keys[:, :, 31:] = torch.nan
        cache.values[:, :, 0, :, 31:] = cache.values[:, :, 1:] = torch.nan
    else:
        cache.keys[..., 31:] = torch.nan
        cache.values[:, :, 31:] = torch.nan
    assert torch.equal(fast(row, cache)[0], wanted)


def test_wrong_tokens_and_full_caches_are_refused(fast):
    cache = read(fast, text(5), slots=8)[0]
    with pytest.raises(MedusaError, match="none of the 96"):
        fast(Rows.of_text([VOCABULARY], torch.device("cpu")), cache)
    with pytest.raises(MedusaError, match="none of the 96"):
        fast(Rows.of_text([-1], torch.device("cpu")), cache)
    with pytest.raises(MedusaError, match="room for 8 rows"):
        fast(Rows.of_text([1] * 4, torch.device("cpu")), cache)
    with pytest.raises(MedusaError, match="another forward"):
        fast(Rows.of_text([1], torch.device("cpu")), SimpleNamespace())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_act": "gelu"}, "activation"),
        ({"head_dim": 24}, "heads have 24"),
        ({"vocab_size": 90}, "product of 90"),
    ],
)
def test_models_that_it_does_not_compute_are_refused(changes, reason, library):
    with pytest.raises(NotNativeError, match=reason):
        forwards(LlamaConfig(**{**SIZES, **changes}, num_key_value_heads=4), library)
    target = Target(tiny.build_model(LlamaConfig(**{**SIZES, **changes}), dtype=torch.bfloat16))
    choice = choose_forward(target, library=library)
    assert (choice.lean, choice.native) == (True, False)


def test_models_with_windows_and_in_float32_run_in_torch(library):
    sliding = MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=32, head_dim=16)
    for config, dtype in ((sliding, torch.bfloat16), (MODELS["GQA"], torch.float32)):
        target = Target(tiny.build_model(config, dtype=dtype))
        assert not choose_forward(target, library=library).native


def test_the_choice_says_that_it_runs_in_c_and_is_exact(library):
    target = Target(tiny.build_model(MODELS["GQA"], dtype=torch.bfloat16))
    choice = choose_forward(target, library=library)
    assert choice.words() == "lean forward in C, exact"
    assert target.weight_bytes == target.held.nbytes  # no copies
