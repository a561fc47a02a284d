"""A served page where one visitor trains and others run; their wait is asserted, since it is the point."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
import torch
from page_runs import SETTINGS, run_decode
from served import DONE, launched, wait_until, words_of
from training_corpus import SENTENCES

from medusa_core.config import LoadConfig
from medusa_core.drafters.medusa import medusa_draft
from ui.records.updates import StopFlag
from ui.runs.session import Session
from ui.serving import turns
from ui.serving.policy import policy_of
from ui.serving.turns import SLICE_SECONDS
from ui.tabs.train import run as train_run
from ui.tabs.train.plan import PASTE, Plan
from ui.tabs.train.run import train_heads

PAGES = 3

TEXT = "\n<|endoftext|>\n".join(SENTENCES * 20)


def _last(updates):
    return [update.curves for update in updates if update.curves][-1]


def test_runs_of_others_go_in_between_and_the_heads_are_those_of_a_training_by_itself(
    trained_base, assets, monkeypatch
):
    """Each step gives way to a run, and no model that either of them uses is dropped."""
    monkeypatch.setattr(turns, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(train_run, "EFFORT", replace(train_run.EFFORT, rounds=1, sizes=(1, 8)))
    session = Session(LoadConfig(str(trained_base), dtype="float32", device="cpu"), assets)
    plan = Plan("medusa1", PASTE, text=TEXT, minutes=2, steps=8, heads=3, learning_rate=0.01)
    settings = SETTINGS | {"max_new_tokens": 4, "method": "none"}
    alone = list(train_heads(session, plan, StopFlag()))
    over, texts = threading.Event(), []

    def read():
        while not over.is_set():
            texts.append(
                list(run_decode(session, "The cat saw a", settings, StopFlag()))[-1].trace["output"]["text"]
            )

    flag, shared = StopFlag(), []
    visitor = threading.Thread(target=read)
    try:
        for update in train_heads(session, plan, flag):
            shared.append(update)
            if visitor.ident is None and (update.status or "").startswith("Timing a few steps"):
                visitor.start()
            elif (update.status or "").startswith("Loading the new heads"):
                over.set()
    finally:
        over.set()
        visitor.join()
    assert len(texts) >= 4
    assert len(set(texts)) == 1
    assert "the rest went to" not in alone[-1].status
    assert "It used the engine for " in shared[-1].status
    assert _last(shared).losses == _last(alone).losses
    first, second = (
        medusa_draft(session.own_engine(updates[-1].trained.selection)).heads for updates in (alone, shared)
    )
    assert torch.equal(first.block_weight, second.block_weight)
    assert torch.equal(first.block_bias, second.block_bias)


@pytest.mark.slow
def test_a_run_beside_a_training_waits_for_about_a_slice(trained_base):
    with launched(trained_base, policy_of({"SPACE_ID": "me/space", "MEDUSA_TRAINING": "1"})) as site:
        run, train = site.event("work", "Textbox"), site.event("work", "File")
        decode = site.values(run, Prompt="The cat saw a", **{"New tokens at most": 4})
        assert DONE in words_of(site.outcome("warm", run, decode))
        text = {"Text to learn from": "paste", "Your text": TEXT, "Minutes": 0.5}
        plan = site.values(train, **text, Steps=20_000, Heads=2)
        assert site.join("trainer", train, plan).status_code == 200
        with site.listen("trainer") as said:
            while "Training heads alone" not in words_of(next(said)):
                pass
            waits = []
            for number in range(PAGES):
                begun = time.perf_counter()
                assert DONE in words_of(site.outcome(f"visitor{number}", run, decode))
                waits.append(time.perf_counter() - begun)
            assert site.session.busy
            end = words_of(list(said))
        assert max(waits) < SLICE_SECONDS + 2
        assert f"the rest went to {PAGES} other runs" in end
        wait_until(lambda: not site.session.busy)
