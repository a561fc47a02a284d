"""Every decoder family: a tree forward equals each branch alone, greedy text is transformers' own."""

from __future__ import annotations

import families
import pytest
import tiny
import torch
from families import CONTEXT, DEEP_TREE, FAMILIES, SHORT_ROTATION, WINDOW, alone, family_model
from transformers import AutoModelForMultimodalLM

from medusa_core.checkpoints.lm_head import read_lm_head
from medusa_core.errors import MedusaError
from medusa_core.loading.memory import estimate_memory
from medusa_core.model import target as target_module
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.model.loaded_model import PROVEN
from medusa_core.model.target import Target

# --- decoder families
# The slow versions beside the engine are transformers' own: a forward without cache and without a mask of
# ours, and its ``generate``. Texts are several windows long, trees deeper than a window, prompts read in
# chunks shorter and longer than it.


NEW_TOKENS = 28
SLIDING = [name for name in FAMILIES if families.slides(name)]
# The halves round alike in all families: one of each kind of attention, of positions and of experts.
HALVES = {"llama", "qwen2-moe", "gemma2", "gemma3", "phi", "deepseek-v3", "gpt-oss", "gpt2"}
# The second kernel of a family by default where the family stands for a kind of attention.
PAIRS = [
    pytest.param(
        name, kernel, marks=() if kernel == family.kernels[0] or name in HALVES else pytest.mark.slow
    )
    for name, family in FAMILIES.items()
    for kernel in family.kernels
]
# A decoder inside a model that also reads pictures is the same code as where it stands alone.
FIRST_OF_DECODER = set(
    {family.text_config.model_type: name for name, family in reversed(FAMILIES.items())}.values()
)


def assert_close(found, wanted):
    torch.testing.assert_close(found, wanted, atol=5e-5, rtol=5e-5)


def test_every_proven_model_type_is_tested_here():
    """The decoder inside a composite model has a type of its own, and both must be known."""
    whole = {family.model_type for family in FAMILIES.values()}
    assert whole | {family.text_config.model_type for family in FAMILIES.values()} == PROVEN


@pytest.mark.sample(30)
@pytest.mark.parametrize(("name", "kernel"), PAIRS)
@pytest.mark.parametrize(
    ("prompt_length", "chunk"),
    [(15, 4), *(pytest.param(*row, marks=pytest.mark.slow) for row in [(3, 512), (15, WINDOW + 3)])],
)
@torch.inference_mode()
def test_a_tree_forward_equals_each_branch_alone(name, kernel, prompt_length, chunk, monkeypatch):
    """Two trees in a row, the second over rows that the first commit moved; prompts read in chunks."""
    monkeypatch.setattr(target_module, "PREFILL_CHUNK", chunk)
    model = family_model(name, kernel)
    target = Target(model)
    head = model.get_output_embeddings()
    cache = target.new_cache(CONTEXT)
    read = tiny.random_tokens(prompt_length, seed=1)
    logits, hidden = target.prefill(read, cache, LAST_HIDDEN)
    wanted = alone(model, read)
    assert_close(logits, wanted[0])
    assert_close(hidden[0], wanted[1])
    for parents, path in ((DEEP_TREE[:9], [0, 2, 4, 6, 8]), (DEEP_TREE, [0])):
        tokens = tiny.random_tokens(len(parents), seed=len(parents))
        logits, hidden = target.verify(tiny.token_tree(parents, tokens), cache, LAST_HIDDEN)
        for node in range(len(parents)):
            branch = read + [tokens[step] for step in tiny.path_to(parents, node)]
            wanted = alone(model, branch)
            assert_close(logits[node], wanted[0])
            assert_close(hidden[node], wanted[1])
        # Scales and caps of logits keep their order: the hidden state is what the LM head reads.
        assert torch.equal(head(hidden).argmax(-1), logits.argmax(-1))
        cache.commit(path)
        read += [tokens[node] for node in path]


@pytest.mark.sample(10)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FIRST_OF_DECODER | set(SLIDING) else pytest.mark.slow)
     for name in FAMILIES],
)  # fmt: skip
def test_greedy_medusa_equals_transformers_own_greedy(name):
    model = family_model(name)
    engine = tiny.build_engine(model, tiny.fitted_heads(model), tokenizer=False)
    for length in (4, 11):
        prompt = tiny.random_tokens(length, seed=length)
        steps = tiny.run(engine, prompt, max_new_tokens=NEW_TOKENS)
        assert tiny.emitted(steps) == tiny.transformers_greedy(model, prompt, NEW_TOKENS)
        assert len(steps) < NEW_TOKENS  # drafts were accepted, so rows were moved


@pytest.mark.parametrize("name", SLIDING)
@torch.inference_mode()
def test_the_window_matters(name, monkeypatch):
    """The comparisons above have teeth: without the window's mask the same models answer otherwise."""
    target = Target(family_model(name))
    results = []
    for window in (WINDOW, None):
        object.__setattr__(target.masks, "window", window)
        cache = target.new_cache(CONTEXT)
        target.prefill(tiny.random_tokens(15, seed=1), cache)
        results.append(target.verify(tiny.token_tree([-1, 0, 0], [1, 5, 9]), cache)[0])
    assert (results[0] - results[1]).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        *(pytest.param(name, family.kernels[0], marks=() if name in HALVES else pytest.mark.slow)
          for name, family in FAMILIES.items()),
        ("llama", "eager"),
    ],
)  # fmt: skip
@torch.inference_mode()
def test_half_precision_runs_and_stays_near(name, kernel, subtests):
    prompt, tokens = tiny.random_tokens(9, seed=1), tiny.random_tokens(9, seed=2)
    branch = [tokens[step] for step in tiny.path_to(DEEP_TREE, 8)]
    for dtype in (torch.bfloat16, torch.float16):
        with subtests.test(dtype=str(dtype)):
            model = family_model(name, kernel, dtype)
            target = Target(model)
            cache = target.new_cache(CONTEXT)
            target.prefill(prompt, cache)
            logits, hidden = target.verify(tiny.token_tree(DEEP_TREE[:9], tokens), cache, LAST_HIDDEN)
            assert hidden.dtype == dtype
            assert logits.dtype in (dtype, torch.float32)  # Mllama widens them
            wanted = alone(model, prompt + branch)[0].float()
            off = (logits[8].float() - wanted).norm() / (wanted - wanted.mean()).norm()
            assert off < 0.1


@pytest.mark.parametrize("name", ["gpt2", "opt", "llama", "mistral, window"])
def test_a_run_may_fill_the_context(name):
    """Also where positions come from a table that ends there."""
    model = family_model(name)
    engine = tiny.build_engine(model, tiny.fitted_heads(model), tokenizer=False)
    prompt = tiny.random_tokens(CONTEXT - 10, seed=3)
    steps = tiny.run(engine, prompt, max_new_tokens=50)
    assert steps[-1].finish_reason == "context"
    assert tiny.emitted(steps) == tiny.transformers_greedy(model, prompt, 10)
    with pytest.raises(MedusaError, match=f"has {CONTEXT} tokens, the context holds {CONTEXT}"):
        tiny.run(engine, tiny.random_tokens(CONTEXT, seed=3))


@pytest.mark.parametrize("name", ["phi3, long rotation", "phimoe, long rotation"])
def test_a_long_rotation_bounds_the_context_to_where_it_changes(name):
    """Beyond it every committed key would have to be rotated anew."""
    model = family_model(name)
    assert model.config.max_position_embeddings == CONTEXT
    assert Target(model).context == SHORT_ROTATION
    engine = tiny.build_engine(model, tiny.fitted_heads(model), tokenizer=False)
    steps = tiny.run(engine, tiny.random_tokens(SHORT_ROTATION - 6, seed=3), max_new_tokens=20)
    assert (steps[-1].finish_reason, len(tiny.emitted(steps))) == ("context", 6)
    with pytest.raises(MedusaError) as error:
        tiny.run(engine, tiny.random_tokens(SHORT_ROTATION, seed=3))
    assert str(error.value) == (
        f"the prompt has {SHORT_ROTATION} tokens, the context holds {SHORT_ROTATION}, since beyond "
        f"{SHORT_ROTATION} positions {FAMILIES[name].model_type} rotates differently, and committed keys "
        "keep theirs: shorten the prompt"
    )


def test_a_rotation_that_never_changes_bounds_nothing():
    assert Target(family_model("llama 3, scaled rotation")).context_note == ""


def test_sliding_layers_keep_every_row():
    """No rotating cache: a commit must be able to move a row anywhere."""
    target = Target(family_model("mistral, window"))
    cache = target.new_cache(CONTEXT)
    target.prefill(tiny.random_tokens(40, seed=1), cache)
    assert [layer.keys.shape[2] for layer in cache.layers] == [CONTEXT, CONTEXT]


# --- Models that also read pictures, loaded from their folders as they are published: with text they decode.


NAMES = [name for name, family in FAMILIES.items() if family.text_config.model_type != family.model_type]


def whole_model(name):
    """The model with its encoder of pictures, which the class for text alone may leave out."""
    torch.manual_seed(0)
    return AutoModelForMultimodalLM.from_config(FAMILIES[name].config(), dtype=torch.float32).eval()


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", NAMES)
def test_it_is_loaded_whole_and_decodes_text(name, tmp_path):
    model = whole_model(name)
    model.save_pretrained(tmp_path)
    assert estimate_memory(tiny.load_config(tmp_path)).parameters > 0
    engine = tiny.load_from(tmp_path)
    head = model.get_output_embeddings().weight
    assert torch.equal(engine.target.model.get_output_embeddings().weight, head)
    assert torch.equal(read_lm_head(tmp_path), head)
    heads = tiny.fitted_heads(engine.target.model)
    engine = tiny.build_engine(engine.target.model, heads, tokenizer=False)
    prompt = tiny.random_tokens(7, seed=2)
    wanted = tiny.transformers_greedy(model, prompt, 16)
    assert tiny.emitted(tiny.run(engine, prompt, max_new_tokens=16)) == wanted


def test_pictures_are_among_what_is_tested():
    assert len(NAMES) >= 15
    assert {type(family_model(name)).__name__ for name in NAMES} >= {
        "Gemma3ForConditionalGeneration", "LlavaForConditionalGeneration", "Mistral3ForConditionalGeneration",
        "Qwen2VLForConditionalGeneration", "Qwen3VLForConditionalGeneration",
    }  # fmt: skip
