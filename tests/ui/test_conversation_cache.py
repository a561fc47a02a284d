"""What a conversation has read is kept for its next turn, within a number and a size."""

from __future__ import annotations

from medusa_core.config import GenerationConfig
from medusa_core.engine.chat import Conversation
from medusa_core.model.target import Target
from ui.serving.engines import ConversationCache


def test_the_cache_keeps_the_last_used_of_each_model(model):
    one, two, cache = Target(model), Target(model), ConversationCache(most=2)
    first, second = cache.get(one, "a"), cache.get(one, "b")
    assert cache.get(two, "a") is not first
    assert cache.get(one, "a") is first
    cache.get(one, "c")
    assert cache.get(one, "a") is first
    assert cache.get(one, "b") is not second


def test_the_cache_drops_what_takes_too_much_memory(engine):
    cache = ConversationCache(most_bytes=1)
    first = cache.get(engine.target, "a")
    assert list(Conversation(engine, "", (), first).reply("abc", GenerationConfig.of(max_new_tokens=12)))
    assert cache.get(engine.target, "a") is first  # the one in use stays
    cache.get(engine.target, "b")
    assert cache.get(engine.target, "a") is not first


def test_the_drafters_own_cache_counts_as_well(engine, monkeypatch):
    cache = ConversationCache(most_bytes=2**30)
    first = cache.get(engine.target, "a")
    assert list(Conversation(engine, "", (), first).reply("abc", GenerationConfig.of(max_new_tokens=12)))
    cache.get(engine.target, "b")
    assert cache.get(engine.target, "a") is first
    monkeypatch.setattr(first.state.drafter, "cache_bytes", 2**31, raising=False)
    cache.get(engine.target, "b")
    assert cache.get(engine.target, "a") is not first
