"""Suffix decoding with the shipped model: plain decoding's text, in fewer steps than prompt lookup."""

from __future__ import annotations

import pytest

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.loading.load import load_engine

REPEATING = [
    "One, two, three. One, two, three. One, two,",
    "User: A class has 30 students. Half of them are girls. How many boys are there?\nAssistant:",
    "Tom has 3 red balls and 4 blue balls. Tom has 3 red balls and 5 blue balls. Tom has 3 red balls and",
]
OTHERS = ["A small boat went down the river.", "User: I need a doctor in Oakland.\nAssistant:"]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def shipped(request):
    return load_engine(LoadConfig(dtype=request.param, device="cpu"))


def written(engine, text, method, tokens):
    config = GenerationConfig(method=method, max_new_tokens=tokens, ignore_eos=True)
    summary = engine.summary(config)
    for step in engine.stream(engine.encode(text), config):
        summary.add(step)
    return summary


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


def test_it_writes_plain_decoding_s_text(shipped):
    if not shipped.target.choice.exact and shipped.info.dtype != "float32":
        pytest.skip("near ties may flip on this forward")
    for text in OTHERS:
        plain, suffix = (written(shipped, text, method, 128) for method in ("none", "suffix"))
        assert suffix.token_ids == plain.token_ids
        assert suffix.steps < plain.steps


def test_on_repeating_texts_it_keeps_more_than_prompt_lookup_as_published(shipped):
    if shipped.info.dtype != "float32":
        pytest.skip("the texts of one dtype are enough")
    ours = theirs = 0
    for text in REPEATING:
        found = written(shipped, text, "suffix", 256)  # so that it comes to repeat itself
        ours += found.steps
        theirs += steps_of_published_lookup(shipped.encode(text), found.token_ids)
    assert theirs > 1.3 * ours
