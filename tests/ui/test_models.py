"""Choosing a model: what visitors may name, what it changes for them alone, and what a run makes of it."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace

import pytest
import tiny
from other_model import other_model
from page_runs import MINE, SETTINGS, problem_of, run_compare, run_decode, trace_of
from slow_loading import close_gate

from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from ui.records.settings import YOURS, Selection
from ui.records.updates import StopFlag
from ui.runs.session import Session
from ui.serving.model_loader import Loading
from ui.serving.models import ModelUpdate, name_of
from ui.serving.policy import AllowedModel, Policy
from ui.tabs import train as train_tab
from ui.tabs.train import run as train_run
from ui.tabs.train.plan import PASTE, Plan
from ui.tabs.train.run import train_heads
from ui.tabs.trees import head_stats
from ui.tabs.trees.timing import measure


@pytest.fixture(scope="module")
def other(engine_folder, tmp_path_factory):
    return other_model(engine_folder, tmp_path_factory.mktemp("models"))


@pytest.fixture
def session(load, assets):
    return Session(load, assets)


def wish(folder, **changes):
    return LoadConfig(str(folder), **({"dtype": "float32"} | changes))


def choose(session, wanted, selection=None):
    """All updates, and what is chosen afterwards."""
    selection = selection or Selection()
    updates = list(session.models.choose(wanted, selection, StopFlag()))
    new = [update.selection for update in updates if isinstance(update, ModelUpdate)]
    return updates, (new[-1] if new else selection)


def taken(session, wanted, selection=None):
    updates, selection = choose(session, wanted, selection)
    assert not updates[-1].problem, updates[-1].status
    return selection


def decode(session, selection=None, **changes):
    settings = SETTINGS | {"selection": selection or Selection()} | changes
    return list(run_decode(session, "abc", settings, StopFlag()))


# ---- for one visitor -------------------------------------------------------------------------------------


def test_a_chosen_model_is_used_by_its_visitor_alone(session, other):
    before = trace_of(decode(session))
    mine = taken(session, wish(other))
    assert session.models.badge(mine).startswith("other · 2 Medusa heads")
    trace = trace_of(decode(session, mine))
    assert trace["model"]["base"] == "other"
    assert trace["output"]["token_ids"] != before["output"]["token_ids"]
    assert len(trace["config"]["tree"]) == 15  # grown, since these heads bring none
    assert trace_of(decode(session))["output"]["token_ids"] == before["output"]["token_ids"]
    assert "other" not in session.models.badge(Selection())


def test_it_can_be_compared_and_its_trees_are_those_of_its_heads(session, other):
    mine = taken(session, wish(other))
    race = list(
        run_compare(session, "abc", SETTINGS | {"selection": mine, "max_new_tokens": 8}, 1, StopFlag())
    )
    assert race[-1].status.startswith("Measured")
    stats = head_stats.stats_of(session, mine)
    assert len(stats.accuracies) == 2
    assert stats.belongs_to(mine)
    assert not stats.belongs_to(Selection())
    assert "Nobody has counted" in head_stats.sentence(stats, 6)


def test_own_heads_and_tree_go_with_their_model_and_stay_with_it(session, other):
    mine = Selection("id", "mine", ((0,),))
    updates, new = choose(session, wish(other), mine)
    assert new == Selection(model=new.model)
    assert "is put away" in updates[-1].status
    assert new.with_engine("id", "mine").with_tree([[0]]).model == new.model
    kept = new.with_tree([[0]])
    assert taken(session, wish(other), kept) == kept  # the same model again
    assert taken(session, session.models.own_config, kept) == Selection()


def test_the_apps_own_model_is_chosen_without_loading_it_twice(session, load):
    updates, selection = choose(session, load, Selection(model=wish("x")))
    assert selection == Selection()
    assert not any(isinstance(update, Loading) for update in updates)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (LoadConfig("/no/such/folder"), "there is no folder"),
        (LoadConfig("", "/no/such/heads"), "there is no folder"),
        (LoadConfig("\0"), "Not loaded"),
        (LoadConfig("a" * 300), "Not loaded"),
        (LoadConfig("../../etc"), "Not loaded"),
    ],
)
def test_an_error_is_said_and_leaves_the_model_in_place(session, other, wanted, words):
    mine = taken(session, wish(other))
    updates, still = choose(session, wanted, mine)
    assert words in problem_of(updates)
    assert updates[-1].status.endswith("Still using other.")
    assert still == mine
    assert trace_of(decode(session, still))["model"]["base"] == "other"


def test_a_fault_in_the_program_is_said_without_its_details(session, other, monkeypatch, caplog):
    def breaks(config, watch, **how):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("medusa_core.loading.load.load_engine", breaks)
    words = problem_of(choose(session, wish(other))[0])
    assert "RuntimeError" in words
    assert "secret" not in words
    assert "secret detail" in caplog.text


def test_cancelling_keeps_the_model_in_use(session, other, monkeypatch):
    gate, flag = close_gate(monkeypatch, "weights"), StopFlag()
    updates = session.models.choose(wish(other), Selection(), flag)
    while not gate.reached.is_set():
        next(updates)
    flag.stopped = True
    last = list(updates)[-1]
    assert last.status.startswith("Cancelled; still using")
    assert not isinstance(last, ModelUpdate)
    assert not last.problem
    gate.opened.set()


def test_the_memory_is_told_without_loading(session, other):
    *_, last = session.models.estimate(wish(other), StopFlag())
    assert last.status.startswith("other needs about")
    assert session.models.at_hand(Selection(model=wish(other))) is None
    *_, last = session.models.estimate(LoadConfig("/no/such"), StopFlag())
    assert last.problem
    assert last.status.startswith("The memory it needs cannot be estimated: there is no folder")


# ---- for several -----------------------------------------------------------------------------------------


def test_runs_of_others_go_on_while_a_model_is_loaded(session, other, monkeypatch):
    decode(session)  # so that the app's own model is there
    gate = close_gate(monkeypatch, "weights")
    updates = session.models.choose(wish(other), Selection(), StopFlag())
    while not gate.reached.is_set():
        next(updates)
    trace_of(decode(session))
    gate.opened.set()
    assert isinstance(list(updates)[-1], ModelUpdate)


def test_two_visitors_with_two_models_at_once(session, other):
    results = {}

    def visit(name, wanted):
        mine = taken(session, wanted)
        results[name] = [trace_of(decode(session, mine))["model"]["base"] for _ in range(3)]

    visitors = [
        threading.Thread(target=visit, args=(name, wanted))
        for name, wanted in (("a", wish(other)), ("b", session.models.own_config))
    ]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert results == {"a": ["other"] * 3, "b": ["model"] * 3}


def test_a_model_that_was_put_away_is_loaded_again_by_the_next_run(session, other):
    mine = taken(session, wish(other))
    assert session.models._cache.drop_oldest()
    assert "put away" in session.models.badge(mine)
    assert trace_of(decode(session, mine))["model"]["base"] == "other"
    assert "2 Medusa heads" in session.models.badge(mine)


def test_stop_while_it_is_loaded_again_ends_the_run(session, other, monkeypatch):
    mine = taken(session, wish(other))
    session.models._cache.drop_oldest()
    gate, flag = close_gate(monkeypatch, "weights"), StopFlag()
    run = run_decode(session, "abc", SETTINGS | {"selection": mine}, flag)
    while not gate.reached.is_set():
        next(run)
    flag.stopped = True
    assert list(run)[-1].status == "Stopped before the model was loaded."
    assert not session.busy
    gate.opened.set()


def test_a_model_whose_folder_has_gone_gives_a_sentence(session, other, tmp_path):
    folder = tmp_path / "moved"
    shutil.copytree(other, folder)
    mine = taken(session, wish(folder))
    session.models._cache.drop_oldest()
    shutil.rmtree(folder)
    assert "There is no folder" in problem_of(decode(session, mine))


def test_a_run_keeps_its_model_from_being_put_away(session, other):
    mine = taken(session, wish(other))
    run = run_decode(session, "abc", SETTINGS | {"selection": mine}, StopFlag())
    next(run)
    assert not session.models._cache.drop_oldest()
    run.close()
    assert session.models._cache.drop_oldest()


# ---- without heads ---------------------------------------------------------------------------------------


def test_a_model_without_heads_decodes_plainly_and_says_so(session, base):
    mine = taken(session, wish(base))
    assert "no Medusa heads" in session.models.badge(mine)
    updates = decode(session, mine)
    assert any("decodes plainly" in (update.badge or "") for update in updates)
    assert trace_of(updates)["output"]["tokens_per_step"] == 1
    compared = list(run_compare(session, "abc", SETTINGS | {"selection": mine}, 1, StopFlag()))
    assert "has no weights for Medusa heads, so there is nothing to compare" in problem_of(compared)


def test_the_trees_of_a_model_without_heads_are_explained(session, base):
    mine = taken(session, wish(base))
    stats = head_stats.stats_of(session, mine)
    assert "this model has none" in stats.source
    assert "has no Medusa heads" in head_stats.sentence(stats, 8)
    *_, last = measure(session, stats, mine, False, StopFlag())
    assert "nothing can be measured: choose a model with heads" in last.status
    trace_of(decode(session, mine.with_tree([[0], [0, 0]]), tree="yours"))


def test_heads_can_be_left_out(session, engine_folder):
    mine = taken(session, wish(engine_folder, heads="none"))
    assert "no Medusa heads" in session.models.badge(mine)


# ---- what is allowed -------------------------------------------------------------------------------------


@pytest.fixture
def public(load, other, assets):
    offers = AllowedModel(str(other)), AllowedModel(str(other), "none")
    return Session(load, assets, Policy(public=True, offers=offers, training=False))


@pytest.mark.parametrize(
    "changes", [{"model": "/etc"}, {"heads": "elsewhere"}, {"model": ""}, {"model": "gpt2"}]
)
def test_a_public_page_loads_nothing_that_its_owner_does_not_offer(public, other, changes):
    wanted = replace(wish(other), **changes)
    assert "is not offered here: choose one from the list" in problem_of(choose(public, wanted)[0])
    *_, last = public.models.estimate(wanted, StopFlag())
    assert "is not offered here" in last.status
    assert "is not offered here" in problem_of(decode(public, Selection(model=wanted)))
    assert not list(public.models._cache._models)


def test_on_a_public_page_precision_and_trust_are_the_owners(public, other, load):
    held = {"dtype": "float16", "device": "mps", "quantize": "4bit", "capture": True}
    mine = taken(public, LoadConfig(str(other), **held, trust_remote_code=True))
    assert mine.model == replace(load, model=str(other))
    assert "cpu · float32 · forward in C" in public.models.badge(mine)


def test_trust_and_device_are_the_owners_everywhere(session, other):
    mine = taken(session, LoadConfig(str(other), dtype="float32", device="auto", trust_remote_code=True))
    assert (mine.model.device, mine.model.trust_remote_code) == ("cpu", False)


def test_the_apps_own_model_needs_no_offer(public, load):
    assert taken(public, load) == Selection()
    trace_of(decode(public))


def test_another_visitors_path_is_named_by_its_last_part_alone(session, other):
    mine = taken(session, wish(other))
    trace = trace_of(decode(session, mine))
    assert str(other.parent) not in str(trace) + session.models.badge(mine)
    assert name_of(LoadConfig("", "none")) == "embedded model"
    assert name_of(LoadConfig("a/b@main")) == "b@main"


def test_loading_config_of_a_visitor(session, load, other):
    assert session.models.config_of(Selection()) == load
    assert session.models.config_of(MINE) == load
    assert session.models.config_of(taken(session, wish(other))).model == str(other)
    with pytest.raises(MedusaError):
        LoadConfig("x", dtype="int3")


# ---- training --------------------------------------------------------------------------------------------


def test_heads_are_trained_for_the_chosen_model_and_take_it_along(session, other, tmp_path, monkeypatch):
    monkeypatch.setattr(train_run, "EFFORT", replace(train_run.EFFORT, rounds=1, sizes=(1, 4)))
    shutil.copytree(other, folder := tmp_path / "learner")
    tiny.tiny_tokenizer(end_token=23).save_pretrained(folder)  # training parts texts by it
    mine = taken(session, wish(folder))
    plan = Plan("medusa1", PASTE, text="abcdefgh" * 200, steps=2, heads=2)
    updates = list(train_heads(session, plan, StopFlag(), mine.with_tree([[0]])))
    assert not updates[-1].problem, updates[-1].status
    trained = updates[-1].trained
    selection, *_ = train_tab._use("watch", trained)
    assert selection == mine.with_engine(selection.engine, selection.label)
    assert trace_of(decode(session, selection, heads=YOURS))["model"]["base"] == "learner"
    own = session.own_engine(selection)
    assert own.target is session.models.at_hand(selection).target  # one copy of the weights
    assert head_stats.stats_of(session, selection).belongs_to(selection)
