"""With the penalty and min-p every method gives what plain decoding gives with them."""

from __future__ import annotations

import plain_penalty
import pytest
import tiny
import torch

from medusa_core.config import GenerationConfig
from medusa_core.engine import RunState

PENALTIES = [{"penalty": 1.3, "penalty_window": window} for window in (1, 3, 8, 1024)]
METHODS = ["none", "medusa", "lookup", "ngram", "medusa+ngram"]
PROMPTS = [tiny.random_tokens(length, seed=length) for length in (4, 9, 1, 14)]


def slow_greedy(model, prompt, count, penalty, penalty_window):
    """transformers' forward over the whole text for each token, and the obvious penalty."""
    text = list(prompt)
    for _ in range(count):
        logits = model(torch.tensor([text])).logits[0, -1]
        text.append(int(plain_penalty.penalised(logits, text, penalty, penalty_window).argmax()))
    return text[len(prompt) :]


@pytest.mark.parametrize("settings", PENALTIES, ids=str)
def test_greedy_text_is_that_of_one_token_at_a_time(engine, settings):
    """Of each method, from the first token on, whose window is the prompt's."""
    for prompt in PROMPTS[:2]:
        wanted = slow_greedy(engine.target.model, prompt, 24, **settings)
        for method in METHODS:
            steps = tiny.run(engine, prompt, method=method, max_new_tokens=24, **settings)
            assert tiny.emitted(steps) == wanted, method


def test_the_penalty_changes_the_text_and_guesses_are_still_accepted(engine):
    """Without either, the test above would show nothing."""
    settings = {"max_new_tokens": 24, "penalty": 1.3, "penalty_window": 8}
    steps = tiny.run(engine, **settings)
    assert tiny.emitted(steps) != tiny.emitted(tiny.run(engine, max_new_tokens=24))
    assert max(len(step.emitted) for step in steps) > 1


@pytest.mark.parametrize("rule", ["typical", "rejection"])
def test_a_rule_judges_by_the_processed_distribution(engine, rule):
    """p of each node, its entropy and what was kept follow from the processed logits alone."""
    config = GenerationConfig.of(
        acceptance=rule, temperature=0.8, penalty=1.5, penalty_window=6, min_p=0.05, max_new_tokens=16
    )
    text = list(tiny.PROMPT)
    for step in engine.stream(tiny.PROMPT, config):
        slow = plain_penalty.penalised_tree(step.model_logits, step.tree, text, 1.5, 6)
        slow = torch.stack([plain_penalty.likely(row, 0.8, 0.05) for row in slow])
        assert torch.equal(step.logits, slow)
        p = torch.softmax(slow / 0.8, dim=-1)
        found = step.verdict.statistics
        for node, parent in enumerate(step.tree.parents):
            if parent >= 0 and found is not None:
                assert found.p[node] == pytest.approx(float(p[parent, step.tree.tokens[node]]), abs=1e-6)
                assert found.entropy[node] == pytest.approx(
                    float(-(p[parent] * (p[parent] + 1e-5).log()).sum()), abs=1e-5
                )
        tokens = step.tree.tokens.tolist()
        for node in step.verdict.path[1:]:
            assert p[step.tree.parents[node], tokens[node]] > 0  # tokens that min-p masks are never kept
        text += step.emitted


def test_a_text_that_is_continued_or_changed_is_penalised_as_a_fresh_one(engine):
    """The cache of a run before is kept, the window is always that of the prompt that is given."""
    config = GenerationConfig.of(max_new_tokens=8, penalty=1.4, penalty_window=9)
    state = RunState(engine.target.new_cache(0))
    prompt = list(tiny.PROMPT)
    for _ in range(3):
        text = tiny.emitted(engine.stream(prompt, config, state=state))
        assert text == tiny.emitted(engine.stream(prompt, config))
        prompt = [*prompt, *text[:5], 7]  # cut, and another token after it
        state.cache.truncate(len(prompt) - 1)
