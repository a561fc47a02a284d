"""The bridge: runs with a visitor's own tree and heads, which reach no other run, and runs of any kind."""

from __future__ import annotations

import threading
from time import sleep

import pytest
import tiny
from page_runs import MINE, SETTINGS, SHIPPED, problem_of, run_decode, trace_of

from medusa_core.drafters.medusa import with_heads
from medusa_core.errors import MedusaError
from medusa_core.trees.tree import Topology
from ui.records.settings import BY_BUDGET, DEFAULT, DYNAMIC, YOURS, Selection, settings_of
from ui.records.updates import StopFlag, Update
from ui.runs.session import Session
from ui.serving import runner
from ui.serving.engines import TrainedEngineCache
from ui.serving.policy import Policy

pytestmark = pytest.mark.usefixtures("each_step_by_itself")


def decode(session, **changes) -> list[Update]:
    return list(run_decode(session, "abc", SETTINGS | changes, StopFlag()))


@pytest.mark.parametrize(("method", "missing"), [("hydra", "Hydra heads"), ("ngram", ""), ("medusa", "")])
def test_a_method_without_weights_is_named(session, method, missing):
    updates = decode(session, method=method)
    assert [str(update.badge).split(":")[0] for update in updates if update.badge] == [missing] * bool(
        missing
    )
    assert trace_of(updates)["config"]["drafter"]["name"] == ("none" if missing else method)


def test_a_visitors_tree_is_used_for_their_run_alone(session):
    shipped = trace_of(decode(session))
    own = trace_of(decode(session, tree=YOURS, selection=MINE))
    assert sorted(own["config"]["tree"]) == sorted(map(list, MINE.choices))
    assert own["output"]["token_ids"] == shipped["output"]["token_ids"]  # greedy: any tree, the same text
    assert trace_of(decode(session, selection=MINE))["config"]["tree"] == sorted(
        SHIPPED, key=lambda c: (len(c), c)
    )
    assert len(trace_of(decode(session, tree=BY_BUDGET))["config"]["tree"]) == 5
    dynamic = trace_of(decode(session, tree=DYNAMIC, budget=7))
    assert {len(step["nodes"]) for step in dynamic["steps"]} == {7}
    assert dynamic["config"]["tree"] is None
    assert {"tree": DYNAMIC, "budget": 7}.items() <= settings_of(dynamic).items()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tree": YOURS}, "no tree of your own"),
        ({"heads": YOURS}, "no heads of your own"),
        ({"tree": "/etc/hosts.json"}, "No tree is called"),
        ({"tree": YOURS, "selection": Selection(choices=((0, 0),))}, "but not its prefix"),
        ({"tree": YOURS, "selection": Selection(choices=((-1,),))}, "not a list of ranks"),
        ({"tree": YOURS, "selection": Selection(choices=((11,),))}, "uses rank 11"),
        ({"tree": YOURS, "selection": Selection(choices=[(0,) * d for d in range(1, 5)])}, "are 3 heads"),
        ({"tree": YOURS, "selection": Selection(choices=tuple(zip(range(300))))}, "largest size is 256"),
        ({"heads": YOURS, "selection": Selection(engine="guessed", label="x")}, "Your heads are gone"),
    ],
)  # fmt: skip
def test_what_is_not_there_or_no_tree_is_refused_in_one_line(session, changes, words):
    assert words in problem_of(decode(session, **changes))
    assert not session.busy


def test_own_heads_are_used_and_named_and_the_shared_engine_stays(session, load, model):
    before = trace_of(decode(session))["output"]
    other = with_heads(
        tiny.build_engine(model, tiny.random_heads(model)), default_tree=Topology.from_choices(SHIPPED)
    )
    mine = Selection().with_engine(session.add_engine(other), "random ones")
    updates = decode(session, heads=YOURS, selection=mine)
    assert any("random ones" in (u.badge or "") for u in updates)
    worse = trace_of(updates)["output"]
    assert worse["token_ids"] == before["token_ids"]
    assert worse["steps"] > before["steps"]
    after = decode(session, selection=mine)  # heads: DEFAULT again
    assert trace_of(after)["output"]["steps"] == before["steps"]
    assert not any("random ones" in (u.badge or "") for u in after)


def test_any_work_runs_on_the_engines_thread_under_the_lock(session):
    def work(engine):
        yield engine.info.base, session.busy, threading.current_thread().name
        # A training run that ends puts its heads on the shelf from where it is, without waiting for itself.
        yield session.add_engine(engine)

    results = [r for r in session.on_engine(work) if not isinstance(r, Update)]
    (base, busy, thread), name = results
    assert busy
    assert thread.startswith("engine")
    assert not session.busy
    selection = Selection().with_engine(name, "mine")
    seen = [
        r for r in session.on_engine(lambda engine: iter([engine]), selection) if not isinstance(r, Update)
    ]
    assert seen[0].info.base == base


def test_an_error_in_any_work_is_said_and_the_session_goes_on(session):
    def fails(engine):
        yield "started"
        raise MedusaError("one line: with a fix")

    def breaks(engine):
        yield "started"
        raise RuntimeError("secret detail")

    assert problem_of(list(session.on_engine(fails))) == "One line: with a fix"
    words = problem_of(list(session.on_engine(breaks)))
    assert "RuntimeError" in words
    assert "secret" not in words
    assert not session.busy


def test_leaving_a_run_closes_its_work(session):
    closed = []

    def endless(engine):
        try:
            while True:
                yield 1
        finally:
            closed.append(threading.current_thread().name)

    run = session.on_engine(endless)
    while next(run) != 1:
        pass
    run.close()
    assert len(closed) == 1
    assert closed[0].startswith("engine")
    assert not session.busy


def test_the_shelf_drops_the_engine_that_was_not_used_for_longest():
    shelf = TrainedEngineCache(most=2)
    first, second = shelf.add("a"), shelf.add("b")
    shelf.get(first)
    third = shelf.add("c")
    assert [shelf.get(name) for name in (first, third)] == ["a", "c"]
    with pytest.raises(MedusaError, match="keeps the 2 most recently used"):
        shelf.get(second)


def test_new_heads_put_away_the_tree_that_was_made_for_others():
    assert MINE.with_engine("id", "mine") == Selection("id", "mine")
    assert MINE.tree_entries() == [("yours, from Trees: 6 nodes with the root", YOURS)]
    assert Selection().tree_entries() == []
    assert [value for _, value in Selection("id", "mine").head_entries()] == [DEFAULT, YOURS]


# ---- runs that end early ---------------------------------------------------------------------------------


@pytest.fixture
def limited(load):
    return Session(load, policy=Policy(run_seconds=0.01))


def test_a_run_that_is_too_long_ends_with_what_it_has(limited):
    flag = StopFlag()
    updates = list(run_decode(limited, "abc", SETTINGS | {"max_new_tokens": 500}, flag))
    assert any(update.trace for update in updates)
    assert next(u.trace for u in updates if u.trace)["output"]["finish_reason"] == "cancelled"
    assert updates[-1].status.endswith("Ended after 0.01 s, the longest that a run may take here.")
    assert " in the engine" in updates[-1].status
    assert flag.stopped
    assert not limited.busy


@pytest.mark.parametrize("flag", [None, StopFlag()])
def test_a_run_that_does_not_heed_is_closed(limited, flag, monkeypatch):
    monkeypatch.setattr(runner, "GRACE_SECONDS", 0.2)
    closed = []

    def endless(engine):
        try:
            while True:
                sleep(0.01)
                yield "more"
        finally:
            closed.append(True)

    items = list(limited.on_engine(endless, flag=flag))
    assert items[-1].status == "Ended after 0.01 s, the longest that a run may take here."
    assert closed == [True]
    assert not limited.busy


def test_a_run_within_its_time_says_nothing_of_it(load, session):
    words = [
        update.status for update in decode(Session(load, policy=Policy(run_seconds=60)), max_new_tokens=4)
    ]
    assert not any("Ended" in (status or "") for status in words)
    assert session.policy.run_seconds is None
