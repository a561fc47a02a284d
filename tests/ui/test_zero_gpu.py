"""Runs on a GPU that is lent to another process: the same traces, words, stops and errors as at home."""

from __future__ import annotations

import math
import os
import pickle
import shutil
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import gradio as gr
import page_runs
import pytest
import tiny
import torch
from fork_gpu import ForkGpu
from page_runs import run_chat, run_compare, run_decode
from peft import LoraConfig, get_peft_model

from medusa_core.checkpoints.adapters import apply_adapter
from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from ui.records.conversation import ChatState
from ui.records.settings import BY_BUDGET, Selection
from ui.records.updates import StopFlag, Update
from ui.runs.session import Session
from ui.serving.policy import policy_of
from ui.serving.zero_gpu import LONGEST, SHORTEST, claim, seconds_for
from ui.tabs.trees import timing as tree_measuring
from ui.tabs.trees.head_stats import shipped_stats

SETTINGS = page_runs.SETTINGS | {"temperature": 0.7, "max_new_tokens": 40, "seed": 3}


pytestmark = pytest.mark.usefixtures("each_step_by_itself")


@pytest.fixture(scope="module")
def at_home(load):
    return Session(load)


@pytest.fixture(scope="module")
def lender():
    lender = ForkGpu()
    yield lender
    lender.forget()


@pytest.fixture(scope="module")
def other_folder(engine_folder, tmp_path_factory):
    """Another model, which the app does not load at its start."""
    return shutil.copytree(engine_folder, tmp_path_factory.mktemp("other") / "other")


@pytest.fixture(scope="module")
def away(load, lender, other_folder, assets):
    """A session on a Space that lends GPUs, with another model on offer; its own is loaded at the start."""
    policy = policy_of({"SPACE_ID": "me/space", "SPACES_ZERO_GPU": "true"}, offers=[str(other_folder)])
    session = Session(load, assets, policy, lender)
    assert "3 Medusa heads" in session.load_at_start()
    return session


def decode(session, flag=None, **changes):
    return list(run_decode(session, "abc", SETTINGS | changes, flag or StopFlag()))


def steps_of(updates):
    """What was said of each step, without the milliseconds, which no two runs share."""
    words = [update.status for update in updates if (update.status or "").startswith("Step")]
    return [text.partition(";")[0] for text in words]


def without_times(trace):
    steps = [{key: value for key, value in step.items() if key != "ms"} for step in trace["steps"]]
    output = {key: trace["output"][key] for key in ("text", "token_ids", "finish_reason", "steps")}
    return trace["model"], trace["config"], trace["prompt"], steps, output


# ---- the same as at home ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{}, {"temperature": 0.0}, {"acceptance": "typical"}, {"tree": BY_BUDGET}]
)
def test_a_run_has_the_same_trace_in_another_process(at_home, away, changes):
    mine, theirs = decode(at_home, **changes), decode(away, **changes)
    assert without_times(theirs[-1].trace) == without_times(mine[-1].trace)
    assert steps_of(theirs) == steps_of(mine) != []
    assert not away.busy


def test_a_kept_process_serves_the_next_runs(away, lender):
    lender.forget()
    before = lender.forks
    first, second = decode(away), decode(away)
    assert lender.forks == before + 1
    assert without_times(first[-1].trace) == without_times(second[-1].trace)


def test_a_comparison_is_made_in_one_process(at_home, away):
    greedy = SETTINGS | {"temperature": 0.0}
    runs = [list(run_compare(one, "abc", greedy, 2, StopFlag())) for one in (at_home, away)]
    assert [updates[-1].status for updates in runs] == ["Measured. The replay runs on one clock."] * 2
    assert all('"equal":true' in updates[-1].message for updates in runs)


def test_a_chat_goes_on_in_a_kept_process_and_in_a_new_one(at_home, away, lender):
    def talk_of(session, text, state, forget=False):
        if forget:
            lender.forget()
        updates = list(run_chat(session, text, state, SETTINGS | {"max_new_tokens": 8}, StopFlag()))
        assert not updates[-1].problem, updates[-1].status
        return updates[-1].state

    def words(state):
        return [(turn.role, turn.text) for turn in state.turns]

    mine = talk_of(at_home, "bca", talk_of(at_home, "abc", ChatState()))
    kept = talk_of(away, "bca", talk_of(away, "abc", ChatState()))
    new = talk_of(away, "bca", talk_of(away, "abc", ChatState(), forget=True), forget=True)
    assert words(kept) == words(new) == words(mine)
    assert "0 of" not in kept.turns[-1].figures  # the kept process had read the first message
    assert away.chat_notice(Selection()) == at_home.chat_notice(Selection())


def test_measuring_trees_works_away_from_home(away, lender, monkeypatch):
    lender.forget()  # a new process sees what is set here
    effort = replace(tree_measuring.EFFORT, rounds=1, round_tokens=4)
    monkeypatch.setattr(tree_measuring, "EFFORT", effort)
    stats = shipped_stats(away, Selection())
    items = list(tree_measuring.measure(away, stats, Selection(), True, StopFlag()))
    assert items[-1].stats is not None, items[-1].status
    assert items[-1].stats.latency
    assert "counted here" in items[-1].stats.source


def test_a_model_on_offer_is_read_by_the_process_and_not_by_the_app(away, lender, other_folder):
    wish = LoadConfig(str(other_folder))
    selection = list(away.models.choose(wish, Selection(), StopFlag()))[-1].selection
    assert away.models.at_hand(selection) is None
    updates = decode(away, selection=selection)
    assert not updates[-1].problem, updates[-1].status
    assert updates[-1].trace["model"]["base"] == "other"
    assert lender.asked[-1] == seconds_for(40, loaded=False)
    assert away.models.at_hand(selection) is None
    assert away.models.badge(selection) == "other · each run reloads it"
    assert away.chat_notice(selection) == ""
    # And what is not on offer is refused there as well.
    secret = Selection(model=LoadConfig("/home/me/secret"))
    assert "is not offered here" in decode(away, selection=secret)[-1].status


# ---- stopping --------------------------------------------------------------------------------------------


def test_stop_reaches_the_process_and_the_run_keeps_its_trace(away):
    flag, steps = StopFlag(), 0
    for update in run_decode(away, "abc", SETTINGS | {"max_new_tokens": 80}, flag):
        steps += bool(update.message)
        flag.stopped = flag.stopped or steps == 4
        last = update
    assert last.trace["output"]["finish_reason"] == "cancelled"
    assert 3 <= last.trace["output"]["steps"] < 15
    assert flag.stopped
    flag.stopped = False
    assert decode(away, flag)[-1].trace["output"]["finish_reason"] == "length"


def test_stop_while_a_gpu_is_waited_for_is_not_lost(away):
    flag = StopFlag(stopped=True)
    assert decode(away, flag)[-1].trace["output"]["steps"] == 1


def test_a_closed_page_ends_the_run_in_the_process(away, lender):
    run = run_decode(away, "abc", SETTINGS | {"max_new_tokens": 80}, StopFlag())
    while not next(run).message:
        pass
    run.close()
    assert not away.busy
    assert decode(away)[-1].trace["output"]["finish_reason"] == "length"


def test_a_run_ends_with_its_trace_before_the_lender_takes_the_gpu_back(away, monkeypatch):
    monkeypatch.setattr(
        "ui.serving.runner.seconds_for", lambda tokens, loaded: 5
    )  # END_SECONDS: nothing is left
    updates = decode(away, max_new_tokens=80)
    assert updates[-2].trace["output"]["finish_reason"] == "cancelled"
    assert "the longest that a run may take here" in updates[-1].status


def test_a_flag_and_its_copy_are_one_while_a_run_is_elsewhere():
    flag = StopFlag()
    with flag.crossing():
        copy = pickle.loads(pickle.dumps(flag))
        assert not copy.stopped
        flag.stopped = True
        assert copy.stopped
        flag.stopped = False
        assert not copy.stopped
        copy.stopped = True  # a run whose time is up
        assert flag.stopped
        folder = Path(copy._file).parent
        assert folder.stat().st_mode & 0o077 == 0
    assert flag.stopped
    assert not folder.exists()
    flag.stopped = False
    assert not flag.stopped


# ---- errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"tree": "/etc/passwd"}, "No tree is called"), ({"max_new_tokens": 10**6}, "the page allows 512")],
)
def test_bad_settings_cost_no_gpu(away, lender, changes, words):
    before = len(lender.asked)
    [update] = decode(away, **changes)
    assert update.problem
    assert words in update.status
    [update] = run_decode(away, " ", SETTINGS, StopFlag())
    assert update.status.startswith("The prompt is empty")
    assert len(lender.asked) == before


def fails(engine):
    yield engine.info.base
    raise MedusaError("one line: with a fix")


def breaks(engine):
    yield engine.info.base
    raise RuntimeError("secret detail")


def test_errors_of_the_process_are_said_in_full_where_they_are_ours(away):
    assert list(away.on_engine(fails))[-1] == Update(status="One line: with a fix", problem=True)
    words = list(away.on_engine(breaks))[-1].status
    assert "RuntimeError" in words
    assert "secret" not in words
    assert decode(away)[-1].trace is not None


def test_the_lenders_words_reach_the_visitor(away, lender):
    words = "You have exceeded your free ZeroGPU quota (16s requested vs. 3s left)."
    lender.refusal = gr.Error(words, title="ZeroGPU quota exceeded")
    try:
        [update] = decode(away)
    finally:
        lender.refusal = None
    assert update.problem
    assert update.status == f"ZeroGPU quota exceeded: {words}"
    assert not away.busy


def test_a_process_that_dies_ends_the_run_and_not_the_app(away):
    updates = []
    for update in away.on_engine(dies):
        updates.append(update)
    assert updates[-1] == Update(status="ZeroGPU worker error: GPU task aborted", problem=True)
    assert decode(away)[-1].trace is not None


def dies(engine):
    yield engine.info.base
    os.kill(os.getpid(), signal.SIGKILL)


# ---- asking for it ---------------------------------------------------------------------------------------


def test_the_seconds_asked_for_follow_from_the_tokens(away, lender):
    assert seconds_for(1) == SHORTEST
    assert seconds_for(400) == 30
    assert seconds_for(400, loaded=False) == 75
    assert seconds_for(10_000) == seconds_for(math.inf) == LONGEST
    decode(away, max_new_tokens=400, selection=Selection())
    assert lender.asked[-1] == 30
    list(run_compare(away, "abc", SETTINGS | {"max_new_tokens": 20}, 5, StopFlag()))
    assert lender.asked[-1] == seconds_for(200)


def test_away_from_such_a_space_nothing_is_imported():
    assert claim({}) is None
    assert claim({"SPACE_ID": "me/space"}) is None
    assert claim({"SPACE_ID": "me/space", "SPACES_ZERO_GPU": "false"}) is None
    assert "spaces" not in sys.modules


def test_an_adapter_is_read_without_the_gpu_that_seems_to_be_there(monkeypatch, tmp_path):
    """Before a run the lender's library only stands in for a GPU."""
    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    get_peft_model(tiny.build_model(tiny.tiny_config(2)), config).save_pretrained(tmp_path)
    model = tiny.build_model(tiny.tiny_config(2))
    before = model.model.layers[0].self_attn.q_proj.weight.clone()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    after = apply_adapter(model, tmp_path).model.layers[0].self_attn.q_proj.weight
    assert after.device.type == "cpu"
    assert not torch.equal(after, before)


def test_a_space_without_the_lenders_package_is_told_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "spaces", None)
    with pytest.raises(MedusaError, match="this Space lends GPUs through the package spaces: install it"):
        claim({"SPACES_ZERO_GPU": "true"})


def test_threads_that_run_in_the_app_do_not_hinder_its_forks(away, lender):
    """A fork keeps locks that other threads hold, and none of the threads that would release them."""
    lender.forget()
    over = threading.Event()

    def busy():
        while not over.is_set():
            away.models.badge(Selection())
            away.models.at_hand(Selection(model=LoadConfig("x")))

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            lender.forget()
            assert decode(away, max_new_tokens=2)[-1].trace is not None
    finally:
        over.set()
        for thread in threads:
            thread.join()
