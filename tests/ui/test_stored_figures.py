"""The page's tabs state the figures of the store or of a measurement that was kept."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from paths import ROOT
from shipped_runs import recordings
from tiny_experiments import headline

from medusa_core.config import LoadConfig
from medusa_core.drafters import title_of
from medusa_core.experiments import store
from medusa_core.experiments.remarks import reason_against_paper
from medusa_core.experiments.spec_bench import of_all_kinds
from ui.records.examples import ASSETS
from ui.records.figures import PageFigures, stored_page
from ui.records.settings import Selection
from ui.runs.session import Session
from ui.serving.policy import Policy
from ui.tabs.learn import lesson_records
from ui.tabs.methods import shown_methods
from ui.tabs.shown_runs import recorded_worth
from ui.tabs.side_by_side import headline_words
from ui.tabs.speed.results import Results
from ui.tabs.trees import head_stats
from ui.tabs.trees.head_stats import accuracies_file, stats_of

STEPS = {1: 0.5, 12: 0.5, 64: 0.5}  # milliseconds by number of nodes, as ``headline`` stores them


@pytest.fixture
def measured(tmp_path):
    """The shipped assets with a headline in their store."""
    for file in ASSETS.iterdir():
        if file.name != store.FOLDER:
            (tmp_path / file.name).symlink_to(file)
    store.keep(headline(), tmp_path / store.FOLDER)
    return tmp_path


def test_learn_and_trees_take_the_step_times_of_the_headline(measured, monkeypatch):
    records = lesson_records(stored_page(measured), measured)
    assert {row["nodes"]: row["step_ms"] for row in records["latency"]} == STEPS
    assert (records["trainings"], records["against"]) == ([], "")  # not measured there
    session = Session(LoadConfig(device="cpu"), measured)
    assert accuracies_file(session.models.config_of(Selection())).is_relative_to(ASSETS / "model")
    beside = measured / "model" / "heads" / "accuracies.json"
    monkeypatch.setattr(head_stats, "accuracies_file", lambda load: beside)
    stats = stats_of(session, Selection())
    assert {point.nodes: point.step_ms for point in stats.latency} == STEPS
    assert stats.machine.startswith("AMD EPYC, bfloat16")
    assert [list(row) for row in stats.accuracies] == json.loads(beside.read_text("utf-8"))["accuracies"]
    # Heads of another place bring their own.
    elsewhere = ROOT / "assets" / "model" / "heads" / "accuracies.json"
    monkeypatch.setattr(head_stats, "accuracies_file", lambda load: elsewhere)
    assert len(stats_of(session, Selection()).latency) > len(STEPS)


def test_methods_say_why_the_order_is_not_the_published_one():
    record = store.record("spec-bench")
    reason = reason_against_paper(record)
    words = str(shown_methods(stored_page().stored, ASSETS).words)
    assert reason in words
    assert bool(reason) == ("Unlike in Spec-Bench" in words)


def test_compare_states_the_tree_of_the_tokens_that_it_states():
    rows = {row.series: row for row in of_all_kinds(store.record("spec-bench").rows)}
    medusa = rows["medusa"]
    kept = (
        f"with a tree of {medusa.tree_nodes} nodes it keeps {medusa.tokens_per_step.mean:.2f} tokens a step"
    )
    assert kept in str(headline_words(stored_page()))


def test_every_reason_is_translated():
    texts = json.loads((ASSETS / "language" / "zh.json").read_text("utf-8"))["page"]
    remarks = json.loads((store.MEASURED / "remarks.json").read_text("utf-8"))
    reasons = [each["against_the_paper"] for each in remarks.values() if "against_the_paper" in each]
    assert len(reasons) == 7
    assert [reason for reason in reasons if reason not in texts] == []


def test_a_recorded_run_states_the_speedup_and_the_times_of_the_methods_tab():
    rows = {row["method"]: row for row in shown_methods(stored_page().stored, ASSETS).rows}
    processor = stored_page().stored.record.machine.processor
    for recording in recordings():
        worth = recorded_worth(recording.trace, stored_page())
        own, plain = rows.get(title_of(recording.trace["config"]["drafter"]["name"])), rows[title_of("none")]
        assert (worth is None) == (own is None)  # its method was not measured on this kind of machine
        if own is None or worth is None:
            continue
        assert [f"{ms:.2f}" for ms in worth["timed_ms"]] == [plain["ms a step"], own["ms a step"]]
        assert f"{worth['speedup']:.2f}" == own["speedup"].split()[0]
        assert processor in worth["source"]["english"]


def test_the_text_s_own_speedup_is_by_the_size_of_its_trees():
    """Whatever tree was fastest when the record was made: the tour takes that size, too."""
    rows = [*stored_page().stored.record.rows, *(row for row in headline().rows if row.series == "a step")]
    figures = replace(stored_page().stored, record=headline(rows=rows))
    page = PageFigures(figures)
    (recording,) = (one for one in recordings()[:1])
    nodes = len(recording.trace["steps"][0]["nodes"])
    own = next(row for row in rows if (row.series, row.tree_nodes) == ("a step", nodes))
    assert recorded_worth(recording.trace, page)["sized"] == {"nodes": nodes, "ms": own.step_ms}
    grown = {**recording.trace, "steps": [{"nodes": [{}] * 60}]}
    assert recorded_worth(grown, page)["sized"] == {"nodes": 64, "ms": 0.5}
    drafted = next(one for one in recordings() if one.trace["config"]["drafter"]["name"] == "hydra")
    worth = recorded_worth(drafted.trace, page)
    assert worth["sized"]["ms"] == worth["timed_ms"][1]


def test_a_measurement_of_two_sizes_says_nothing_of_a_larger_tree():
    """Methods measures plain decoding and one tree of Medusa's here, often smaller than a run's."""
    stored, (recording,) = stored_page().stored, recordings()[:1]
    plain, own = (row for row in headline().rows if row.series in ("none", "medusa"))
    rows = [plain, own.model_copy(update={"tree_nodes": 2})]
    here = replace(stored, record=headline(rows=rows), at="2026-11-26 00:46")
    page = PageFigures(stored, {("", None): [here]})
    assert (
        recorded_worth(recording.trace, page)["sized"]
        == recorded_worth(recording.trace, stored_page())["sized"]
    )


def test_learn_keeps_to_the_record_where_only_a_few_methods_were_measured():
    """Speed measures plain decoding, Medusa and sizes of trees: a card that names all drafters needs more."""
    stored = stored_page().stored
    few = replace(stored, record=headline(), at="2026-11-26 00:46")
    page = PageFigures(stored, {("", None): [few]})
    assert page.own is few
    assert page.whole is stored
    assert lesson_records(page) == lesson_records(stored_page())
    whole = replace(stored, at="2026-11-26 00:46")
    assert PageFigures(stored, {("", None): [whole]}).whole is whole
    assert PageFigures(stored, {("", None): [few, whole]}).whole is whole
    assert PageFigures(None, {("", None): [few]}).whole is few


def test_methods_speed_learn_and_trees_state_one_plain_step():
    stored = stored_page().stored
    plain = lesson_records(stored_page())["latency"][0]["step_ms"]
    assert next(one for one in shown_methods(stored, ASSETS).speeds if one.name == "none").step_ms == plain
    assert next(step for step in Results(stored).step_times() if step.name == "none").ms == plain
    stats = stats_of(Session(LoadConfig(device="cpu"), ASSETS), Selection())
    assert stats.latency[0].step_ms == plain


# --- A measurement of the page is kept for later starts on one's own machine, and is one visitor's in public.


@pytest.mark.parametrize("public", [False, True], ids=["own", "public"])
def test_a_measurement_is_kept_for_other_pages_unless_they_are_public(public, monkeypatch, own_cache):
    monkeypatch.setenv("MEDUSA_MEASURE", "1")

    def opened():
        """The app after a start, and a page that opens."""
        figures = Session(LoadConfig(device="cpu"), policy=Policy(public=public)).figures
        return figures, figures.choose(figures.begin(), Selection())

    figures, page = opened()
    assert page.own is None
    measured = replace(page.stored, at="2026-01-02T03:04")
    machine = measured.record.machine.model_copy(update={"other_cores_busy": 1.5})
    slowed = replace(measured, record=measured.record.model_copy(update={"machine": machine}))
    assert figures.adopt(page, slowed) is page
    of_speed = replace(measured, bench={"methods": {}}, at="2026-01-02T03:05")
    page = figures.adopt(figures.adopt(page, measured), of_speed)
    assert (page.own, page.of_speed, page.of_methods) == (of_speed, of_speed, measured)
    page = figures.adopt(page, measured)  # known already
    again = replace(measured, at="2026-01-02T03:06")
    page = figures.adopt(page, again)
    assert (page.own, page.of_speed, page.of_methods) == (again, of_speed, again)
    assert public == (not own_cache.exists())
    for later in (figures.choose(figures.begin(), Selection()), opened()[1]):
        assert [one.at for one in later.of_model] == ([] if public else [again.at, of_speed.at])
        assert later.of_speed.is_of_speed == (not public)
    page = figures.forget(page)
    assert page.known == (page.stored,)
    assert opened()[1].own is None
