"""Prompt lookup and n-gram counts by a search of the whole text, merged trees by the sets of their paths."""

from __future__ import annotations

import pytest
import small_model
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from medusa_core.acceptance import make_rule
from medusa_core.config import GenerationConfig
from medusa_core.decoding import Run, decode
from medusa_core.drafters import lookup, make_drafter, method, method_names, ngram
from medusa_core.drafters._merged import MergedDrafter
from medusa_core.text.stopping import Stopper
from medusa_core.trees.origin import ROOT, Origin
from medusa_core.trees.token_tree import TokenTree, union

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=24)


def drafter_of(text, engine, **settings):
    drafter = lookup.LookupDrafter(engine.target, None, lookup.Settings(**settings))
    drafter.begin(text, torch.empty(1, 0))
    return drafter


def searched(text, longest, count):
    """The slow way: what follows the latest earlier place of the text's longest known end."""
    for size in range(min(longest, len(text) - 1), 0, -1):
        for end in range(len(text) - 1, size - 1, -1):
            if text[end - size : end] == text[-size:]:
                long = list(text)
                for place in range(count):
                    long.append(long[end + place])
                return long[len(text) :]
    return []


@given(text=TEXTS, longest=st.integers(1, 4), count=st.integers(1, 12))
def test_lookup_copies_what_a_search_finds(engine, text, longest, count):
    tree = drafter_of(text[:-1], engine, lookup_ngram=longest, lookup_tokens=count).propose(text[-1], 99)
    assert tree.tokens.tolist() == [text[-1], *searched(text, longest, count)]
    assert tree.parents == list(range(-1, tree.size - 1))
    assert all(0 < share <= 1 for share in tree.draft_logp.exp().tolist())


def test_lookup_says_where_it_found_a_guess_and_how_often_the_text_went_on_so(engine):
    text = [1, 2, 3, 9, 1, 2, 4, 8, 1]
    tree = drafter_of(text, engine, lookup_ngram=2, lookup_tokens=2).propose(2, 99)
    assert tree.tokens.tolist() == [2, 4, 8]
    assert tree.origins[1] == Origin(
        "lookup", label="−4", note="found 4 tokens earlier, after the same 2 tokens", back=4
    )
    assert tree.draft_logp.exp().tolist() == pytest.approx([1, 0.5, 1])


def proposed(engine, text, root, **settings):
    """The tree for ``root`` after ``text``; per node its tokens from the root, label, note and share."""
    drafter = ngram.NgramDrafter(engine.target, None, ngram.Settings(**settings))
    drafter.begin(text, torch.empty(1, 0))
    tree = drafter.propose(root, 99)
    found = {}
    for node in range(1, tree.size):
        path = tuple(int(tree.tokens[i]) for i in tiny.path_to(tree.parents, node)[1:])
        origin = tree.origins[node]
        found[path] = (origin.label, origin.note, float(tree.draft_logp[node].exp()))
    return found


@given(text=st.lists(st.integers(0, 3), max_size=40), root=st.integers(0, 3), depth=st.integers(1, 4))
def test_every_count_is_the_slow_one(engine, text, root, depth):
    starts = [i for i in range(len(text) - 1) if text[i] == root]
    for path, (label, note, share) in proposed(engine, text, root, draft_depth=depth).items():
        places = [i for i in starts if tuple(text[i + 1 : i + 1 + len(path)]) == path]
        assert label == f"×{len(places)}"
        times = "once" if len(places) == 1 else f"{len(places)} times"
        last = f"last {len(text) - places[-1]} tokens earlier"
        assert note == f"followed the root {times} in the text so far, {last}"
        before = [i for i in starts if tuple(text[i + 1 : i + len(path)]) == path[:-1]]
        assert share == pytest.approx(len(places) / len(before))


@st.composite
def trees(draw, by):
    """A tree with root token 7 and no equal siblings."""
    tokens, parents = [7], [-1]
    for _ in range(draw(st.integers(0, 8))):
        parent, token = draw(st.integers(0, len(tokens) - 1)), draw(st.integers(0, 4))
        if (parent, token) not in set(zip(parents, tokens, strict=True)):
            tokens.append(token)
            parents.append(parent)
    shares = [1.0, *(draw(st.floats(0.01, 1)) for _ in tokens[1:])]
    return TokenTree.from_lists(tokens, parents, [ROOT, *(Origin(by) for _ in tokens[1:])], shares)


def paths(tree):
    return {
        tuple(tree.tokens[node].item() for node in tiny.path_to(tree.parents, leaf)): leaf
        for leaf in range(tree.size)
    }


@given(first=trees("a"), second=trees("b"), third=trees("c"))
def test_a_union_has_each_path_once_and_the_first_tree_s_data(first, second, third):
    merged = union([first, second, third])
    all_paths = [paths(tree) for tree in (first, second, third)]
    found = paths(merged)
    assert len(found) == merged.size
    assert set(found) == set().union(*all_paths)
    assert merged.parents[: first.size] == first.parents
    for path, node in found.items():
        which, leaf = next((i, known[path]) for i, known in enumerate(all_paths) if path in known)
        source = (first, second, third)[which]
        assert merged.origins[node] == source.origins[leaf]
        assert merged.draft_logp[node] == source.draft_logp[leaf]
        assert merged.depths[node] == len(path) - 1
        assert merged.mask[node].nonzero().flatten().tolist() == sorted(tiny.path_to(merged.parents, node))


def test_a_merged_run_has_nodes_of_both_and_no_fewer_tokens_a_step(engine):
    prompt = [4, 9, 2, 7] * 6
    steps = tiny.run(engine, prompt, method="medusa+ngram", tree="cartesian-2x2", max_new_tokens=40)
    assert {origin.by for step in steps for origin in step.tree.origins} == {"", "medusa", "ngram"}
    alone = tiny.run(engine, prompt, method="medusa", tree="cartesian-2x2", max_new_tokens=40)
    assert len(steps) <= len(alone)


def test_heads_and_a_draft_model_make_one_tree_and_plain_decoding_s_text(engine):
    """SpecInfer's merged trees: the heads read hidden states, the small model nothing but tokens."""
    engine = small_model.with_draft_model(engine)
    settings = {"ignore_eos": True, "max_new_tokens": 40}
    plain = tiny.run(engine, tiny.PROMPT, method="none", **settings)
    heads, model = (
        GenerationConfig.of(method="medusa", tree="cartesian-2x2", **settings),
        GenerationConfig.of(method="draft_model", draft_top_k=2, draft_depth=2, draft_nodes=6, **settings),
    )
    found = {}
    for name, configs in (("heads", [heads]), ("model", [model]), ("both", [heads, model])):
        drafter = MergedDrafter([make_drafter(engine.target, engine.drafts, one) for one in configs])
        rule = make_rule(heads, torch.Generator())
        stopper = Stopper(end_tokens=frozenset(), stop=(), budget=40, decode=engine.decode_text, before=[])
        with torch.inference_mode():
            found[name] = list(decode(Run(engine.target, drafter, rule, tiny.PROMPT, stopper, 40)))
        assert tiny.emitted(found[name]) == tiny.emitted(plain)
    assert {origin.by for step in found["both"] for origin in step.tree.origins} >= {"", "draft_model"}
    assert len(found["both"]) <= min(len(found["heads"]), len(found["model"]))


def test_every_drafter_with_weights_is_joined_by_every_one_that_joins():
    assert {"medusa+lookup", "medusa+ngram"} <= set(method_names())
    merged = method("medusa+ngram")
    assert merged.has_weights
    assert {"tree", "draft_nodes"} <= set(merged.settings.__dataclass_fields__)
