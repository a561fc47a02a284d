"""The page's chat through the session: replies, kept caches, what is refused, and visitors who never meet."""

from __future__ import annotations

import gc
import json
import pickle
import re
import shutil
import weakref
from dataclasses import replace

import page_runs
import pytest
import tiny
from page_runs import run_chat

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters.medusa import with_heads
from medusa_core.engine import Engine
from medusa_core.engine.chat import Conversation, Message
from medusa_core.llama.greedy import GreedySteps
from medusa_core.loading.load import load_engine
from medusa_core.model.target import Target
from medusa_core.text.streamed_text import TextSpan
from ui.records.conversation import MOST_TURNS, ChatState, Turn
from ui.records.settings import LONGEST_RUN, MAX_PROMPT_CHARACTERS, YOURS, Selection
from ui.records.updates import StopFlag
from ui.runs.chat import NOT_SENT, chat_notice
from ui.runs.session import Session
from ui.serving.engines import MOST_ENGINES
from ui.tabs.chat import openers

# Of letters the tiny tokenizer has; "vx" is the end of a turn, and the first system prompt is refused.
TEMPLATE = (
    "{% for m in messages %}{{ 'x' if m.role == 'user' else 'w' }}{{ m.content }}v{% endfor %}"
    "{% if add_generation_prompt %}w{% endif %}"
)
SETTINGS = page_runs.SETTINGS | {"max_new_tokens": 12}
CONFIG = GenerationConfig.of(max_new_tokens=12)
QUESTIONS = ["abc", "hij", "de"]


pytestmark = pytest.mark.usefixtures("each_step_by_itself")


@pytest.fixture(scope="module")
def folder(engine_folder, tmp_path_factory):
    """The tiny model with a chat template."""
    path = tmp_path_factory.mktemp("chat") / "model"
    shutil.copytree(engine_folder, path)
    (path / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def load(folder):
    return LoadConfig(str(folder), dtype="float32", device="cpu")


@pytest.fixture
def session(load):
    return Session(load)


@pytest.fixture(scope="module")
def loaded(load):
    """The same engine, for the slow way."""
    return load_engine(load)


def say(session, text, state=ChatState(), **settings):  # noqa: B008 - frozen
    return list(run_chat(session, text, state, SETTINGS | settings, StopFlag()))


def talk_of(updates) -> ChatState:
    assert [update.status for update in updates if update.problem] == []
    return updates[-1].state


def converse(session, questions=QUESTIONS, state=ChatState(), **settings) -> ChatState:  # noqa: B008 - frozen
    for question in questions:
        state = talk_of(say(session, question, state, **settings))
    return state


def expected(engine: Engine, questions=QUESTIONS):
    """Replies of the engine's own conversation, the page left out."""
    conversation = Conversation(engine)
    replies = []
    for question in questions:
        replies.append(conversation.reply(question, CONFIG))
        assert list(replies[-1])
    return conversation, replies


def reused(turn: Turn) -> tuple[int, int]:
    """Tokens of the prompt that were in the cache, and all of them, as the page says."""
    found = re.search(r"(\d+) of (\d+) prompt tokens reused", turn.figures)
    return int(found[1]), int(found[2])


def texts(state: ChatState):
    return [Message(turn.role, turn.text) for turn in state.turns]


def test_replies_are_those_of_the_engines_own_conversation(session, loaded):
    conversation, replies = expected(loaded)
    state = converse(session)
    assert texts(state) == conversation.messages
    assert any(piece.drafted for turn in state.turns for piece in turn.pieces)
    for turn, reply in zip(state.turns[1::2], replies, strict=True):
        assert f"{len(reply.summary.token_ids)} tokens in {reply.summary.steps} steps" in turn.figures
        assert reused(turn) == (reply.reused, len(reply.prompt))
    assert all(reply.reused > 0 for reply in replies[1:])


def test_a_reply_reaches_the_view_and_the_transcript_step_by_step(session, loaded):
    _, (reply, *_) = expected(loaded)
    updates = say(session, QUESTIONS[0])
    kinds = [json.loads(update.message)["kind"] for update in updates if update.message]
    assert kinds == ["begin", *["steps"] * reply.summary.steps, "end"]
    assert updates[-1].trace["output"]["token_ids"] == reply.summary.token_ids
    assert updates[-1].trace["prompt"]["token_ids"] == reply.prompt
    first, *grown, last = [json.loads(u.transcript) for u in updates if getattr(u, "transcript", None)]
    assert (first["live"], last["live"]) == (True, False)
    assert {first["run"], *(message["run"] for message in grown)} == {last["run"]}
    live = "".join(piece["text"] for message in grown for piece in message["pieces"])
    assert reply.summary.text.startswith(live)
    assert "".join(piece["text"] for piece in last["turns"][1]["pieces"]) == reply.summary.text.strip()


def test_everything_that_crosses_can_be_pickled_and_taken_up_elsewhere(session, load, loaded):
    """What a reply in another process needs: only the kept cache is missing there."""
    conversation, _ = expected(loaded)
    updates = say(session, QUESTIONS[0])
    assert pickle.loads(pickle.dumps(updates)) == updates
    state = converse(Session(load), QUESTIONS[1:], pickle.loads(pickle.dumps(talk_of(updates))))
    assert texts(state) == conversation.messages
    assert reused(state.turns[3])[0] == 0
    assert reused(state.turns[5])[0] > 0


def test_a_reply_ends_with_the_models_turn_even_where_a_text_goes_on(session):
    assert not say(session, QUESTIONS[0], ignore_eos=True)[-1].trace["config"].get("ignore_eos")


def test_stop_keeps_the_words_that_are_there(session, loaded):
    flag, seen = StopFlag(), []
    for update in run_chat(session, QUESTIONS[0], ChatState(), SETTINGS, flag):
        seen.append(update)
        flag.stopped = sum(bool(u.message) for u in seen) == 3  # begin and two steps
    state = talk_of(seen)
    _, (whole, *_) = expected(loaded)
    part = state.turns[1].text
    assert part
    assert whole.summary.text.strip().startswith(part)
    assert len(part) < len(whole.summary.text.strip())
    assert "stopped" in state.turns[1].figures
    # And the conversation goes on from there, with what was read.
    slow = Conversation(loaded, "", texts(state))
    reply = slow.reply("hij", CONFIG)
    assert list(reply)
    state = talk_of(say(session, "hij", state))
    assert texts(state) == slow.messages
    assert reused(state.turns[3])[0] > len(part)


def test_stop_reaches_a_message_that_still_waits(session):
    session.load()
    updates = list(run_chat(session, "abc", ChatState(), SETTINGS, StopFlag(stopped=True)))
    assert updates[-1].status == NOT_SENT
    assert not any(getattr(update, "state", None) or update.message for update in updates)


def test_other_heads_go_on_with_what_was_read(session, loaded, model):
    _, replies = expected(loaded)
    state = converse(session, QUESTIONS[:2])
    shared = []
    list(session.on_engine(lambda engine: iter([shared.append(engine)])))
    other = with_heads(shared[0], heads=tiny.random_heads(model))
    mine = Selection().with_engine(session.add_engine(other), "random")
    state = talk_of(say(session, QUESTIONS[2], state, heads=YOURS, selection=mine))
    assert state.turns[5].text == replies[2].summary.text.strip()  # greedy: any heads, the same text
    assert reused(state.turns[5]) == (replies[2].reused, len(replies[2].prompt))


def test_another_model_reads_the_messages_again(session, folder, tmp_path):
    state = converse(session, QUESTIONS[:1])
    shutil.copytree(folder, tmp_path / "other")
    tiny.build_model(tiny.tiny_config(2), seed=7).save_pretrained(tmp_path / "other")
    wish = LoadConfig(str(tmp_path / "other"), dtype="float32", device="cpu")
    theirs = list(session.models.choose(wish, Selection(), StopFlag()))[-1].selection
    slow = Conversation(load_engine(wish), "", texts(state))
    reply = slow.reply("hij", CONFIG)
    assert list(reply)
    longer = talk_of(say(session, "hij", state, selection=theirs))
    assert texts(longer) == slow.messages
    assert reused(longer.turns[3]) == (0, len(reply.prompt))
    # Back to the model before: it still has what it read.
    assert reused(converse(session, ["hij"], state).turns[3])[0] > 0


def long_talk(count, characters=1):
    return ChatState(
        turns=(Turn("user", (TextSpan("a" * characters),)), Turn("assistant", ())) * (count // 2)
    )


@pytest.mark.parametrize(
    ("text", "changes", "words"),
    [
        ("", {}, "message is empty"),
        ("  \n", {}, "message is empty"),
        ("a" * (MAX_PROMPT_CHARACTERS + 1), {}, f"{MAX_PROMPT_CHARACTERS + 1} characters"),
        ("a" * 200, {}, "the context holds 96"),
        ("hij", {"system": "a" * (MAX_PROMPT_CHARACTERS + 1)}, "The system prompt has"),
        ("hij", {"system": "be nice"}, "has no system prompt"),
        ("hij", {"turns": long_talk(MOST_TURNS).turns}, f"the page keeps {MOST_TURNS}"),
        ("hij", {"turns": long_talk(20, 10_000).turns}, "has 100003 characters, the page keeps 100000"),
        ("hij", {"settings": {"max_new_tokens": LONGEST_RUN + 1}}, f"{LONGEST_RUN + 1} new tokens asked for"),
        ("hij", {"settings": {"heads": YOURS}}, "no heads of your own"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_leaves_the_conversation_as_it_was(session, loaded, text, changes, words):
    _, replies = expected(loaded, QUESTIONS[:2])
    state = converse(session, QUESTIONS[:1])
    changes = dict(changes)
    settings = changes.pop("settings", {})
    updates = say(session, text, replace(state, **changes), **settings)
    assert updates[-1].problem
    assert words in updates[-1].status
    assert "\n" not in updates[-1].status
    assert not any(getattr(update, "state", None) for update in updates)
    state = converse(session, QUESTIONS[1:2], state)
    assert state.turns[3].text == replies[1].summary.text.strip()
    assert reused(state.turns[3]) == (replies[1].reused, len(replies[1].prompt))


def test_a_failure_in_a_reply_is_told_and_the_next_reply_is_right(session, loaded, monkeypatch):
    _, replies = expected(loaded, QUESTIONS[:2])
    state = converse(session, QUESTIONS[:1])
    calls = []

    def failing(step):
        def call(self, *arguments):
            calls.append(1)
            if len(calls) == 3:
                raise RuntimeError("secret detail")
            return step(self, *arguments)

        return call

    with monkeypatch.context() as patch:
        for owner, name in ((Target, "verify_all"), (GreedySteps, "run")):  # whichever makes the steps
            patch.setattr(owner, name, failing(getattr(owner, name)))
        updates = say(session, "hij", state)
    assert updates[-1].problem
    assert "secret" not in updates[-1].status
    assert any(getattr(update, "transcript", None) for update in updates)  # it had begun
    state = converse(session, QUESTIONS[1:2], state)
    assert state.turns[3].text == replies[1].summary.text.strip()


def test_two_visitors_never_meet(session, loaded):
    alone, _ = expected(loaded)
    other = QUESTIONS[::-1]
    one = two = ChatState()
    for mine, theirs in zip(QUESTIONS, other, strict=True):
        one, two = converse(session, [mine], one), converse(session, [theirs], two)
    assert one.id != two.id
    assert min(len(one.id), len(two.id)) >= 32
    assert texts(one) == alone.messages
    assert texts(two) == expected(loaded, other)[0].messages


def test_a_new_conversation_starts_from_nothing_said(session, loaded):
    state = converse(session)
    again = converse(session, QUESTIONS, ChatState(state.id))
    assert texts(again) == texts(state)


def test_old_messages_stay_to_be_seen_when_the_context_has_no_room(session, loaded):
    state = ChatState()
    while all(turn.read for turn in state.turns):
        assert len(state.turns) < 40
        state = converse(session, ["abcdefghijkl"], state)
    gone = sum(not turn.read for turn in state.turns)
    assert [turn.read for turn in state.turns] == [False] * gone + [True] * (len(state.turns) - gone)
    assert f"the oldest {gone} messages no longer fit" in state.turns[-1].figures
    slow = Conversation(loaded, "", [Message(turn.role, turn.text) for turn in state.read])
    reply = slow.reply("de", CONFIG)
    assert list(reply)
    state = converse(session, ["de"], state)
    assert state.turns[-1].text == reply.summary.text.strip()
    assert sum(not turn.read for turn in state.turns) == gone + reply.dropped


def test_a_model_without_a_template_continues_the_text_and_says_so(engine_folder):
    session = Session(LoadConfig(str(engine_folder), dtype="float32", device="cpu"))
    assert session.chat_notice(Selection()).startswith("model has no chat template: it continues")
    engine = load_engine(session.models.own_config)
    reply = Conversation(engine).reply("abc", CONFIG)
    assert list(reply)
    assert reply.prompt == engine.encode("abc")
    assert talk_of(say(session, "abc")).turns[1].text == reply.summary.text


def test_the_notice_is_for_those_who_need_one(session, model, tmp_path):
    assert session.chat_notice(Selection()) == ""
    put_away = Selection(model=LoadConfig(str(tmp_path)))
    assert session.chat_notice(put_away) == ""
    assert "no config.json" in Session(put_away.model).chat_notice(Selection())
    assert "no tokenizer" in chat_notice(tiny.build_engine(model, None, tokenizer=False))


def test_what_was_read_goes_with_its_model(session, load, loaded):
    """A model that is put away must leave its memory: a conversation on it may not hold it."""
    own = load_engine(load)
    model = weakref.ref(own.target)
    mine = Selection().with_engine(session.add_engine(own), "own")
    del own
    talk_of(say(session, "abc", heads=YOURS, selection=mine))
    gc.collect()
    assert model() is not None
    for _ in range(MOST_ENGINES):
        session.add_engine(loaded)
    gc.collect()
    assert model() is None


def test_examples_of_a_chat_are_the_prompts_that_ask():
    kinds = [
        {"kind": "Story", "prompts": [{"label": "x", "text": "Once"}]},
        {"kind": "Booking", "prompts": [
            {"label": "y", "text": "User: A table?\nAssistant:"}, {"label": "z", "text": "User: open"},
        ]},
    ]  # fmt: skip
    assert openers(kinds) == [{"kind": "Booking", "prompts": [{"label": "y", "text": "A table?"}]}]
