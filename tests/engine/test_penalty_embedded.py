"""The shipped model under the penalty: each method writes plain decoding's text, less of it repeated."""

from __future__ import annotations

import pytest

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters import PLUS
from medusa_core.loading.load import load_engine

PENALTY = {"penalty": 1.2, "penalty_window": 48}  # tokens leave the window within the run
NEW = 96


@pytest.fixture(scope="module")
def shipped():
    return load_engine(LoadConfig(dtype="float32", device="cpu"))


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
        assert found.steps < NEW, name
