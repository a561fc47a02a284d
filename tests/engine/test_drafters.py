"""Every drafter, found by its file: greedy output is plain decoding's, trees and states keep their bounds."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections import Counter
from dataclasses import fields

import eagle3_files
import pytest
import small_model
import tiny
import torch
from block_files import with_block
from hydra_heads import with_hydra
from hypothesis import given
from hypothesis import strategies as st
from mtp_files import with_mtp
from tokenswift_heads import with_tokenswift

from medusa_core.acceptance import rule_names
from medusa_core.config import GenerationConfig
from medusa_core.drafters import (
    drafter_names,
    drafter_settings,
    drafters_of,
    make_drafter,
    method,
    method_names,
)
from medusa_core.drafters._options import differing_defaults, option_defaults
from medusa_core.drafters.medusa import with_heads
from medusa_core.drafters.ngram import NgramDrafter, Settings
from medusa_core.engine import RunState
from medusa_core.errors import MedusaError

METHODS = [name for name in method_names() if name != "none"]
BUDGET = 60
SMALL = {"draft_top_k": 4, "draft_depth": 3, "draft_nodes": 15, "draft_budget": 32, "draft_sinks": 4}
REPEATING = [4, 9, 2, 7] * 6  # a prompt in which n-grams come again


@pytest.fixture(scope="module")
def engine(engine, tmp_path_factory):
    """The tiny engine with weights of every drafter that has some."""
    drafting = with_tokenswift(with_hydra(small_model.with_draft_model(eagle3_files.with_draft(engine))))
    drafting = with_block(drafting, tmp_path_factory.mktemp("block"))
    return with_mtp(drafting, tmp_path_factory.mktemp("mtp"))


@pytest.fixture(scope="module")
def plain(engine):
    """The tokens of plain decoding after a prompt."""
    return functools.cache(
        lambda prompt: tiny.emitted(tiny.run(engine, prompt, method="none", max_new_tokens=BUDGET))
    )


@pytest.mark.sample(16)
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("rule", rule_names())
@pytest.mark.parametrize("prompt", [tiny.PROMPT, REPEATING], ids=["any", "repeating"])
def test_greedy_output_is_plain_decoding_s(engine, plain, name, rule, prompt):
    if name not in engine.methods():
        pytest.skip(f"the tiny engine has no weights for {name}")
    steps = tiny.run(engine, prompt, method=name, acceptance=rule, max_new_tokens=BUDGET, **SMALL)
    assert tiny.emitted(steps) == plain(tuple(prompt))
    assert any(len(step.verdict.path) > 1 for step in steps)  # its drafts were accepted somewhere


@pytest.mark.parametrize("name", METHODS)
def test_trees_keep_to_the_depth_and_the_size_they_promise(engine, plain, name):
    """The context ends in mid-draft: trees get shallower, the text is plain decoding's and ends there."""
    prompt = (REPEATING * 10)[: engine.target.context - 12]
    steps = tiny.run(engine, prompt, method=name, max_new_tokens=BUDGET, **SMALL)
    assert (tiny.emitted(steps), steps[-1].finish_reason) == (plain(tuple(prompt)), "context")
    for step in steps:
        assert max(step.tree.depths) <= engine.target.context - 1 - step.cache_length
        assert all(0 <= parent < node for node, parent in enumerate(step.tree.parents) if node)
        assert {origin.by for origin in step.tree.origins[1:]} <= set(drafters_of(name))


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", METHODS)
def test_a_conversation_s_drafter_goes_on_as_a_fresh_one(engine, name):
    """The state kept between two runs, cut back where the second text differs, changes no guess."""
    config = GenerationConfig.of(method=name, tree="cartesian-2x2", max_new_tokens=20, **SMALL)
    for length in (1, 15, len(REPEATING)):
        state = RunState(engine.target.new_cache(0))
        first = tiny.emitted(engine.stream(REPEATING, config, state=state))
        second = [*REPEATING[:length], 3, *first[:4]]
        state.cache.truncate(length)
        kept = [step.tree.tokens.tolist() for step in engine.stream(second, config, state=state)]
        assert kept == [step.tree.tokens.tolist() for step in engine.stream(second, config)]


def test_the_ngram_tree_is_the_one_counted_by_hand(engine):
    """All n-grams after the root, the most frequent first, then the latest; shared beginnings are merged."""
    text = [1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 6, 6, 1, 2, 3, 4, 7]
    drafter = NgramDrafter(engine.target, None, Settings(draft_top_k=20, draft_depth=3, draft_nodes=64))
    drafter.begin(text, torch.empty(1, 0))
    tree = drafter.propose(1, 9)
    seen = Counter(tuple(text[i + 1 : i + 4]) for i in range(len(text) - 3) if text[i] == 1)
    paths = {
        tuple(int(tree.tokens[node]) for node in tiny.path_to(tree.parents, leaf)[1:])
        for leaf in range(1, tree.size)
        if leaf not in tree.parents
    }
    assert paths == set(seen)
    assert [int(tree.tokens[node]) for node in (1, 2, 3)] == [2, 3, 4]  # twice, the others once


@pytest.mark.parametrize("name", ["lookup", "ngram", "suffix"])
@given(data=st.data())
def test_a_cut_back_drafter_is_that_of_the_shorter_text(engine, name, data):
    """The text goes on as in a run, or begins anew as in a conversation."""
    depth = {"draft_depth": data.draw(st.integers(1, 4))} if name == "ngram" else {}
    config, no_features = GenerationConfig.of(method=name, **depth), torch.empty(1, 0)
    kept, fresh = (make_drafter(engine.target, {}, config) for _ in range(2))
    text, more = (data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=30)) for _ in range(2))
    length = data.draw(st.integers(0, len(text) + 1))
    kept.begin(text, no_features)
    kept.truncate(length)
    fresh.begin([*text[:length], *more], no_features)
    if data.draw(st.booleans()):
        kept.observe(more, no_features)
    else:
        kept.begin([*text[:length], *more], no_features)
    if name == "suffix":
        assert len(kept._tokens) == len(fresh._tokens)
    for root in range(4):
        ours, theirs = kept.propose(root, 9), fresh.propose(root, 9)
        assert (ours.tokens.tolist(), ours.parents, ours.origins) == (
            theirs.tokens.tolist(), theirs.parents, theirs.origins,
        )  # fmt: skip


def test_settings_of_one_name_agree_between_drafters():
    """They become one flag and one slider, so kind and range must be the same; defaults are their own."""
    known = {}
    for name in method_names():
        for item in fields(method(name).settings):
            said = (type(item.default), dict(item.metadata) | {"help": ""})
            assert known.setdefault(item.name, said) == said


def test_each_drafter_has_a_letter_of_its_own_that_names_no_number():
    """The page writes it beside numbers called p and q, which are probabilities."""
    marks = [method(name).mark for name in drafter_names() if name != "none"]
    assert all(len(mark) == 1 for mark in marks)
    assert len(set(marks)) == len(marks)
    assert not {"p", "q"} & set(marks)


def test_a_setting_that_is_not_given_has_the_method_s_own_default(engine):
    """Merged drafters have one value for both, so that a trace says what was run."""
    assert option_defaults("eagle3")["draft_nodes"] == 59
    assert option_defaults("ngram")["draft_nodes"] == option_defaults("medusa+ngram")["draft_nodes"] == 15
    own = {}
    for name in drafter_names():
        for item in fields(method(name).settings):
            own.setdefault(item.name, set()).add(item.default)
    assert {"draft_depth", "draft_nodes"} <= set(differing_defaults())
    assert all((len(defaults) > 1) == (name in differing_defaults()) for name, defaults in own.items())
    config = GenerationConfig(method="eagle3+ngram")
    assert drafter_settings(config).draft_nodes == 59
    assert make_drafter(engine.target, engine.drafts, config).largest_tree == 1 + 59 + 59


def test_an_unknown_method_is_named(engine):
    with pytest.raises(
        MedusaError, match=r"no method 'magic': use one of .*lookup, medusa, mtp, ngram, none, .*NAME\+lookup"
    ):
        tiny.run(engine, method="magic")


def test_reading_settings_imports_neither_torch_nor_transformers():
    code = (
        "import sys; from medusa_core import acceptance, drafters;"
        "[drafters.method(name) for name in drafters.method_names()];"
        "[acceptance.rule_info(name) for name in acceptance.rule_names()];"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# --- A conversation whose heads change between two replies drafts with the new ones.


CONFIG = GenerationConfig.of(method="medusa", tree="cartesian-3x2", max_new_tokens=8)


def test_other_heads_on_the_same_model_draft_in_the_next_run(model, engine):
    """Heads that a visitor trained share the target, and so the conversation's cache, with those shipped."""
    other = with_heads(engine, heads=tiny.random_heads(model, seed=9), default_tree=None)
    state = RunState(engine.target.new_cache(0))
    first = tiny.emitted(engine.stream(tiny.PROMPT, CONFIG, state=state))
    text = [*tiny.PROMPT, *first, 5]
    kept = [step.tree.tokens.tolist() for step in other.stream(text, CONFIG, state=state)]
    fresh = [step.tree.tokens.tolist() for step in other.stream(text, CONFIG)]
    assert kept == fresh
    assert kept != [step.tree.tokens.tolist() for step in engine.stream(text, CONFIG)]
