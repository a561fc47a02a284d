"""TokenSwift's drafter against a slow version, on texts longer than what a draft sees; its memory, words."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import chi_square
import pytest
import tiny
import torch
from tokenswift_heads import SlowPart, random_tokenswift, slow_guesses, with_tokenswift

from medusa_core.config import GenerationConfig
from medusa_core.drafters import drafter_settings, make_drafter
from medusa_core.engine import RunState
from medusa_core.errors import MedusaError
from medusa_core.model.target import Target
from medusa_core.trees.tree import load_tree

BUDGET, SINKS = 32, 24  # few rows to choose, so that they are chosen anew every few steps
PART = {"draft_budget": BUDGET, "draft_sinks": SINKS}
PROMPT = tiny.random_tokens(20, seed=7)  # fits at first
WIDTHS = "cartesian-2x2x3"


@pytest.fixture(scope="module")
def swift():
    return with_tokenswift(tiny.build_engine(tiny.frequent_zero_model(kv_heads=2), None))


@pytest.fixture(params=["c", "transformers"])
def any_forward(request, swift, library):
    """The same engine with each forward of the target."""
    in_c = request.param == "c"
    return replace(swift, target=tiny.target_in_c(swift.target.model, library)) if in_c else swift


def swift_run(engine, prompt=PROMPT, **settings):
    return tiny.run(engine, prompt, **({"method": "tokenswift"} | PART | settings))


def test_every_tree_is_the_one_made_from_the_whole_text(any_forward):
    """Tokens and log q of each guess, step by step: after the text fits and after it no longer does."""
    model, heads = any_forward.target.model, any_forward.drafts["tokenswift"].heads
    text, slow, tree = list(PROMPT), SlowPart(model, BUDGET, SINKS), load_tree(WIDTHS)
    chosen = set()
    for step in swift_run(any_forward, tree=WIDTHS, draft_ngrams=0, max_new_tokens=60):
        root = int(step.tree.tokens[0])
        levels = slow_guesses(heads, slow.hidden(text, root), model)
        shares = [logits.log_softmax(-1).topk(3) for logits in levels]
        for node, choice in enumerate(tree.limited(max(step.tree.depths)).choices, start=1):
            level = shares[len(choice) - 1]
            assert int(step.tree.tokens[node]) == int(level.indices[choice[-1]])
            assert float(step.tree.draft_logp[node]) == pytest.approx(
                float(level.values[choice[-1]]), abs=1e-3
            )
        text += step.tree.tokens[step.verdict.path].tolist()
        chosen.add(slow.selected)
    assert len(chosen) > 3


@pytest.mark.parametrize("rule", ["match", "typical"])
def test_greedy_output_is_that_of_transformers(any_forward, rule):
    steps = swift_run(any_forward, tree="auto", acceptance=rule, max_new_tokens=60)
    assert tiny.emitted(steps) == tiny.transformers_greedy(any_forward.target.model, PROMPT, 60)
    assert all(len(step.verdict.path) > 1 for step in steps if step.cache_length <= BUDGET)  # sure of depth 1


@pytest.mark.parametrize("name", ["tokenswift", "tokenswift+ngram", "none"])
def test_a_text_of_a_batch_gets_the_memory_of_one_that_has_ended(swift, monkeypatch, name):
    plain, caches, alive = Target.new_cache, [], []

    def new_cache(target, slots):
        gc.collect()
        alive.append(sum(cache() is not None for cache in caches))
        cache = plain(target, slots)
        caches.append(weakref.ref(cache))
        return cache

    monkeypatch.setattr(Target, "new_cache", new_cache)
    config = GenerationConfig.of(method=name, max_new_tokens=4)
    list(swift.stream_batch([PROMPT] * 3, config, 1))
    assert alive == [0, 0, 0]


@pytest.mark.parametrize("cut", [15, 40, 60])
def test_a_text_that_goes_on_differently_is_drafted_as_a_fresh_one(swift, cut):
    config = GenerationConfig.of(method="tokenswift", **PART, max_new_tokens=20)
    state = RunState(swift.target.new_cache(0))
    first = tiny.random_tokens(50, seed=9)
    first += tiny.emitted(swift.stream(first, config, state=state))
    second = [*first[:cut], 3, 1]
    state.cache.truncate(cut)
    kept = [step.tree.tokens.tolist() for step in swift.stream(second, config, state=state)]
    assert kept == [step.tree.tokens.tolist() for step in swift.stream(second, config)]


def test_a_longer_text_goes_on_with_the_rows_that_were_chosen(swift):
    config = GenerationConfig.of(method="tokenswift", **PART, max_new_tokens=10)
    state = RunState(swift.target.new_cache(0))
    text = tiny.random_tokens(50, seed=9)
    for _ in range(3):
        said = tiny.emitted(swift.stream(text, config, state=state))
        assert said == tiny.transformers_greedy(swift.target.model, text, 10)
        text = [*text, *said, 5]


def test_each_row_of_a_batch_is_the_single_run(any_forward):
    """Texts that fit beside texts that do not, and one at the end of the context."""
    config = GenerationConfig.of(method="tokenswift", **PART, max_new_tokens=24, ignore_eos=True)
    prompts = [tiny.random_tokens(length, seed=length) for length in (5, 30, 50, 90)]
    trees = [[] for _ in prompts]
    for number, step in any_forward.stream_batch(prompts, config, 4):
        trees[number].append((step.tree.tokens.tolist(), step.tree.parents, step.emitted))
    for found, prompt in zip(trees, prompts, strict=True):
        alone = any_forward.stream(prompt, config)
        assert found == [(step.tree.tokens.tolist(), step.tree.parents, step.emitted) for step in alone]


def test_n_grams_that_begin_with_the_first_guess_hang_below_it(swift):
    """Those that the text has had, with words that say how often; what heads guessed too stays theirs."""
    text, found = list(PROMPT), 0
    for step in swift_run(swift, tree="cartesian-1x1x1", max_new_tokens=60):
        origins = step.tree.origins
        guesses = [(origins[node].label, step.tree.depths[node]) for node in range(1, min(4, step.tree.size))]
        assert guesses == [("h0 #1", 1), ("h1 #1", 2), ("h2 #1", 3)][: len(guesses)]
        for node in range(4, step.tree.size):
            path = [int(step.tree.tokens[i]) for i in tiny.path_to(step.tree.parents, node)[1:]]
            places = [i for i in range(len(text)) if text[i : i + len(path)] == path]
            assert origins[node].label == f"×{len(places)}"
            times = "once" if len(places) == 1 else f"{len(places)} times"
            assert f"found {times}, last {origins[node].back} tokens earlier" in origins[node].note
            assert text[len(text) + len(path) - origins[node].back] == path[-1]
            found += 1
        assert {origin.by for origin in origins[1:]} <= {"tokenswift"}
        text += step.emitted
    assert found > 10


def test_the_model_s_own_guesses_say_how_much_of_the_text_they_have_seen(swift):
    said = {}
    for step in swift_run(swift, max_new_tokens=40):
        said.setdefault(step.tree.origins[1].note.partition("with ")[2], []).append(step.cache_length)
    assert list(said) == ["the whole text in sight", f"{BUDGET} rows of the text in sight"]
    assert max(said["the whole text in sight"]) <= BUDGET < min(said[f"{BUDGET} rows of the text in sight"])


@pytest.mark.parametrize("ngrams", [0, 3])
def test_each_step_says_which_rows_its_draft_saw(swift, ngrams):
    steps = swift_run(swift, max_new_tokens=60, draft_ngrams=ngrams)
    for step in steps[:-1]:
        ranges = step.tree.drafter_rows
        if step.cache_length <= BUDGET:
            assert ranges is None
        else:
            assert ranges[0][0] == 0  # the sinks
            assert ranges[-1][1] <= step.cache_length
            assert BUDGET <= sum(end - start for start, end in ranges) <= step.cache_length


def test_a_draft_that_sees_the_whole_context_reads_no_queries(swift):
    config = GenerationConfig.of(method="tokenswift", draft_budget=swift.target.context)
    drafter = make_drafter(swift.target, swift.drafts, config)
    assert not drafter.features.queries
    assert drafter_settings(GenerationConfig(method="tokenswift")).draft_budget == 512


def test_the_usual_tree_is_the_paper_s_and_a_budget_s_begins_with_the_model(swift):
    draft = swift.drafts["tokenswift"]
    assert draft.tree("auto") == load_tree("cartesian-1x3x3x3")
    assert draft.tree("auto").size == 41
    assert draft.budget_tree(12).choices[:2] == ((0,), (0, 0))
    assert {choice[0] for choice in draft.budget_tree(12).choices} == {0}


def test_what_cannot_be_drafted_is_named(swift):
    with pytest.raises(MedusaError, match="tree is 5 deep, the model and 3 heads guess 4 tokens"):
        swift_run(swift, tree="cartesian-1x1x1x1x1")
    with pytest.raises(MedusaError, match="lower --draft-sinks or raise --draft-budget"):
        swift_run(swift, draft_sinks=BUDGET)
    eager = tiny.build_engine(tiny.build_model(tiny.tiny_config(), attention="eager"), None)
    with pytest.raises(MedusaError, match="queries of llama cannot be read"):
        swift_run(with_tokenswift(eager))


def test_heads_guess_from_the_text_as_they_do_in_a_run(swift):
    draft, model = swift.drafts["tokenswift"], swift.target.model
    tokens = tiny.random_tokens(12, seed=3)
    found = draft.guesses(swift.target, tokens, 2, start=4)
    assert found.shape == (3, 8, 2)
    hidden = SlowPart(model, 99, 0).hidden(tokens[:-1], tokens[-1])
    wanted = [logits.topk(2).indices.tolist() for logits in slow_guesses(draft.heads, hidden, model)[1:]]
    assert found[:, -1].tolist() == wanted
    assert not draft.is_untrained(swift.target)
    fresh = random_tokenswift(model)
    fresh.linear.data.zero_()
    assert type(draft)(fresh).is_untrained(swift.target)
    assert torch.equal(fresh.states(hidden)[-1], hidden)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["match", "rejection"])
def test_sampled_text_keeps_the_models_own_distribution(rule):
    """In the public code a draw a path biases the first tokens."""
    config = tiny.tiny_config(kv_heads=2, vocab_size=8, initializer_range=0.25)
    model = tiny.build_model(config, seed=3)

    def next_p(text):
        return torch.softmax(model(torch.tensor([text])).logits[0, -1].double() / 1.2, dim=-1)

    prompt, runs = tiny.random_tokens(40, seed=2, vocabulary=8), 2000  # longer than what a draft sees
    engine = with_tokenswift(tiny.build_engine(model, None, tokenizer=False))
    settings = {"method": "tokenswift", "tree": "cartesian-2x3x2", "draft_budget": 32, "draft_sinks": 8}
    found, accepted = chi_square.counted(
        engine.target, engine.drafts, prompt, runs, temperature=1.2, acceptance=rule, **settings
    )
    assert chi_square.p_value(found, chi_square.joint(next_p, prompt, 8), 40) > chi_square.LEAST_P
    assert accepted > runs / 5
