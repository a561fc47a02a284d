"""Several texts in one forward of transformers' model: each gets what it gets alone, in every family."""

from __future__ import annotations

import pytest
import tiny
import torch
from families import CONTEXT, FAMILIES, WINDOW, family_model

from medusa_core.config import GenerationConfig
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.model.target import Target

# Texts shorter and longer than the window, trees of one node and deeper than it.
LENGTHS = (3, 2 * WINDOW, 1, 15)
TREES = ([-1, 0, 0, 1], [-1], [-1, 0, 1, 2, 3, 4, 5, 6, 6], [-1, 0, 0, 2, 2])
KERNELS = [
    pytest.param(name, kernel, marks=() if kernel == family.kernels[0] else pytest.mark.slow)
    for name, family in FAMILIES.items()
    for kernel in family.kernels
]
APART = ("phi3, long rotation", "phimoe, long rotation")


def test_the_texts_differ_in_all_that_is_padded():
    assert len(set(LENGTHS)) == len(LENGTHS)
    assert len({len(tree) for tree in TREES}) == len(TREES)


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
