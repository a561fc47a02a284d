"""Suffixes against a search of the whole text, the trees grown from them, and the shipped model with them."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from medusa_core.config import GenerationConfig
from medusa_core.drafters.suffix import Settings
from medusa_core.drafters.suffix.automaton import SuffixAutomaton
from medusa_core.drafters.suffix.drafter import SuffixDrafter, continuations
from medusa_core.trees.origin import Origin

TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=24)


def drafter_of(text, engine, **settings):
    drafter = SuffixDrafter(engine.target, None, Settings(**settings))
    drafter.begin(text, torch.empty(1, 0))
    return drafter


def places(text, part):
    """Where ``part`` ends in ``text``."""
    size = len(part)
    return [end for end in range(size, len(text) + 1) if text[end - size : end] == part]


def endings(text, root):
    """The endings of ``text`` and ``root`` that stand in ``text``, the longest of each set of places."""
    whole, seen = [*text, root], []
    for size in range(len(whole), 0, -1):
        found = places(text, whole[-size:])
        if found and (not seen or found != seen[-1][1]):
            seen.append((size, found))
    return seen


@given(text=TEXTS, root=st.integers(0, 3))
def test_every_ending_has_the_places_and_followers_of_a_search(text, root):
    automaton = SuffixAutomaton()
    automaton.extend(text)
    found = list(automaton.shorter(automaton.end(root)))
    wanted = endings(text, root)
    assert [match.length for match in found] == [size for size, _ in wanted]
    for match, (_, ends) in zip(found, wanted, strict=True):
        assert automaton.count(match) == len(ends)
        assert automaton.latest(match) == ends[-1] - 1
        assert automaton.followers(match) == Counter(text[end] for end in ends if end < len(text))


@given(text=TEXTS, root=st.integers(0, 2))
def test_longer_endings_weigh_more_and_shares_are_those_of_the_places(text, root):
    automaton = SuffixAutomaton()
    automaton.extend(text)
    wanted, left = Counter(), 1.0
    for size, ends in endings(text, root):
        after = Counter(text[end] for end in ends if end < len(text))
        if left >= 0.01 and after:
            for token, count in after.items():
                wanted[token] += left * size / (size + 1) * count / after.total()
            left /= size + 1
    found = continuations(automaton, automaton.end(root))
    assert {token: share for token, (share, _) in found.items()} == pytest.approx(dict(wanted))


def test_the_automaton_stays_linear_in_the_text():
    automaton = SuffixAutomaton()
    automaton.extend(torch.randint(0, 3, (2000,), generator=torch.Generator().manual_seed(0)).tolist())
    assert len(automaton._next) <= 2 * 2000
    assert sum(map(len, automaton._next)) <= 3 * 2000


@given(text=TEXTS, root=st.integers(0, 2), nodes=st.integers(1, 20), depth=st.integers(1, 6))
def test_a_tree_holds_the_likeliest_paths_each_once(engine, text, root, nodes, depth):
    settings = {"draft_nodes": nodes, "suffix_depth": depth, "suffix_least": 0.05}
    tree = drafter_of(text, engine, **settings).propose(root, 99)
    p, tokens = path_shares(tree), tree.tokens.tolist()
    paths = [(root,)]
    for node in range(1, tree.size):
        paths.append((*paths[tree.parents[node]], tokens[node]))
        assert 0.05 <= p[node] + 1e-6 <= p[tree.parents[node]] + 2e-6
        assert places([*text, root], [*paths[node]][1:]) or tree.depths[node] > 1
    assert len(set(paths)) == tree.size <= nodes + 1
    assert max(tree.depths) <= depth
    all_paths = drafter_of(text, engine, **settings | {"draft_nodes": 128}).propose(root, 99)
    largest = sorted(path_shares(all_paths), reverse=True)[: nodes + 1]
    assert sorted(p, reverse=True) == pytest.approx(largest)


def path_shares(tree):
    """The product of the shares from the root down to each node."""
    p = tree.draft_logp.exp().tolist()
    return [math.prod(p[one] for one in tiny.path_to(tree.parents, node)) for node in range(tree.size)]


def test_a_guess_says_how_often_and_where_it_was_found(engine):
    tree = drafter_of([1, 2, 3, 9, 1, 2, 4, 8, 1, 2, 4, 7, 1], engine).propose(2, 1)
    assert tree.tokens.tolist() == [2, 4, 3]
    assert tree.origins[1:] == [
        Origin(
            "suffix", label="×2", note="found 2 times after the same 2 tokens, last at distance 4", back=4
        ),
        Origin("suffix", label="×1", note="found once after the same 2 tokens, last at distance 12", back=12),
    ]


def test_a_token_that_is_new_to_the_text_gets_no_guesses(engine):
    assert drafter_of([1, 2, 3], engine).propose(7, 9).size == 1


# --- Suffix decoding with the shipped model: fewer steps than prompt lookup.


REPEATING = [
    "One, two, three. One, two, three. One, two,",
    "User: A class has 30 students. Half of them are girls. How many boys are there?\nAssistant:",
    "Tom has 3 red balls and 4 blue balls. Tom has 3 red balls and 5 blue balls. Tom has 3 red balls and",
]


def steps_of_published_lookup(prompt, output):
    """Steps of prompt lookup as published: the first match of at most 3 tokens, 10 tokens copied."""
    text, at, steps = list(prompt), 0, 0
    while at < len(output):
        known = [*text, output[at]]
        sizes = range(min(3, len(known) - 1), 0, -1)
        places = ((end, size) for size in sizes for end in range(size, len(known)))
        found = (end for end, size in places if known[end - size : end] == known[-size:])
        copied = known[end : end + 10] if (end := next(found, None)) is not None else []
        right = 0
        while right < min(len(copied), len(output) - at - 1) and copied[right] == output[at + 1 + right]:
            right += 1
        text += output[at : at + 1 + right]
        at, steps = at + 1 + right, steps + 1
    return steps


def test_on_repeating_texts_it_keeps_more_than_prompt_lookup_as_published(shipped):
    ours = theirs = 0
    config = GenerationConfig(method="suffix", max_new_tokens=256, ignore_eos=True)  # so that texts repeat
    for prompt in map(shipped.encode, REPEATING):
        steps = list(shipped.stream(prompt, config))
        ours += len(steps)
        theirs += steps_of_published_lookup(prompt, tiny.emitted(steps))
    assert theirs > 1.1 * ours
