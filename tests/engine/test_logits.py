"""Logits that are processed: the contextual penalty of each node's own context, min-p, top-k and top-p."""

from __future__ import annotations

import math
from functools import partial

import plain_penalty
import pytest
import tiny
import torch
from golden import golden_rows
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation.logits_process import TopKLogitsWarper, TopPLogitsWarper

from medusa_core.acceptance.logits.penalty import ContextualPenalty
from medusa_core.acceptance.logits.processor import processor_of, top_k_only, top_p_only, without_unlikely
from medusa_core.config import GenerationConfig
from medusa_core.drafters import PLUS
from medusa_core.drafters import method as method_of
from medusa_core.drafters._options import idle_options
from medusa_core.engine import RunState

V = 6  # so few that tokens come back, and leave the window while another copy stays


def random_logits(nodes, seed):
    return torch.randn(nodes, V, generator=torch.Generator().manual_seed(seed))


@given(
    st.data(),
    st.lists(st.integers(0, V - 1), min_size=1, max_size=20),
    st.integers(1, 24),
    st.integers(0, 1000),
)
def test_every_node_has_the_window_of_its_own_context(data, prompt, window, seed):
    """Over several steps of a run, each with another tree, of which a path is kept."""
    penalty, text = ContextualPenalty(1.2, window), list(prompt)
    penalty.begin(prompt)
    last = random_logits(1, seed)[0]
    assert torch.equal(penalty.after_text(last), plain_penalty.penalised(last, text, 1.2, window))
    for number in range(3):
        parents = data.draw(tiny.parent_lists(max_nodes=9))
        tokens = data.draw(st.lists(st.integers(0, V - 1), min_size=len(parents), max_size=len(parents)))
        tree, logits = tiny.token_tree(parents, tokens), random_logits(len(parents), seed + number)
        before = logits.clone()
        found = penalty.after_nodes(logits, tree)
        assert torch.equal(found, plain_penalty.penalised_tree(logits, tree, text, 1.2, window))
        assert torch.equal(logits, before)  # the model's own stay as they are
        kept = [tokens[node] for node in tiny.path_to(parents, data.draw(st.integers(0, len(parents) - 1)))]
        penalty.observe(kept)
        text += kept


def test_zero_and_impossible_logits_stay():
    logits = torch.tensor([[0.0, -math.inf, 3.0, -2.0, 1.0, 1.0]])
    penalty = ContextualPenalty(2.0, 4)
    penalty.begin([0, 1, 2])
    found = penalty.after_nodes(logits, tiny.token_tree([-1], [3]))
    assert found.tolist() == [[0.0, -math.inf, 1.5, -4.0, 1.0, 1.0]]


@given(st.integers(0, 1000), st.sampled_from([0.3, 1.0, 1.7]), st.sampled_from([0.02, 0.1, 0.5, 1.0]))
def test_min_p_leaves_the_tokens_that_are_likely_enough(seed, temperature, min_p):
    logits = random_logits(5, seed) * 3
    wanted = torch.stack([plain_penalty.likely(row, temperature, min_p) for row in logits])
    assert torch.equal(without_unlikely(logits, temperature, min_p), wanted)


def test_min_p_is_exact_in_few_digits_too():
    """The bound 8 + ln 0.51 = 7.327 would be 7.3125 in bfloat16, and that token would stay."""
    logits = torch.tensor([8.0, 7.34375, 7.3125], dtype=torch.bfloat16)
    assert without_unlikely(logits, 1.0, 0.51).tolist() == [8.0, 7.34375, -math.inf]


@given(st.integers(0, 1000), st.sampled_from([0.3, 1.0, 1.7]), st.integers(1, 9), st.floats(0.05, 0.99))
def test_what_is_left_is_the_obvious_choice_and_transformers(seed, temperature, top_k, top_p):
    logits = random_logits(4, seed) * 2
    by_number = top_k_only(logits, top_k)
    assert torch.equal(by_number, TopKLogitsWarper(top_k)(None, logits))
    both = top_p_only(by_number, temperature, top_p)
    slow = partial(plain_penalty.truncated, temperature=temperature, top_k=top_k, top_p=top_p)
    assert torch.equal(both, torch.stack([slow(row) for row in logits]))
    theirs = TopPLogitsWarper(top_p)(None, by_number / temperature)
    assert torch.equal(both.isfinite(), theirs.isfinite())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"penalty": 1.0, "penalty_window": 8},
        {"penalty": 1.2, "penalty_window": 0},
        {"min_p": 0.1},
        {"min_p": 0.0, "temperature": 1.0},
    ],
    ids=str,
)
def test_what_changes_nothing_is_no_processor(settings):
    assert processor_of(GenerationConfig.of(**settings)) is None


def test_at_temperature_0_they_count_for_nothing_and_are_named():
    settings = {"top_k": 3, "top_p": 0.5}
    assert processor_of(GenerationConfig.of(**settings)) is None
    assert idle_options(GenerationConfig.of(**settings)) == dict.fromkeys(settings, "--temperature 0")
    assert idle_options(GenerationConfig.of(temperature=1.0, **settings)) == {}


def test_an_untouched_run_has_one_tensor_of_logits(engine):
    """Not even a copy is made."""
    assert all(step.logits is step.model_logits for step in tiny.run(engine, max_new_tokens=6))
    step = tiny.run(engine, max_new_tokens=6, penalty=1.5)[0]
    assert not torch.equal(step.logits, step.model_logits)


# --- Runs: every method gives what plain decoding gives.


PENALTIES = [{"penalty": 1.3, "penalty_window": window} for window in (1, 3, 8, 1024)]
METHODS = ["none", "medusa", "lookup", "ngram", "medusa+ngram"]
PROMPTS = [tiny.random_tokens(length, seed=length) for length in (4, 9)]


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
    for prompt in PROMPTS:
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
    kept = {"top_k": 9, "top_p": 0.85, "min_p": 0.05}
    config = GenerationConfig.of(
        acceptance=rule, temperature=0.8, penalty=1.5, penalty_window=6, max_new_tokens=16, **kept
    )
    text = list(tiny.PROMPT)
    for step in engine.stream(tiny.PROMPT, config):
        slow = plain_penalty.penalised_tree(step.model_logits, step.tree, text, 1.5, 6)
        slow = torch.stack([plain_penalty.truncated(row, 0.8, **kept) for row in slow])
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
            assert p[step.tree.parents[node], tokens[node]] > 0  # tokens that are left out are never kept
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


# --- The contextual penalty as the public TokenSwift code was recorded (tests/golden).
# Where that code goes astray, in batches of rows, it is not followed: the greedy text is compared with
# the one recorded one token at a time.


both = pytest.mark.parametrize("golden", golden_rows("tokenswift"))


@both
def test_logits_are_the_recorded_ones(golden):
    cases = [case for case in golden.recorded()["unit"]["penalty"] if case["window"]]
    assert cases
    for case in cases:
        penalty = ContextualPenalty(case["theta"], case["window"])
        logits = torch.tensor(case["logits_in"])
        *text, last = case["context"]
        penalty.begin(case["context"])
        wanted = torch.tensor(case["logits_out"])
        torch.testing.assert_close(penalty.after_text(logits), wanted, rtol=0, atol=2e-6)
        # The same place as the root of a tree after the rest of the text.
        penalty.begin(text)
        found = penalty.after_nodes(logits[None], tiny.token_tree([-1], [last]))[0]
        torch.testing.assert_close(found, wanted, rtol=0, atol=2e-6)


@both
def test_the_public_codes_window_0_is_every_token_of_the_text(golden):
    """Its list[-0:] is the whole list; here 0 is off, and a window of the text's length says the same."""
    (case,) = [case for case in golden.recorded()["unit"]["penalty"] if not case["window"]]
    penalty = ContextualPenalty(case["theta"], len(case["context"]))
    penalty.begin(case["context"])
    found = penalty.after_text(torch.tensor(case["logits_in"]))
    torch.testing.assert_close(found, torch.tensor(case["logits_out"]), rtol=0, atol=2e-6)


@both
def test_greedy_text_is_the_recorded_one_of_one_token_at_a_time(golden):
    engine = tiny.load_from(golden.models() / "model")
    runs = [run for run in golden.recorded()["runs"] if run["mode"] == "penalty" and run["one_token_greedy"]]
    assert len(runs) == (6 if golden.full else 2)
    for run in runs:
        prompt, wanted = golden.recorded()["prompts"][run["prompt"]], run["one_token_greedy"]
        for method in ("none", "lookup", "ngram"):
            config = GenerationConfig.of(
                method=method, penalty=run["penalty"], penalty_window=run["penalty_length"],
                max_new_tokens=len(wanted), ignore_eos=True,
            )  # fmt: skip
            assert tiny.emitted(engine.stream(prompt, config)) == wanted


# --- The shipped model under the penalty: each method writes plain decoding's text, less of it repeated.


PENALTY = {"penalty": 1.2, "penalty_window": 48}  # tokens leave the window within the run
NEW = 72


def written(engine, **settings):
    config = GenerationConfig.of(max_new_tokens=NEW, ignore_eos=True, **settings)
    summary = engine.summary(config)
    for step in engine.stream(engine.encode("Once upon a time"), config):
        summary.add(step)
    return summary


@pytest.fixture(scope="module")
def plain(shipped):
    return written(shipped, method="none", **PENALTY)


def test_every_method_writes_the_text_of_plain_decoding(shipped, plain):
    methods = [name for name in shipped.methods() if PLUS not in name and name != "none"]
    assert {"medusa", "lookup", "ngram"} <= set(methods)
    for name in methods:
        found = written(shipped, method=name, tree="default", **PENALTY)
        assert found.token_ids == plain.token_ids, name
        if method_of(name).has_weights:  # a text under a penalty has little to be copied
            assert found.steps < NEW, name
