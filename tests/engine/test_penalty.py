"""The contextual penalty: each node by its own context, as it was recorded, and with the shipped model."""

from __future__ import annotations

import math

import plain_penalty
import pytest
import tiny
import torch
from golden import golden_rows
from hypothesis import given
from hypothesis import strategies as st

from medusa_core.acceptance.logits.penalty import ContextualPenalty
from medusa_core.acceptance.logits.processor import processor_of, without_unlikely
from medusa_core.config import GenerationConfig
from medusa_core.drafters import PLUS
from medusa_core.drafters import method as method_of

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


def test_an_untouched_run_has_one_tensor_of_logits(engine):
    """Not even a copy is made."""
    assert all(step.logits is step.model_logits for step in tiny.run(engine, max_new_tokens=6))
    step = tiny.run(engine, max_new_tokens=6, penalty=1.5)[0]
    assert not torch.equal(step.logits, step.model_logits)


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
