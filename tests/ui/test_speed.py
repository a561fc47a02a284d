"""The Speed tab: what it says and draws of a record, and what a press measures, keeps and refuses."""

from __future__ import annotations

import json

import pytest
from tiny_experiments import headline

from medusa_core.config import ENGINE_VERSION, LoadConfig
from medusa_core.evaluation.turns import Measurement, MethodLog, Turn
from medusa_core.experiments import store
from ui.figures.step_speed import StepTime, SweepPoint, step_bars, sweep_curves
from ui.records.examples import ASSETS
from ui.records.figures import stored_figures
from ui.records.settings import Selection
from ui.records.updates import StopFlag
from ui.runs.other_work import busy_words
from ui.runs.session import Session
from ui.runs.speed import BATCH, DTYPE, NODES, STEP, Effort, SpeedRequest, SpeedUpdate, _rounds
from ui.serving.policy import Policy
from ui.tabs.speed import _table
from ui.tabs.speed.results import Results, command_line, what_limits, where_words

pytestmark = pytest.mark.usefixtures("slow_machine")

MACHINE = {
    "processor": "a processor", "threads": 1, "torch": "2", "python": "3", "cores": 2,
    "other_cores_busy": 0.1,
}  # fmt: skip


def figures(step, verify, propose=0.1, *, nodes=1, flops=1e9, known=True):
    """A forward that reads 10 MB at 10 GB/s, 1 ms, and computes at 10 TFLOP/s."""
    found = {
        "tokens_per_second": 400.0, "tokens_per_second_range": [390.0, 410.0], "tokens_per_step": 1.0,
        "new_tokens": 8,
        "tree_nodes": nodes, "step_ms": step, "overhead": 1.0, "speedup": 1.0, "speedup_range": [1.0, 1.0],
        "phase_ms": {"propose": propose, "verify": verify, "accept": 0.05, "commit": 0.02},
    }  # fmt: skip
    work = {"bytes": 1e7, "flops": flops, "limit_ms": max(1.0, flops / 1e10)}
    limits = work | {"phases": {"verify": work}, "bandwidth": 1e10, "peak": 1e13}
    return found | ({"limits": limits} if known else {})


PLAIN = figures(4.0, 3.7)
READING = "reading weights and cache once, 10.0 MB at 10.0 GB/s, takes 1.00 ms, "
DIFFERENCE = "but its forward takes {} ms: the difference, {} of the step, is overhead."


def measured(**methods):
    """The results after a measurement of a step."""
    model = {"name": "m", "base": "m", "heads": None, "dtype": "float32", "device": "cpu", "parameters": 9}
    record = {
        "machine": MACHINE, "model": model, "settings": {"runs": 1, "max_new_tokens": 8, "prompts": 2},
        "methods": methods,
    }  # fmt: skip
    return Results().with_record(SpeedUpdate(part=STEP, record=record), Selection())


@pytest.mark.parametrize(
    ("plain", "sentence"),
    [
        (PLAIN, f"4.00 ms; {READING}{DIFFERENCE.format('3.70', '68%')}"),
        (
            figures(2.2, 2.05),
            f"2.20 ms; {READING}{DIFFERENCE.format('2.05', '48%')} Waiting for memory takes nearly as long.",
        ),
        (
            figures(1.5, 1.3),
            f"1.50 ms; {READING}so 67% of it is waiting for memory, which fewer bytes would shorten.",
        ),
        (
            figures(3.0, 2.8, flops=2e10),
            "3.00 ms; its arithmetic, 20.0 GFLOP at 10.0 TFLOP/s, takes 2.00 ms, so 67% of it is arithmetic, "
            "which only fewer nodes or a narrower dtype would shorten.",
        ),
        (
            figures(6.0, 2.0),
            "6.00 ms; the largest part of it, 3.90 ms or 65%, is the loop around the forward: judging, "
            "keeping the cache and writing the text.",
        ),
        (
            figures(4.0, 3.7, known=False),
            "4.00 ms; the largest part of it, 3.70 ms or 92%, is the forward, whose least time is not known "
            "for this kind of model.",
        ),
    ],
)  # fmt: skip
def test_one_sentence_says_what_limits_a_plain_step(plain, sentence):
    said = what_limits({"none": plain, "medusa": plain}, "forward in C, exact")
    assert said == f"On this machine a plain step takes {sentence}"


def test_small_operations_are_named_where_transformers_starts_each():
    assert "small operations" in what_limits({"none": PLAIN}, "transformers' forward (no compiler)")
    for other in ("forward in C, exact, 1 thread", "transformers' forward, captured as CUDA graphs", ""):
        assert "small operations" not in what_limits({"none": PLAIN}, other)


def test_a_method_has_a_sentence_of_its_own_where_another_part_is_the_largest():
    words = what_limits({"none": PLAIN, "draft": figures(9.0, 3.0, propose=5.5)}, "")
    assert words.endswith(
        "On this machine a step of draft takes 9.00 ms; the largest part of it, 5.50 ms or 61%, is making "
        "the guesses."
    )
    assert words.count("On this machine") == 2


def test_the_table_names_the_largest_part_of_each():
    plain, unknown = measured(none=PLAIN, lookup=figures(4.0, 3.7, known=False)).table()
    assert (plain["least ms"], plain["largest part"]) == ("1.00", "overhead 68%")
    assert (unknown["least ms"], unknown["largest part"]) == ("", "forward 92%")
    assert plain["tokens/s"] == "400 (390 to 410)"


def test_the_caption_speaks_of_the_least_time_where_there_is_one():
    assert "The least is" in _table(measured(none=PLAIN))
    assert "The least is" not in _table(measured(none=figures(4.0, 3.7, known=False)))
    assert "The least is" not in _table(Results(stored_figures(ASSETS)))


def test_a_busy_machine_is_said():
    model = {"name": "a model", "dtype": "swept"}
    idle = where_words({"machine": MACHINE, "model": model})
    assert idle == (
        "Measured just now: a model in several dtypes on a processor, 1 thread. "
        "Other programs used 0.1 of 2 cores meanwhile."
    )
    assert busy_words(MACHINE) == ""
    busy = MACHINE | {"other_cores_busy": 1.24}
    assert "cores" not in where_words({"machine": busy, "model": model, "notes": ["a note"]})
    assert busy_words(busy).startswith("These times are too long: other programs used 1.2 of 2 cores")


def test_rounds_that_differ_widely_are_said():
    assert measured(none=PLAIN).warning() == ""
    uneven = PLAIN | {"tokens_per_second_range": [200.0, 410.0]}
    assert measured(none=PLAIN, medusa=uneven).warning().startswith("The fastest round was 2.0 times as fast")


@pytest.mark.parametrize("dark", [False, True])
def test_the_limit_stands_on_each_bar(dark):
    steps = [
        StepTime("none", 4.0, (0.1, 3.7, 0.1, 0.05, 0.05), 1.0, "10 MB"),
        StepTime("medusa", 6.0, (1,) * 5),
    ]
    figure = step_bars(steps, dark)
    bars = {trace.name: trace for trace in figure.data if trace.type == "bar"}
    assert list(bars) == ["propose", "verify", "accept", "commit", "other"]
    assert list(bars["verify"].x) == [3.7, 1]
    assert figure.layout.yaxis.ticktext == ("Plain decoding<br>4.00 ms", "Medusa heads<br>6.00 ms")
    (limit,) = (trace for trace in figure.data if trace.name == "limit")
    assert [x for x in limit.x if x is not None] == [1.0] * 3  # the first bar alone has a limit
    assert "10 MB" in limit.hovertext[0]
    assert all(trace.name != "limit" for trace in step_bars(steps[1:], dark).data)
    assert "ms" in figure.layout.yaxis.ticktext[0]
    assert figure.layout.xaxis.title.text == "milliseconds of one step"
    assert step_bars([], dark).layout.annotations[0].text == "nothing measured yet"


@pytest.mark.parametrize("dark", [False, True])
def test_a_sweep_has_a_curve_a_method_with_its_spread_and_limit(dark):
    points = [
        SweepPoint(name, value, ms, ms - 0.5, ms + 1, 0.7, "<br>2.00 tokens per step")
        for value in (128, 512)
        for name, ms in (("none", 3.0), ("medusa", 5.0))
    ]
    figure = sweep_curves("context", points, dark)
    named = {trace.name: trace for trace in figure.data}
    assert list(named) == ["Plain decoding", "Plain decoding: limit", "Medusa heads", "Medusa heads: limit"]
    assert list(named["Medusa heads"].x) == [128, 512]
    assert list(named["Medusa heads"].error_y.array) == [1.0, 1.0]
    assert list(named["Medusa heads"].error_y.arrayminus) == [0.5, 0.5]
    assert list(named["Medusa heads: limit"].y) == [0.7, 0.7]
    assert named["Medusa heads"].line.color != named["Plain decoding"].line.color
    assert (figure.layout.xaxis.type, figure.layout.xaxis.title.text) == ("log", "tokens of the text")
    by_dtype = sweep_curves("dtype", [SweepPoint("none", "float32", 3.0)], dark)
    assert by_dtype.layout.xaxis.type == "category"
    assert [trace.name for trace in by_dtype.data] == ["Plain decoding"]


def test_before_any_press_the_stored_experiments_are_shown_with_their_machine_and_date(tmp_path):
    stored = Results(stored_figures(ASSETS))
    assert [step.name for step in stored.step_times()] == ["none", "medusa"]
    assert all(step.limit_ms is None for step in stored.step_times())
    assert "Recorded, not measured here" in stored.where()
    assert "thread" in stored.where()
    assert ("An older engine was measured." in stored.where()) == stored.figures.record.is_outdated
    assert stored.sentence() == "Press Measure to learn what limits a step on this machine."
    nothing = Results(stored_figures(tmp_path))
    assert (nothing.step_times(), nothing.table(), nothing.points(NODES), nothing.where()) == ([], [], [], "")
    store.keep(headline(), tmp_path / store.FOLDER)
    swept = Results(stored_figures(tmp_path))
    assert [(point.name, point.value) for point in swept.points(NODES)] == [("none", 1), ("medusa", 64)]
    assert "Recorded, not measured here" in swept.where_swept(NODES)
    assert "An older engine" not in swept.where_swept(NODES)
    store.keep(headline(engine=ENGINE_VERSION - 1), tmp_path / store.FOLDER)
    assert "An older engine" in Results(stored_figures(tmp_path)).where_swept(NODES)


def test_what_is_measured_takes_the_place_of_what_is_stored():
    model = {"name": "m", "base": "m", "heads": None, "dtype": "d", "device": "cpu", "parameters": 1}
    machine = MACHINE | {"torch": "2", "python": "3"}
    plain = PLAIN | {"new_tokens": 9, "tree_nodes": 1}
    settings = {"prompts": 1, "runs": 1, "max_new_tokens": 9}
    record = {"machine": machine, "model": model, "settings": settings, "methods": {"none": plain}}
    measured = Results(stored_figures(ASSETS)).with_record(SpeedUpdate(part=STEP, record=record), Selection())
    (step,) = measured.step_times()
    assert (step.ms, step.limit_ms) == (4.0, 1.0)
    assert step.phases[-1] == pytest.approx(4.0 - 3.7 - 0.1 - 0.05 - 0.02)
    assert "Measured on this machine, today at" in measured.where()
    assert measured.where_swept(NODES) in measured.where()  # one source for all
    assert Results().points(NODES) == []


@pytest.mark.parametrize(
    ("load", "public", "line"),
    [
        (LoadConfig(), False, "python -m medusa_core bench --runs 3 --json"),
        (
            LoadConfig("/a b/m", "h", dtype="float32"), False,
            "python -m medusa_core bench --runs 3 --model '/a b/m' --heads h --dtype float32 --json",
        ),
        (
            LoadConfig("/home/owner/m", trust_remote_code=True), True,
            "python -m medusa_core bench --runs 3 --model MODEL --trust-remote-code --json",
        ),
        (LoadConfig(capture=False), False, "python -m medusa_core bench --runs 3 --no-capture --json"),
    ],
)  # fmt: skip
def test_the_command_line_that_measures_the_same(load, public, line):
    assert command_line(("--runs", "3"), load, MACHINE, "cuda", public=public) == line
    assert command_line(("--runs", "3"), load, MACHINE, "cpu", public=public) == f"OMP_NUM_THREADS=1 {line}"


@pytest.mark.parametrize(
    ("seconds_per_token", "runs", "fewest", "unmeasured", "wanted"),
    [
        (0.003, 2, 2, 0, (8, 48, 3)),  # a small model: everything
        (0.02, 2, 2, 0, (3, 48, 3)),
        (0.5, 2, 2, 0, (2, 16, 1)),  # a large one: the least there is
        (0.003, 14, 16, 0, (16, 29, 1)),
        (0.02, 2, 2, 1, (2, 48, 3)),  # steps are captured in a round of their own
        (0.05, 2, 2, 1, (2, 48, 1)),
        (0.5, 2, 2, 1, (2, 16, 1)),
    ],
)
def test_a_slow_model_is_measured_with_less(seconds_per_token, runs, fewest, unmeasured, wanted):
    effort = Effort(max(8, fewest), 48, 3, 20.0).within(seconds_per_token, runs, fewest, unmeasured)
    assert (effort.prompts, effort.tokens, effort.rounds) == wanted


def test_the_time_that_is_left_is_that_of_the_measured_runs():
    """Where steps are captured, a whole round before them is not measured."""
    run = Measurement([0] * 4, 2.0, 2)
    turns = [Turn("none", done, 5, 1, True, {"none": MethodLog([[run] * done])}) for done in (1, 3)]
    assert [str(words).partition(", about ")[2] for words, _ in _rounds(turns, 1)] == ["8 s left", "4 s left"]


# --- A press: parts, progress, what is kept when it is stopped, and what is refused.


TEXTS = ("abca", "fad")
SHORT = Effort(2, 8, 2, 1e9)


def pressed(session, part, method="medusa", effort=SHORT, stop=lambda seen: False):
    flag, seen = StopFlag(), []
    for update in session.run(SpeedRequest(part, method, TEXTS, effort), flag):
        seen.append(update)
        flag.stopped = flag.stopped or stop(seen)
    assert [update.status for update in seen if update.problem] == []
    return seen


def records(updates):
    return [update for update in updates if isinstance(update, SpeedUpdate)]


def test_a_step_is_measured_round_by_round(session):
    updates = pressed(session, STEP)
    first, last = records(updates)
    assert (first.record["settings"]["runs"], last.record["settings"]["runs"]) == (1, 2)
    assert first.status.startswith("Timing ")
    assert "run 4 of 8" in first.status
    assert updates[-1].status == "Measured."
    assert set(last.record["methods"]) == {"none", "medusa"}
    assert last.flags == ("--methods", "none,medusa", "--max-new-tokens", "8", "--runs", "2")
    results = Results().with_record(last, Selection())
    assert results.sentence().startswith("On this machine a plain step takes")
    assert all(step.limit_ms > 0 for step in results.step_times())
    assert json.loads(json.dumps(last.record)) == last.record


def test_a_method_without_weights_is_measured_as_plain_decoding_alone(session):
    updates = pressed(session, STEP, "eagle3")
    assert set(records(updates)[-1].record["methods"]) == {"none"}
    assert any("no weights for it" in (update.badge or "") for update in updates)


def test_stopped_what_was_measured_stays(session):
    at_once = pressed(session, STEP, stop=lambda seen: True)
    assert records(at_once) == []
    assert at_once[-1].status.startswith("Stopped before ")
    later = pressed(session, STEP, stop=lambda seen: bool(records(seen)))
    assert records(later)[-1].record["settings"]["runs"] == 1
    assert later[-1].status == "Stopped: what is shown was measured until then."


def test_a_sweep_over_nodes_that_is_stopped(session):
    updates = pressed(session, NODES, stop=lambda seen: bool(records(seen)))
    last = records(updates)[-1]
    assert last.part == NODES
    assert [point["value"] for point in last.record["points"]] == [1, 2, 4, 8, 16, 32, 64]
    assert last.flags[-2:] == ("--sweep", "nodes")
    assert updates[-1].status.startswith("Stopped")
    assert len(Results().with_record(last, Selection()).points(NODES)) == 7


@pytest.mark.parametrize(
    ("part", "values"), [(BATCH, [1, 1, 2, 2, 4, 4, 8, 8]), (DTYPE, ["float32"] * 2 + ["bfloat16"] * 2)]
)
def test_other_sweeps(session, part, values):
    last = records(pressed(session, part, effort=Effort(2, 4, 1, 1e9)))[-1]
    assert [point["value"] for point in last.record["points"]] == values
    assert last.status == "Measured."


def test_what_cannot_be_measured_is_refused(session, load, assets):
    (update,) = session.run(SpeedRequest("speed", "medusa", TEXTS), StopFlag())
    assert "cannot be measured: choose one of step, nodes" in update.status
    public = Session(load, assets, Policy(public=True))
    *_, last = public.run(SpeedRequest(DTYPE, "none", TEXTS, SHORT), StopFlag())
    assert last.problem
    assert last.status.startswith("The owner of this page has chosen the dtype")
    bare = Session(LoadConfig(load.model, "none", dtype="float32", device="cpu"), assets)
    *_, last = bare.run(SpeedRequest(NODES, "none", TEXTS, SHORT), StopFlag())
    assert last.problem
    assert "has no Medusa heads for these trees: choose another sweep" in last.status
