"""Every way a run ends: budget, end of text, stop strings, the context, and prompts that cannot start one."""

from __future__ import annotations

import dataclasses

import pytest
import tiny
from tiny import PROMPT, run, transformers_greedy

from medusa_core.errors import MedusaError
from medusa_core.text.stopping import Stopper, text_before_stop


def with_end_token(engine, token):
    """The same engine with a tokenizer whose end of text is ``token``."""
    return dataclasses.replace(engine, tokenizer=tiny.tiny_tokenizer(token))


def step_with_drafts(steps, drafts):
    """The first step but one that accepted at least ``drafts`` drafts, and the tokens emitted before it."""
    for number, step in enumerate(steps):
        if number and len(step.emitted) > drafts:
            return step, tiny.emitted(steps[:number])
    raise AssertionError("the heads never accept enough: the test could not fail")


# --- ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", range(1, 12))
def test_the_budget_is_exact(engine, budget):
    steps = run(engine, max_new_tokens=budget)
    assert tiny.emitted(steps) == transformers_greedy(engine.target.model, PROMPT, budget)
    assert steps[-1].finish_reason == "length"


def test_the_budget_cuts_inside_an_accepted_path(engine):
    step, before = step_with_drafts(run(engine, max_new_tokens=60), drafts=2)
    last = run(engine, max_new_tokens=len(before) + 2)[-1]
    assert last.verdict.path == step.verdict.path  # the whole path was accepted
    assert last.emitted == step.emitted[:2]  # and only what the budget allows was emitted
    assert last.finish_reason == "length"


def cut_token(steps):
    """A step with a token inside its accepted path that the run had not emitted before."""
    for number, step in enumerate(steps):
        before = tiny.emitted(steps[:number])
        for place in range(1, len(step.emitted) - 1):
            token = step.emitted[place]
            if token not in before + step.emitted[:place]:
                return token, before + step.emitted[: place + 1], step
    return None


@pytest.fixture(scope="module")
def cut_case(engine):
    """Prompt, a token that first occurs inside an accepted path, and the tokens up to and with it."""
    for seed in range(60):
        prompt = tiny.random_tokens(5, seed)
        if found := cut_token(run(engine, prompt, max_new_tokens=40)):
            return prompt, *found
    raise AssertionError("no prompt leads to such a path")


def test_end_of_text_cuts_inside_an_accepted_path(engine, cut_case):
    prompt, token, wanted, step = cut_case
    ending = with_end_token(engine, token)
    steps = run(ending, prompt, max_new_tokens=40)
    assert tiny.emitted(steps) == wanted
    assert steps[-1].verdict.path == step.verdict.path
    assert len(steps[-1].emitted) < len(steps[-1].verdict.path)
    assert steps[-1].finish_reason == "eos"
    assert tiny.emitted(run(ending, prompt, max_new_tokens=40, method="none")) == wanted


def test_ignored_end_of_text_does_not_cut(engine, cut_case):
    prompt, token, _, _ = cut_case
    steps = run(with_end_token(engine, token), prompt, max_new_tokens=40, ignore_eos=True)
    assert len(tiny.emitted(steps)) == 40
    assert steps[-1].finish_reason == "length"


def test_token_zero_can_be_the_end_of_text(engine):
    ending = with_end_token(engine, 0)
    steps = run(ending, max_new_tokens=60)
    plain = transformers_greedy(engine.target.model, PROMPT, 60)
    assert tiny.emitted(steps) == plain[: plain.index(0) + 1]
    assert steps[-1].finish_reason == "eos"


def test_end_tokens_come_from_model_and_tokenizer():
    model = tiny.build_model(tiny.tiny_config())
    model.generation_config.eos_token_id = [3, 5]
    engine = with_end_token(tiny.build_engine(model, None), 7)
    assert engine.end_tokens() == {3, 5, 7}
    model.generation_config.eos_token_id = None
    assert tiny.build_engine(model, None).end_tokens() == frozenset()


def test_a_stop_string_cuts_inside_an_accepted_path(engine, cut_case):
    prompt, token, wanted, step = cut_case
    steps = run(engine, prompt, max_new_tokens=40, stop=(engine.token_text(token),))
    assert tiny.emitted(steps) == wanted
    assert steps[-1].verdict.path == step.verdict.path
    assert steps[-1].finish_reason == "stop"


def test_a_stop_string_may_span_tokens_and_steps(engine, cut_case):
    """The string ends inside a path and begins in the tokens before it."""
    prompt, _, wanted, _ = cut_case
    for span in (2, 3, 4):
        stop = engine.decode_text(wanted[-span:])
        steps = run(engine, prompt, max_new_tokens=40, stop=("no such text", stop))
        assert tiny.emitted(steps) == wanted
        assert steps[-1].finish_reason == "stop"
        text = text_before_stop(engine.decode_text(tiny.emitted(steps)), (stop,))
        assert text == engine.decode_text(wanted[:-span])


def test_a_stop_string_is_not_looked_for_in_the_prompt(engine):
    steps = run(engine, max_new_tokens=5, stop=(engine.decode_text(PROMPT),))
    assert steps[-1].finish_reason == "length"


@pytest.mark.sample
@pytest.mark.parametrize("method", ["none", "medusa"])
@pytest.mark.parametrize("prompt_length", [80, 92, 95])
def test_the_end_of_the_context_shrinks_the_tree_and_stops(engine, method, prompt_length):
    """A context of 96: every position is used, none beyond it, and the tokens are still the model's own."""
    prompt = tiny.random_tokens(prompt_length, seed=4)
    steps = run(engine, prompt, method=method, max_new_tokens=60)
    room = engine.target.context - prompt_length
    assert steps[-1].finish_reason == "context"
    assert tiny.emitted(steps) == transformers_greedy(engine.target.model, prompt, room)
    for step in steps:
        assert step.cache_length + max(step.tree.depths) < engine.target.context
    assert steps[-1].tree.size < 1 + 4 + 8 + 16


def test_the_budget_wins_when_it_ends_with_the_context(engine):
    prompt = tiny.random_tokens(90, seed=4)
    assert run(engine, prompt, max_new_tokens=6)[-1].finish_reason == "length"


def test_settings_that_do_not_fit(engine, model):
    bare = tiny.build_engine(model, None)
    with pytest.raises(MedusaError, match=r"method medusa needs weights, .*: name them with --heads"):
        run(bare)
    with pytest.raises(MedusaError, match="there are 3 heads"):
        run(engine, tree="cartesian-1x1x1x1")
    with pytest.raises(MedusaError, match="uses rank 10, the heads offer ranks 0 to 9"):
        run(engine, tree="cartesian-12")
    with pytest.raises(MedusaError, match="has no tokenizer"):
        tiny.build_engine(model, None, tokenizer=False).encode("a")


def test_a_vocabulary_smaller_than_the_ranks_is_named():
    model = tiny.build_model(tiny.tiny_config(vocab_size=6))
    engine = tiny.build_engine(model, tiny.random_heads(model))
    with pytest.raises(MedusaError, match="uses rank 6, the heads offer ranks 0 to 5"):
        run(engine, tree="cartesian-7")


# --- stopping alone ----------------------------------------------------------------------------------------


def test_the_first_reason_in_the_tokens_wins():
    def stopper():
        return Stopper(
            frozenset({9}), ["bc"], budget=4, decode=lambda ids: "".join("abcdefghij"[i] for i in ids)
        )

    assert stopper().cut([0, 9, 1, 2]) == ([0, 9], "eos")
    assert stopper().cut([1, 2, 9]) == ([1, 2], "stop")
    assert stopper().cut([0, 0, 0, 0, 9]) == ([0, 0, 0, 0], "length")
    assert stopper().cut([0, 0, 0, 9]) == ([0, 0, 0, 9], "eos")
    assert stopper().cut([0, 1]) == ([0, 1], None)


def test_text_before_stop_takes_the_first_of_several():
    assert text_before_stop("one two three", ["three", "two"]) == "one "
    assert text_before_stop("one", ["two", ""]) == "one"
