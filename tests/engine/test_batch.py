"""Several texts at once: each gets the tokens, the bits and the stop that it gets alone, in every family."""

from __future__ import annotations

import pytest
import tiny
import torch
from families import CONTEXT, FAMILIES, WINDOW, family_model

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.errors import MedusaError
from medusa_core.evaluation.prompts import shipped_prompts
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.llama.forward import LlamaForward
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.model.target import Target

PROMPTS = [tiny.random_tokens(length, seed=length) for length in (4, 9, 1, 14, 6, 4)]
ROWS = [
    {"method": "none"},
    {"method": "medusa"},
    {"method": "ngram"},
    {"method": "medusa+ngram"},
    {"method": "medusa", "acceptance": "typical", "temperature": 0.8},
    {"method": "medusa", "temperature": 0.8},
    {"method": "none", "stop": ("cb",)},
    {"method": "medusa", "penalty": 1.4, "penalty_window": 7},
]


def decoded(engine, prompts, config, size):
    """Tokens and finish reason of each prompt, and how many ran at once at most."""
    texts, reasons, running, most = [[] for _ in prompts], [None] * len(prompts), set(), 0
    for number, step in engine.stream_batch(prompts, config, size):
        texts[number] += step.emitted
        running.add(number)
        most = max(most, len(running))
        if step.finish_reason is not None:
            reasons[number] = step.finish_reason
            running.discard(number)
    return list(zip(texts, reasons, strict=True)), most


def alone(engine, prompts, config):
    found = []
    for prompt in prompts:
        steps = list(engine.stream(prompt, config))
        found.append((tiny.emitted(steps), steps[-1].finish_reason))
    return found


@pytest.mark.sample
@pytest.mark.parametrize("settings", ROWS, ids=str)
@pytest.mark.parametrize("size", [4, 2])
def test_each_row_is_the_single_run(engine, settings, size):
    config = GenerationConfig.of(max_new_tokens=24, **settings)
    rows, most = decoded(engine, PROMPTS, config, size)
    assert rows == alone(engine, PROMPTS, config)
    assert most == size


def test_the_forward_in_c_is_shared(model, library, monkeypatch):
    """As many forwards as the longest text has steps, and one for the prompts."""
    rows = []
    engine = tiny.build_engine(model, None)
    assert choose_forward(engine.target, library=library).native
    real = LlamaForward.__call__
    monkeypatch.setattr(
        LlamaForward, "__call__", lambda self, parts: rows.append(len(parts)) or real(self, parts)
    )
    decoded(engine, PROMPTS[:3], GenerationConfig.of(method="none", max_new_tokens=5), 3)
    assert rows == [3] * 6


@pytest.mark.parametrize("tree", ["cartesian-3x2x2", "dynamic-9"])
def test_heads_are_asked_once_for_all_texts(engine, monkeypatch, tree):
    """And each text has the tree that it has alone, near the end of the context a shallower one."""
    asked = []
    real = MedusaHeads.forward
    monkeypatch.setattr(
        MedusaHeads,
        "forward",
        lambda self, hidden, first: asked.append(len(hidden)) or real(self, hidden, first),
    )
    config = GenerationConfig.of(tree=tree, max_new_tokens=8, ignore_eos=True)
    prompts = [tiny.random_tokens(length, seed=length) for length in (5, 90, 12)]  # 96 is the context
    trees = {number: [] for number in range(3)}
    for number, step in engine.stream_batch(prompts, config, 3):
        trees[number].append((step.tree.tokens.tolist(), step.tree.parents))
    assert asked[0] == 3
    assert len(asked) == max(map(len, trees.values()))
    for number, prompt in enumerate(prompts):
        steps = engine.stream(prompt, config)
        assert trees[number] == [(step.tree.tokens.tolist(), step.tree.parents) for step in steps]


def test_a_text_that_ends_makes_room_for_the_next(engine):
    """The step numbers of each text count from its own beginning, and its memory is given back."""
    config = GenerationConfig.of(method="none", max_new_tokens=3)
    order = [(number, step.index) for number, step in engine.stream_batch(PROMPTS[:3], config, 2)]
    assert order == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 0), (2, 1), (2, 2)]


def test_prompts_are_taken_as_there_is_room(engine):
    taken = []

    def prompts():
        for number, prompt in enumerate(PROMPTS):
            taken.append(number)
            yield prompt

    steps = engine.stream_batch(prompts(), GenerationConfig.of(method="none", max_new_tokens=4), 2)
    next(steps)
    assert taken == [0, 1]
    steps.close()


def test_a_prompt_without_tokens_is_named(engine):
    with pytest.raises(MedusaError, match="the prompt is empty"):
        list(engine.stream_batch([[]], GenerationConfig.of(method="none"), 2))


@torch.inference_mode()
def test_rows_of_a_batch_have_the_bits_they_have_alone(embedded):
    """In bfloat16, with hundreds of rows too: products are cut where they would round otherwise."""
    target, prompts = embedded.target, shipped_prompts(embedded)[:5]
    parents = [-1, *((node - 1) // 3 for node in range(1, 70))]
    trees = [tiny.token_tree(parents, tiny.random_tokens(70, n, vocabulary=4000)) for n in range(5)]
    caches, others = [[target.new_cache(200) for _ in prompts] for _ in range(2)]
    together = target.prefill_all(prompts, caches, LAST_HIDDEN)
    verified = target.verify_all(trees, caches, LAST_HIDDEN)
    for number, cache in enumerate(others):
        pairs = [
            *zip(together[number], target.prefill(prompts[number], cache, LAST_HIDDEN), strict=True),
            *zip(verified[number], target.verify(trees[number], cache, LAST_HIDDEN), strict=True),
        ]
        assert all(torch.equal(found, wanted) for found, wanted in pairs)


# --- Several texts in one forward of transformers' model: each gets what it gets alone, in every family.


# Texts shorter and longer than the window, trees of one node and deeper than it.
LENGTHS = (3, 2 * WINDOW, 1, 15)
TREES = ([-1, 0, 0, 1], [-1], [-1, 0, 1, 2, 3, 4, 5, 6, 6], [-1, 0, 0, 2, 2])
KERNELS = [
    pytest.param(name, kernel, marks=() if kernel == family.kernels[0] else pytest.mark.slow)
    for name, family in FAMILIES.items()
    for kernel in family.kernels
]
APART = ("phi3, long rotation", "phimoe, long rotation")


@pytest.mark.sample(12)
@pytest.mark.parametrize(("name", "kernel"), KERNELS)
@torch.inference_mode()
def test_each_text_gets_what_it_gets_alone(name, kernel):
    """Prompts, then trees behind them, then trees behind what was kept of the first."""
    target = Target(family_model(name, kernel))
    assert target.forward.reads_together == (name not in APART)
    texts = [tiny.random_tokens(length, seed=length) for length in LENGTHS]
    together, single = ([target.new_cache(CONTEXT) for _ in texts] for _ in range(2))
    found = target.prefill_all(texts, together, LAST_HIDDEN)
    wanted = [target.prefill(*one, LAST_HIDDEN) for one in zip(texts, single, strict=True)]
    assert_all_close(found, wanted)
    for turn in range(2):
        trees = [
            tiny.token_tree(parents, tiny.random_tokens(len(parents), seed=10 * turn + number))
            for number, parents in enumerate(TREES)
        ]
        found = target.verify_all(trees, together, LAST_HIDDEN)
        wanted = [target.verify(*one, LAST_HIDDEN) for one in zip(trees, single, strict=True)]
        assert_all_close(found, wanted)
        for parents, *caches in zip(TREES, together, single, strict=True):
            for cache in caches:
                cache.commit(tiny.path_to(parents, len(parents) - 1))


def assert_all_close(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, atol=5e-5, rtol=5e-5)


def test_the_model_runs_once_for_all_texts(monkeypatch):
    """As many forwards as the longest text has steps, and one for the prompts."""
    model = family_model("gpt-neox")
    engine = tiny.build_engine(model, None, tokenizer=False)
    batches = []
    real = type(model).forward

    def counted(self, **given):
        batches.append(len(given["input_ids"]))
        return real(self, **given)

    monkeypatch.setattr(type(model), "forward", counted)
    prompts = [tiny.random_tokens(length, seed=length) for length in (5, 3, 12)]
    list(engine.stream_batch(prompts, GenerationConfig.of(method="none", max_new_tokens=5), 3))
    assert batches == [3] * 6


def test_a_rotation_that_follows_the_longest_text_is_not_shared():
    config = FAMILIES["llama"].config()
    config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    assert not Target(tiny.build_model(config)).forward.reads_together
