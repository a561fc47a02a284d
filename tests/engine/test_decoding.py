"""The loop: equality with plain decoding, what a step records, and runs that do not meet."""

from __future__ import annotations

import pytest
import tiny
import torch
from tiny import PROMPT, run, transformers_greedy

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa import medusa_draft

TREES = ["cartesian-1x1x1", "cartesian-4x2x1", "cartesian-3x3x3", "cartesian-10"]


# --- equality with plain decoding --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prompts_and_continuations(attention_variant):
    """Three prompts, each with the tokens that plain decoding and transformers agree on; and the engine."""
    engine = tiny.build_engine(attention_variant, tiny.fitted_heads(attention_variant))
    wanted = {}
    for seed in range(3):
        prompt = tuple(tiny.random_tokens(5, seed))
        plain = run(engine, prompt, method="none", max_new_tokens=50)
        assert all(len(step.emitted) == 1 for step in plain)
        wanted[prompt] = tiny.emitted(plain)
        assert wanted[prompt] == transformers_greedy(attention_variant, prompt, 50)
    return engine, wanted


@pytest.mark.sample(4)
@pytest.mark.parametrize("tree", TREES)
def test_greedy_medusa_equals_plain_greedy(prompts_and_continuations, tree):
    engine, wanted = prompts_and_continuations
    accepted = 0
    for prompt, tokens in wanted.items():
        steps = run(engine, prompt, tree=tree, max_new_tokens=50)
        assert tiny.emitted(steps) == tokens
        assert 0 in tiny.emitted(steps)
        accepted += 50 - len(steps)
    assert accepted > 20  # an equality without accepted drafts would show nothing


# --- the records -------------------------------------------------------------------------------------------


def test_steps_add_up(engine):
    steps = run(engine, max_new_tokens=50)
    length = len(PROMPT)
    for number, step in enumerate(steps):
        assert step.index == number
        assert step.cache_length == length
        accepted = step.tree.tokens[step.verdict.path].tolist()
        length += len(accepted)
        if number + 1 < len(steps):
            assert step.emitted == accepted
            assert step.finish_reason is None
            assert int(steps[number + 1].tree.tokens[0]) == step.verdict.bonus
        assert step.logits.shape == (step.tree.size, tiny.VOCABULARY)
        phases = step.ms.propose + step.ms.verify + step.ms.accept + step.ms.commit
        assert 0 < phases <= step.ms.total
    assert steps[-1].finish_reason == "length"


def test_the_tree_holds_the_guesses_of_the_heads(engine):
    """Node (r1, …, rk) is guess rk of head k at the last accepted position, and says how likely."""
    steps = run(engine, tree="cartesian-3x2", max_new_tokens=8)
    read = list(PROMPT)
    for step in steps:
        hidden = engine.target.model(torch.tensor([read]), output_hidden_states=True).hidden_states[-1][0, -1]
        logp = medusa_draft(engine).heads(hidden[None])[:, 0].log_softmax(-1)
        for node in range(1, step.tree.size):
            head, rank = step.tree.origins[node].head, step.tree.origins[node].rank
            best = logp[head - 1].argsort(descending=True)
            assert int(step.tree.tokens[node]) == int(best[rank])
            assert float(step.tree.draft_logp[node]) == pytest.approx(
                float(logp[head - 1, best[rank]]), abs=1e-4
            )
        read += step.tree.tokens[step.verdict.path].tolist()


def test_the_caller_is_not_left_in_inference_mode(engine):
    stream = engine.stream(PROMPT, GenerationConfig.of(tree="cartesian-4"))
    next(stream)
    assert not torch.is_inference_mode_enabled()


# --- runs do not meet --------------------------------------------------------------------------------------


def test_interleaved_streams_do_not_influence_each_other(engine):
    configs = [
        GenerationConfig.of(tree="cartesian-4x2x2", max_new_tokens=40),
        GenerationConfig.of(tree="cartesian-2x2", temperature=0.9, seed=5, max_new_tokens=40),
        GenerationConfig.of(method="none", temperature=1.3, seed=6, max_new_tokens=40),
        GenerationConfig.of(tree="cartesian-3x1x1", acceptance="typical", temperature=0.7, max_new_tokens=40),
    ]
    prompts = [tiny.random_tokens(4 + i, seed=i) for i in range(len(configs))]
    alone = [tiny.emitted(engine.stream(p, c)) for p, c in zip(prompts, configs, strict=True)]
    together: list[list[int]] = [[] for _ in configs]
    live = {i: engine.stream(p, c) for i, (p, c) in enumerate(zip(prompts, configs, strict=True))}
    while live:
        for i in list(live):
            step = next(live[i], None)
            if step is None:
                del live[i]
            else:
                together[i] += step.emitted
    assert together == alone


@pytest.mark.parametrize("chosen", [{"acceptance": "match"}, {"acceptance": "typical", "root": "sample"}])
def test_a_seed_repeats_a_run_and_another_changes_it(engine, chosen):
    torch.manual_seed(1)
    first = tiny.emitted(run(engine, temperature=1.0, seed=3, max_new_tokens=40, **chosen))
    torch.manual_seed(2)  # the global generator plays no part
    assert tiny.emitted(run(engine, temperature=1.0, seed=3, max_new_tokens=40, **chosen)) == first
    assert tiny.emitted(run(engine, temperature=1.0, seed=4, max_new_tokens=40, **chosen)) != first
