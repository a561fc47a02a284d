"""What a run tells its page: its steps in order, its end or failure, and nothing for what is skipped."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from time import sleep

import gradio as gr
import pytest
from gradio.state_holder import SessionState
from page_runs import SETTINGS, run_decode, trace_of
from view_trace import make_trace

from medusa_core.config import GenerationConfig
from medusa_core.drafters.medusa import with_heads
from medusa_core.errors import MedusaError
from medusa_core.evaluation.step_times import timed_steps
from medusa_core.loading.load import load_engine
from medusa_core.trace.packed import TABLES, compact, unpacked
from medusa_core.trees.budget import LatencyPoint
from medusa_core.trees.tree import Topology
from ui.components.views import TextLine
from ui.records.messages import message_begin, message_trace
from ui.records.settings import DEFAULT, DYNAMIC, RunSettings
from ui.records.updates import StopFlag, Update
from ui.runs.decode import UNTIMED_DYNAMIC, DecodeRequest
from ui.runs.session import Session
from ui.serving.kept import KeptRuns
from ui.serving.page import Page
from ui.serving.page_routes import PageChannel
from ui.serving.policy import Policy
from ui.serving.update_stream import Acks
from ui.tabs.api import _finished
from ui.tabs.shown_runs import ChartPanel

PROMPT = "bcad"


def run(session, **changes) -> list:
    return list(run_decode(session, PROMPT, SETTINGS | changes, StopFlag()))


@pytest.mark.sample
@pytest.mark.parametrize("seconds", [0, 0.003, 60])
@pytest.mark.parametrize("changes", [{}, {"method": "ngram"}], ids=["medusa", "ngram"])
def test_messages_make_up_the_trace(session, monkeypatch, seconds, changes):
    monkeypatch.setattr("ui.runs.decode.TOGETHER_SECONDS", seconds)
    updates = run(session, **changes)
    begin, *told, end = [json.loads(update.message) for update in updates if update.message]
    assert [begin["kind"], end["kind"], {message["kind"] for message in told}] == ["begin", "end", {"steps"}]
    trace = trace_of(updates)
    tables, steps = {name: [] for name in TABLES}, []
    for message in told:
        assert message["first"] == len(steps)
        steps += message["steps"]
        for name in TABLES:
            tables[name] += message[name]
    assert unpacked(compact(begin["trace"], tables, steps, end["output"])) == trace
    if seconds == 0:
        assert all(len(message["steps"]) == 1 for message in told)
    if seconds == 60:  # the first at once, so that the page shows that the run goes on
        assert [len(message["steps"]) for message in told] == [1, len(steps) - 1]


def test_messages_hold_what_was_given_and_no_tag():
    trace = make_trace()  # some of its texts are tags
    message = json.loads(message_trace("r", trace, "note"))
    assert (message["kind"], message["run"], message["note"]) == ("trace", "r", "note")
    steps = [{**step, "after": []} for step in trace["steps"]]
    assert unpacked(message["trace"]) == {**trace, "steps": steps}
    assert "<" not in message_trace("r", trace)
    begin = json.loads(message_begin("r", trace))["trace"]
    assert begin["steps"] == []
    assert "output" not in begin


def test_a_run_that_is_stopped_has_told_its_steps(session):
    flag, updates = StopFlag(), []
    for update in run_decode(session, PROMPT, SETTINGS, flag):
        updates.append(update)
        flag.stopped = True
    told = [message for update in updates if (message := json.loads(update.message or "{}")).get("steps")]
    assert sum(len(message["steps"]) for message in told) == len(updates[-1].trace["steps"]) > 0


# --- The end of a run and what is said behind it reach the page as one change, and nothing of it is lost.


@dataclass(frozen=True)
class UntilStopped(DecodeRequest):
    """A run that ends with its trace once the flag is raised."""

    def run(self, engines, flag):
        yield Update('{"kind": "begin"}', "Reading the prompt…")
        while not flag.stopped:
            sleep(0.005)
            yield Update('{"kind": "step"}', "Step")
        yield Update('{"kind": "end"}', "stopped.", trace={"steps": [1]})


def test_a_run_that_its_time_limit_ended_keeps_its_trace(load):
    session = Session(load, policy=Policy(run_seconds=0.05))
    request = UntilStopped("abc", RunSettings.of(**SETTINGS))
    updates = list(session.run(request, StopFlag(), Acks()))
    assert [update.trace for update in updates if update.trace is not None] == [{"steps": [1]}]
    assert "broken" not in "".join(update.message or "" for update in updates)
    assert updates[-1].status == "stopped. Ended after 0.05 s, the longest that a run may take here."


# --- What the end of a run tells beside it: steps timed here, and whether the forward is exact.


TIMES = (LatencyPoint(nodes=1, step_ms=2.5), LatencyPoint(nodes=8, step_ms=3.5))


def test_steps_are_known_only_where_they_were_timed(load):
    engine, run = load_engine(load), GenerationConfig.of(tree=Topology.from_choices([[0], [1], [0, 0]]))
    assert timed_steps(engine, run) is None
    timed = with_heads(engine, latency=TIMES)
    assert timed_steps(timed, run) == (2.5, pytest.approx(2.5 + 3 / 7))
    assert timed_steps(timed, run.changed(method="medusa+ngram")) is None
    assert timed_steps(with_heads(engine, latency=TIMES[1:]), run) is None
    assert timed_steps(with_heads(engine, latency=TIMES[:1]), run) is None


@pytest.mark.parametrize(("tree", "untimed"), [(DEFAULT, ""), (DYNAMIC, UNTIMED_DYNAMIC)])
def test_the_end_of_a_run_says_what_is_known_of_its_model(load, tree, untimed):
    session = Session(load)
    updates = list(run_decode(session, "abc", SETTINGS | {"tree": tree}, StopFlag()))
    last = json.loads(updates[-1].message)
    if last["kind"] == "several":
        last = last["messages"][-1]
    assert last["beside"] == {"timed_ms": None, "small": "", "untimed": untimed, "faster": ""}


# --- What an event skips costs nothing: gradio would make the component anew for every message of a stream.


VALUES = {
    "values": ["words", "more", "text", 1],
    "skips": ["words", gr.skip(), "text", gr.skip()],
    "one value": [gr.skip(), gr.skip(), "text", gr.skip()],
    "only skips": [gr.skip(), gr.skip(), gr.skip(), gr.skip()],
    "a change": [gr.update(visible=False), gr.skip(), gr.update(value="x"), 1],
    "one skip for all": gr.skip(),
}


@pytest.fixture
def page():
    with Page(PageChannel(), KeptRuns()) as page:
        outputs = [TextLine(), TextLine(), gr.Textbox(), gr.State()]
        gr.Button().click(lambda: None, None, outputs)
    return page


def without_noise(value):
    """An update without the mark of an update among the props, which gradio leaves there for HTML."""
    if isinstance(value, dict) and value.get("props") == gr.skip():
        del value["props"]
    return value


@pytest.mark.parametrize("name", VALUES)
def test_the_browser_is_told_what_gradio_would_tell_it(page, name, run_apart):
    function = next(iter(page.fns.values()))
    ours, theirs = (
        # A copy: gradio takes the value out of an update.
        [without_noise(value) for value in run_apart(
            kind.postprocess_data(page, function, deepcopy(VALUES[name]), SessionState(page))
        )]
        for kind in (Page, gr.Blocks)
    )  # fmt: skip
    assert ours == theirs
    assert len(ours) == 4


def test_no_component_is_made_for_what_is_skipped(page, monkeypatch, run_apart):
    made = []
    monkeypatch.setattr(TextLine, "__init__", lambda self, *args, **kwargs: made.append(self))
    function = next(iter(page.fns.values()))
    state = SessionState(page)
    for number in range(5):
        run_apart(page.postprocess_data(function, [f"step {number}", gr.skip(), gr.skip(), 1], state))
    assert made == []


# --- A run that fails after it began ends in the view, with its sentence, and takes the old charts away.


SHORT = SETTINGS | {"max_new_tokens": 8}


def kinds(updates: list[Update]) -> list[str]:
    return [json.loads(update.message)["kind"] for update in updates if update.message]


def test_a_prompt_beyond_the_context_ends_the_view(session):
    updates = list(run_decode(session, "a" * 200, SHORT, StopFlag()))
    assert kinds(updates) == ["begin", "broken"]
    sentence = json.loads(updates[-1].message)["words"]
    assert sentence == updates[-1].status
    assert updates[-1].problem
    assert sentence == (
        "The prompt has 200 tokens, the context holds 96: shorten the prompt "
        "or have the model loaded with a longer --context"
    )


def test_a_run_that_comes_to_its_end_is_left_alone(session):
    updates = list(run_decode(session, "abcd", SHORT, StopFlag()))
    assert kinds(updates)[0] == "begin"
    assert kinds(updates)[-1] == "end"


def test_a_run_that_never_began_says_nothing_to_the_view(session):
    updates = list(run_decode(session, "  ", SHORT, StopFlag()))
    assert kinds(updates) == []
    assert updates[-1].problem


@dataclass(frozen=True)
class Endless(DecodeRequest):
    """A run that begins in the view and hears no flag."""

    def run(self, engines, flag):
        yield Update('{"kind": "begin"}', "Reading the prompt…")
        while True:
            sleep(0.005)
            yield Update(status="more")


def test_a_run_that_was_closed_by_its_time_limit_ends_the_view(load, monkeypatch):
    monkeypatch.setattr("ui.serving.runner.GRACE_SECONDS", 0.02)
    session = Session(load, policy=Policy(run_seconds=0.05))
    *_, last = session.run(Endless("abc", RunSettings.of(**SHORT)), StopFlag())
    assert json.loads(last.message)["words"].startswith("Ended after 0.05 s")
    with pytest.raises(MedusaError, match=r"Ended after 0\.05 s"):  # as a program is told
        _finished(session, Endless("abc", RunSettings.of(**SHORT)), "a page", Update)


def test_charts_of_a_failed_run_are_empty_and_say_so():
    for figure in ChartPanel((None,) * 4, None).updates({"steps": []}, dark=False):
        assert not figure.data
        assert figure.layout.annotations[0].text == "no finished run to draw"
