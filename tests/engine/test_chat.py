"""Conversations: the template's end of turn, the kept cache, and full contexts."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise

import chats
import pytest
import tiny
import torch
from chats import CHATML, FORGETFUL, LINES, TEMPLATES, VICUNA

from medusa_core import Conversation, MedusaError
from medusa_core.config import GenerationConfig
from medusa_core.engine import RunState
from medusa_core.engine.chat import Message, turn_end
from medusa_core.model.target import Target
from medusa_core.text.stopping import text_before_stop

SETTINGS = GenerationConfig.of(max_new_tokens=24, tree="cartesian-3x2x1")
QUESTIONS = ["How are you", "Tell me more, please.", "And then: what\nnow", "Good"]


def ask(conversation, text, config=SETTINGS):
    return chats.ask(conversation, text, config)


def fresh(conversation, reply):
    """The steps of a reply with a cache of its own."""
    ends = conversation.turn_end.tokens
    return list(conversation.engine.stream(reply.prompt, reply.config, end_tokens=ends))


def ids_of(engine, name):
    return frozenset({engine.tokenizer.convert_tokens_to_ids(name)})


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("method", ["medusa", "none"])
def test_a_kept_cache_gives_the_tokens_of_a_fresh_run(engine_for, name, method):
    """Exact in float32: every turn equals decoding the whole rendered conversation with a new cache."""
    engine = engine_for(TEMPLATES[name])
    conversation = Conversation(engine)
    config = replace(SETTINGS, method=method)
    reused = []
    for question in QUESTIONS:
        reply = ask(conversation, question, config)
        steps = fresh(conversation, reply)
        assert reply.summary.token_ids == tiny.emitted(steps)
        assert reply.summary.steps == len(steps)
        assert reply.summary.finish_reason == steps[-1].finish_reason
        reused.append(reply.reused)
    assert reused[0] == 0
    assert all(after > before for before, after in pairwise(reused))


def test_sampling_with_a_kept_cache_is_that_of_a_fresh_run(engine_for):
    engine = engine_for(CHATML)
    conversation = Conversation(engine, "Be brief.")
    config = replace(SETTINGS, temperature=0.8, seed=3)
    for question in QUESTIONS:
        reply = ask(conversation, question, config)
        assert reply.summary.token_ids == tiny.emitted(fresh(conversation, reply))


def test_only_what_is_new_is_read(engine_for, monkeypatch):
    engine = engine_for(CHATML)
    read = []
    real = Target.prefill
    monkeypatch.setattr(
        Target, "prefill", lambda self, ids, *rest: (read.append(len(ids)), real(self, ids, *rest))[1]
    )
    conversation = Conversation(engine)
    for question in QUESTIONS:
        reply = ask(conversation, question)
        assert read[-1] == len(reply.prompt) - reply.reused
    assert sum(read) < len(reply.prompt) + len(QUESTIONS) * 2


def test_a_template_that_rewrites_old_answers_cuts_the_cache(engine_for):
    engine = engine_for(FORGETFUL)
    conversation = Conversation(engine)
    first = ask(conversation, QUESTIONS[0])
    assert len(first.summary.text.strip()) > 3
    second = ask(conversation, QUESTIONS[1])
    assert len(first.prompt) < second.reused < len(first.prompt) + len(first.summary.token_ids)
    assert second.summary.token_ids == tiny.emitted(fresh(conversation, second))


def test_rows_of_the_cache_are_those_of_the_tokens_it_says(engine_for):
    """Keys and values after several turns against one plain forward over the same tokens."""
    engine = engine_for(VICUNA)
    read = RunState(engine.target.new_cache(0))
    conversation = Conversation(engine, read=read)
    for question in QUESTIONS[:3]:
        ask(conversation, question)
    rows, cache = read.tokens, read.cache
    assert cache.length == len(rows) == conversation.cached_tokens
    anew = engine.target.new_cache(len(rows))
    with torch.inference_mode():
        engine.target.prefill(rows, anew)
    for ours, theirs in zip(cache.layers, anew.layers, strict=True):
        torch.testing.assert_close(ours.keys[:, :, : len(rows)], theirs.keys, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(ours.values[:, :, : len(rows)], theirs.values, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "tokens", "stop"),
    [
        ("lines", None, ("\nUser:",)),
        ("chatml", "<|end|>", ()),
        ("vicuna", "</s>", ()),
        ("inst", "</s>", ()),
        ("only_start", "<|start|>", ()),
    ],
)
def test_the_end_of_a_turn_is_read_from_the_template(engine_for, name, tokens, stop):
    engine = engine_for(TEMPLATES[name])
    end = turn_end(engine)
    assert end.stop == stop
    assert end.tokens == (ids_of(engine, tokens) if tokens else frozenset())


def test_a_reply_stops_at_the_end_of_its_turn(engine_for, chat_model):
    """The model's own next tokens are renamed so that the end of a turn appears in them."""
    engine = engine_for(CHATML)
    free = ask(Conversation(engine), QUESTIONS[0], replace(SETTINGS, ignore_eos=True))
    ending = free.summary.token_ids[10]
    conversation = Conversation(engine)
    conversation.turn_end = replace(conversation.turn_end, tokens=frozenset({ending}))
    reply = ask(conversation, QUESTIONS[0])
    assert reply.summary.finish_reason == "eos"
    assert reply.summary.token_ids == free.summary.token_ids[: free.summary.token_ids.index(ending) + 1]
    assert reply.summary.text == engine.decode_text(reply.summary.token_ids[:-1])
    assert conversation.messages[-1] == Message("assistant", reply.summary.text.strip())


def test_the_header_of_the_next_question_ends_a_reply(engine_for):
    engine = engine_for(LINES)
    free = ask(Conversation(engine), QUESTIONS[0])
    header = engine.decode_text(free.summary.token_ids[6:9])
    engine.tokenizer.chat_template = LINES.replace("User: ", header).replace("\n", "")
    conversation = Conversation(engine)
    reply = conversation.reply(QUESTIONS[0], SETTINGS)
    assert conversation.turn_end.stop == (header.rstrip(),)
    for _ in reply:
        pass
    assert (
        header.rstrip()
        not in reply.summary.text
        == text_before_stop(engine.decode_text(reply.summary.token_ids), reply.config.stop)
    )


def test_messages_and_system_prompt_go_through_the_template(engine_for):
    engine = engine_for(CHATML)
    conversation = Conversation(engine, "Be brief.")
    reply = ask(conversation, "Hi")
    start = "<|start|>system\nBe brief.<|end|>\n<|start|>user\nHi<|end|>\n<|start|>assistant\n"
    assert engine.tokenizer.decode(reply.prompt) == start
    again = ask(conversation, "Why")
    between = f"{reply.summary.text.strip()}<|end|>\n<|start|>user\nWhy<|end|>\n<|start|>assistant\n"
    assert engine.tokenizer.decode(again.prompt) == start + between
    assert [message.role for message in conversation.messages] == ["user", "assistant"] * 2
    conversation.system = ""
    assert "system" not in engine.tokenizer.decode(conversation.reply("x", SETTINGS).prompt)


@pytest.mark.parametrize("name", ["lines", "inst"])
def test_a_template_without_a_system_prompt_says_so(engine_for, name):
    """One of them would write it as an answer, the other raises."""
    with pytest.raises(MedusaError, match="has no system prompt"):
        Conversation(engine_for(TEMPLATES[name]), "Be brief.")
    conversation = Conversation(engine_for(TEMPLATES[name]))
    with pytest.raises(MedusaError, match="has no system prompt"):
        conversation.system = "Be brief."
    assert conversation.system == ""


def test_a_model_without_a_template_continues_the_text_and_says_so(engine_for):
    engine = engine_for(None)
    conversation = Conversation(engine, "Once")
    assert "no chat template" in conversation.notice
    first = ask(conversation, "upon a time")
    assert engine.decode_text(first.prompt) == "Once\nupon a time"
    second = ask(conversation, "and")
    assert engine.decode_text(second.prompt) == f"Once\nupon a time{first.summary.text}\nand"
    assert second.reused >= len(first.prompt)
    assert second.summary.token_ids == tiny.emitted(engine.stream(second.prompt, second.config))
    assert Conversation(engine_for(CHATML)).notice is None


def test_the_oldest_messages_go_when_the_context_is_full(engine_for):
    engine = engine_for(CHATML, context=160)
    conversation = Conversation(engine, "Sys.")
    dropped, texts = [], []
    for number in range(6):
        reply = ask(conversation, f"Question {number}")
        assert len(reply.prompt) + 24 <= 160
        assert reply.summary.finish_reason in ("length", "eos")
        dropped.append(reply.dropped)
        texts.append(engine.tokenizer.decode(reply.prompt))
        assert reply.summary.token_ids == tiny.emitted(fresh(conversation, reply))
    assert dropped[0] == 0
    assert max(dropped) == 2
    assert all("Sys." in text for text in texts)
    assert "Question 0" not in texts[-1]
    assert "Question 4" in texts[-1]


def test_a_message_longer_than_the_context_changes_nothing(engine_for):
    engine = engine_for(CHATML, context=160)
    conversation = Conversation(engine)
    ask(conversation, "Hi")
    before, cached = list(conversation.messages), conversation.cached_tokens
    with pytest.raises(MedusaError, match="the context holds 160: shorten it"):
        conversation.reply("long " * 60, SETTINGS)
    with pytest.raises(MedusaError, match="is empty"):
        conversation.reply(" \n", SETTINGS)
    assert conversation.messages == before
    assert conversation.cached_tokens == cached
    assert ask(conversation, "Still there").reused > 0


def test_a_run_that_cannot_start_leaves_the_conversation_as_it_was(engine_for):
    conversation = Conversation(engine_for(CHATML))
    ask(conversation, "Hi")
    before = list(conversation.messages)
    with pytest.raises(MedusaError, match="no tree is called"):
        ask(conversation, "Why", SETTINGS.changed(tree="oak"))
    assert conversation.messages == before
    reply = ask(conversation, "Why")
    assert reply.reused > 0
    assert reply.summary.token_ids == tiny.emitted(fresh(conversation, reply))


def test_a_failure_while_reading_leaves_a_cache_that_is_right(engine_for, monkeypatch):
    """Rows that were read before the failure are not taken for rows of the old text."""
    engine = engine_for(CHATML)
    conversation = Conversation(engine)
    ask(conversation, "Hi")
    real = Target.prefill

    def breaks(self, tokens, *rest):
        real(self, tokens[:-2], *rest)
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(Target, "prefill", breaks)
        with pytest.raises(MedusaError, match="cpu has too little memory for"):
            ask(conversation, "A first try")
    reply = ask(conversation, "Another text, longer than the first try")
    assert reply.summary.token_ids == tiny.emitted(fresh(conversation, reply))


def test_a_reply_that_is_broken_off_is_kept(engine_for):
    engine = engine_for(CHATML)
    conversation = Conversation(engine)
    reply = conversation.reply("Hi", replace(SETTINGS, ignore_eos=True))
    steps = iter(reply)
    list(islice(steps, 3))
    steps.close()
    assert reply.summary.finish_reason is None
    assert reply.summary.steps == 3
    assert conversation.messages[-1] == Message("assistant", reply.summary.text.strip())
    after = ask(conversation, "Go on")
    assert after.summary.token_ids == tiny.emitted(fresh(conversation, after))
    with pytest.raises(MedusaError, match="made already"):
        list(reply)


def test_a_reply_not_asked_for_its_steps_changes_nothing(engine_for):
    conversation = Conversation(engine_for(CHATML))
    conversation.reply("Hi", SETTINGS)
    assert conversation.messages == []


def test_conversations_on_one_engine_do_not_meet(engine_for):
    engine = engine_for(CHATML)
    alone = Conversation(engine)
    expected = [ask(alone, question).summary.token_ids for question in QUESTIONS]
    one, other = Conversation(engine), Conversation(engine, "Other.")
    got = []
    for question in QUESTIONS:
        first, second = one.reply(question, SETTINGS), other.reply(question[::-1], SETTINGS)
        turns = [iter(first), iter(second)]
        while turns:  # a step of each in turn
            turns = [turn for turn in turns if next(turn, None) is not None]
        got.append(first.summary.token_ids)
    assert got == expected


def test_a_conversation_goes_on_from_its_messages_and_what_was_read(engine_for):
    engine = engine_for(CHATML)
    whole = Conversation(engine)
    read, messages = RunState(engine.target.new_cache(0)), []
    for question in QUESTIONS:
        expected = ask(whole, question)
        part = Conversation(engine, "", messages, read)
        reply = ask(part, question)
        assert (reply.summary.token_ids, reply.reused) == (expected.summary.token_ids, expected.reused)
        messages = part.messages
    anew = Conversation(engine, "", whole.messages[:-2])  # the cache is lost: only slower
    reply = ask(anew, QUESTIONS[-1])
    assert (reply.summary.token_ids, reply.reused) == (expected.summary.token_ids, 0)
    assert anew.messages == whole.messages


def test_reset_forgets_everything_but_the_system_prompt(engine_for):
    conversation = Conversation(engine_for(CHATML), "Sys.")
    first = ask(conversation, "Hi")
    conversation.reset()
    assert (conversation.messages, conversation.cached_tokens) == ([], 0)
    again = ask(conversation, "Hi")
    assert (again.prompt, again.summary.token_ids, again.reused) == (first.prompt, first.summary.token_ids, 0)


def test_without_a_tokenizer_there_is_no_chat(chat_model, chat_heads):
    with pytest.raises(MedusaError, match="no tokenizer"):
        Conversation(tiny.build_engine(chat_model, chat_heads, tokenizer=False))


def test_the_embedded_model_answers(shipped):
    """The shipped model and its template; a reply ends where the next question would start."""
    conversation = Conversation(shipped)
    assert conversation.turn_end.stop == ("\nUser:",)
    for text in ("Find me a bus to Sacramento.", "Tomorrow, please."):
        reply = ask(conversation, text, GenerationConfig.of(max_new_tokens=40))
        assert reply.summary.text.strip()
        assert "User:" not in reply.summary.text
        assert reply.summary.token_ids == tiny.emitted(shipped.stream(reply.prompt, reply.config))
    assert reply.reused > 15


def test_the_embedded_model_talks_of_a_story_as_a_and_b_and_of_all_else_as_user_and_assistant(shipped):
    conversation = Conversation(shipped)
    rendered = []
    for text in ("What is 3 + 4?", "Tell me a story about a fox.", "What happened next?", "Add 5 and 6."):
        reply = ask(conversation, text, GenerationConfig.of(max_new_tokens=8))
        rendered.append((conversation.engine.decode_text(reply.prompt), *reply.config.stop))
    sums, story, more, others = rendered
    assert sums == ("User: What is 3 + 4?\nAssistant:", "\nUser:")
    assert story == ("A: Tell me a story about a fox.\nB:", "\nA:")  # without the sum before
    assert more[0].startswith(story[0])
    assert more[0].endswith("\nA: What happened next?\nB:")
    assert others == ("User: Add 5 and 6.\nAssistant:", "\nUser:")
