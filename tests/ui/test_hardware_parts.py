"""The parts of the Hardware tab without a browser: quick answers, the loaded model, what is measured."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
from paper_tables import ATTENTION, LINEAR

from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.hardware import this_machine
from medusa_core.hardware.devices import THIS, find_device
from medusa_core.hardware.operators import DECODE, PARALLEL, PREFILL, Work, operators, phases
from medusa_core.hardware.shapes import known_shapes
from medusa_core.hardware.simulation import best, gains, logarithmic
from ui.figures.hardware import Growth, growth_chart, products_chart, sharing_drawing
from ui.records.settings import Selection
from ui.records.updates import StopFlag
from ui.runs.session import Session
from ui.tabs.hardware import choice, gain, live, measuring, memory, roofline
from ui.tabs.trees.head_stats import stats_of

CHOSEN = choice.Chosen(known_shapes()["llama-7b"], find_device("a100"), Selection(), dark=False)
MEMORY = (32, 32, 8, 128, "bfloat16", 4096, 1)


@pytest.fixture(autouse=True)
def short_measuring(monkeypatch):
    """Each speed is that of a moment."""
    measure = partial(this_machine.measure_machine, seconds=0.1)
    monkeypatch.setattr(measuring, "measure_machine", measure)
    monkeypatch.setattr(this_machine, "_PRODUCT_SECONDS", 0.002)


@pytest.fixture(scope="module")
def session(engine_folder):
    session = Session(LoadConfig(model=str(engine_folder), dtype="float32", device="cpu"))
    session.load_own()
    return session


@pytest.mark.parametrize(
    "draw",
    [
        lambda: roofline.draw(CHOSEN, 1, 64, 1024),
        lambda: gain.draw(CHOSEN, 1, 1024, "overlapped", logarithmic),
        lambda: memory.draw(CHOSEN, *MEMORY),
    ],
    ids=["roofline", "gain", "memory"],
)
def test_what_a_moving_slider_draws_anew_is_small(draw: Callable[[], tuple[Any, ...]]):
    """A figure that is drawn many times a second holds hundreds of points, not thousands."""
    figures = [value.to_json() for value in draw() if hasattr(value, "to_json")]
    assert figures
    assert max(map(len, figures)) < 10_000


def test_the_loaded_model_and_its_heads_are_there(session):
    shape = choice.shape_named(session, Selection(), choice.LOADED)
    engine = session.models.at_hand(Selection())
    assert (shape.hidden, shape.layers) == (engine.target.config.hidden_size, 2)
    accuracies = stats_of(session, Selection()).accuracies
    words, *charts = gain.draw(CHOSEN, 1, 1024, "overlapped", gain.by_accuracies(accuracies))
    assert "candidates" in words
    assert max(charts[0].data[0].y) <= len(accuracies) + 1  # a path has at most one node of each head


def test_heads_that_are_never_right_gain_nothing():
    found = gains(CHOSEN.shape, CHOSEN.device, acceleration=gain.by_accuracies([[0.0, 0.0]] * 2))
    assert best(found).candidates == 1
    sure = gains(CHOSEN.shape, CHOSEN.device, acceleration=gain.by_accuracies([[1.0], [1.0]]))
    assert max(each.acceleration for each in sure) == pytest.approx(3.0)


def test_what_is_missing_gets_a_sentence():
    with pytest.raises(MedusaError, match="no model is loaded yet"):
        choice.shape_named(Session(LoadConfig()), Selection(), choice.LOADED)
    with pytest.raises(MedusaError, match="press Measure"):
        choice.device_named(THIS, None, CHOSEN.shape)
    with pytest.raises(MedusaError, match="parameters"):
        memory.draw(CHOSEN, 128, 128, 128, 256, "bfloat16", 4096, 1)


def test_the_drawing_says_which_heads_share():
    *_, queries, keys = sharing_drawing(8, 2, dark=False).data
    assert [each[1] for each in queries.customdata] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert (len(queries.x), len(keys.x)) == (8, 2)


def test_a_text_is_measured_and_a_stop_ends_it(session):
    found = list(live.measure(session, live.CACHE, 6, Selection(), StopFlag()))
    assert "Both chose the same token 6 of 6 times" in found[-1].status
    assert len(found[-1].growth.length) == 6
    stopped = list(live.measure(session, live.CACHE, 6, Selection(), StopFlag(stopped=True)))
    assert stopped[-1].status.startswith("Stopped")
    assert len(stopped[-1].growth.length) == 1


def test_tables_6_to_8_have_the_intensities_that_the_paper_prints():
    shape, device = known_shapes()["llama-33b"], find_device("a100")
    cells = re.findall(
        r"<td>(.*?)</td>", roofline.sweeps_of(choice.Chosen(shape, device, Selection(), False))
    )
    assert len(cells) == 3 * 7 * 8
    rows = [cells[place : place + 8] for place in range(0, len(cells), 8)]
    assert [cell.split(" · ")[0] for cell in rows[3]] == list(ATTENTION)  # batch 16, 1,024 positions
    assert rows[7] == rows[3]  # no batch changes attention's
    assert [cell.split(" · ")[0] for cell in rows[14]] == list(LINEAR)
    assert rows[14][0].endswith(" · 1.9")  # the bandwidth in TB/s, at 1 FLOP a byte


def test_a_chip_s_cache_holds_few_tokens_of_a_large_model():
    words, *_ = memory.draw(CHOSEN, 32, 32, 32, 128, "bfloat16", 4096, 1)
    assert "holds keys and values of 76 tokens" in words  # 40 MB over 512 KiB


def test_products_are_measured_under_the_roof_of_this_machine(session, monkeypatch):
    monkeypatch.setattr(this_machine, "LENGTHS", (16,))
    monkeypatch.setattr(this_machine, "BATCHES", (1, 16))
    found = list(live.measure(session, live.PRODUCTS, 0, Selection(), StopFlag()))
    rows = found[-2].products.rows
    assert {row[0] for row in rows} == {"up", "qk"}
    assert len({row[:4] for row in rows}) == len(rows) == 2 * 3 + 6
    assert all(row[5] > 0 for row in rows)
    speeds = {row[1:3]: row[5] for row in rows if row[0] == "up"}
    assert speeds[16, 1] == speeds[1, 16]  # as many rows, timed once
    assert "of the roof" in found[-1].status
    assert len(products_chart(found[-2].products, dark=False).data) == 1 + 6
    stopped = list(live.measure(session, live.PRODUCTS, 0, Selection(), StopFlag(stopped=True)))
    assert stopped[-1].status.startswith("Stopped")


@pytest.mark.parametrize("name", [live.PASSES, live.CACHE, live.SHARING, live.PRODUCTS])
def test_what_makes_measurements_doubtful_is_said(session, monkeypatch, name):
    """Other programs, and limits that were measured so low that the roofline predicts more than the time."""
    monkeypatch.setattr(this_machine, "LENGTHS", (16,))
    slow = this_machine.Machine("slow", 1, ((2**20, 1e3),), (("float32", 1e3),), 1e9)
    monkeypatch.setattr(measuring, "measure_machine", lambda *_: slow)
    monkeypatch.setattr(measuring.OtherWork, "record", lambda _: {"cores": 2, "other_cores_busy": 1.5})
    *_, last, done = live.measure(session, name, 2, Selection(), StopFlag())
    assert "These times are too long: other programs used 1.5 of 2 cores meanwhile." in done.status
    assert ("the limits were measured too low" in done.status) == (name in (live.PASSES, live.PRODUCTS))
    if last.products:
        assert last.products.peak == max(row[5] for row in last.products.rows)


def test_each_chart_says_whether_it_shows_the_record():
    record, found = (Growth((8,), (ms,), (3.0,)) for ms in (1.0, 2.0))

    def said(shown):
        return [note.text for note in live.draw_all([growth_chart], record, shown, False).layout.annotations]

    assert (said(record), said(found)) == (["recorded"], ["measured here"])
    assert said(Growth()) == ["not measured yet"]


def test_a_plain_step_and_a_prompt_s_output_layer_lie_leftmost():
    """As the note below the roofline says, whatever the model and the sliders."""
    for shape in known_shapes().values():
        for place in product((1, 128), (1, 64, 256), (16, 1024, 32_768)):
            plain, *others = (
                {each.name: each.intensity for each in operators(shape, phases(Work(*place))[name])}
                for name in (DECODE, PARALLEL, PREFILL)
            )
            assert all(other[name] >= plain[name] for other in others for name in plain)
            assert others[1]["lm_head"] == plain["lm_head"]


def test_passes_are_set_beside_the_prediction_for_this_machine(session):
    found = list(live.measure(session, live.PASSES, 0, Selection(), StopFlag()))
    last = next(each for each in reversed(found) if each.passes)
    assert len(last.passes.measured) == len(last.passes.predicted) == len(last.passes.tokens)
    assert all(least > 0 for least in last.passes.predicted)
    assert "The roofline predicts" in found[-1].status
    assert choice.device_named(THIS, last.machine, CHOSEN.shape).bandwidth > 0
