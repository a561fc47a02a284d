"""Methods with computed times: all that is shown says so, and no measured time stands beside it."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from paths import ROOT
from said_texts import own_texts
from tiny_experiments import headline

from medusa_core.drafters import drafter_names, method
from medusa_core.hardware.devices import find_device
from medusa_core.hardware.shapes import known_shapes
from ui.figures.method_speeds import MethodSpeed
from ui.records.figures import Figures, measured_figures
from ui.records.settings import Selection
from ui.records.updates import StopFlag
from ui.runs.methods import MethodsRequest, MethodsUpdate
from ui.runs.session import Session
from ui.tabs.methods import COMPUTED, MEASURED, Shown, draw, shown_methods
from ui.tabs.methods_computed import compute

LLAMA, A100 = known_shapes()["llama-7b"], find_device("a100")
SPEEDS = [
    MethodSpeed("none", 1.0, 913.25, 1),
    MethodSpeed("lookup", 1.5, 927.75, 11),
    MethodSpeed("medusa", 2.5, 914.5, 16),
    MethodSpeed("hydra", 2.9, 936.25, 16),
]
ROWS = [{"method": speed.title, "ms a step": f"{speed.step_ms:.2f}"} for speed in SPEEDS]
FIGURES = Figures(headline(rows=[]))
FOUND = Shown("", SPEEDS, ROWS, FIGURES, "Measured somewhere.")


def shown(found=FOUND, times=COMPUTED, model="llama-7b", device="a100"):
    words, plot, table, menus = draw(found, times, False, model, device, False)
    return str(words), plot, table, menus


def test_measured_is_what_was_there_before():
    words, plot, table, menus = shown(times=MEASURED)
    assert words == FOUND.chosen(False).words
    assert words.endswith("Measured somewhere.")
    assert not menus.visible
    assert "omputed" not in words + table + plot.to_json()
    assert "913.25" in table


def test_computed_is_said_in_words_picture_and_table_and_nothing_measured_stands_beside():
    words, plot, table, menus = shown()
    assert words.startswith("Computed by formulas, not measured: llama-7b in 16 bits on A100 80 GB PCIe")
    assert FOUND.behind not in words
    assert "The heads were measured only with a tree of 16 nodes" in words
    assert menus.visible
    picture = plot.to_json()
    assert "Computed by formulas, not measured" in picture
    assert "computed milliseconds per step" in picture
    heads = re.findall("<th scope='col'>([^<]*)</th>", table)
    assert [
        head for head in heads if re.search(r"ms|tokens/s|overhead|speedup", head) and "computed" not in head
    ] == []
    assert "Computed by formulas, not measured" in table
    assert not re.search(r"9[123]\d\.\d", words + table + picture)  # measured milliseconds


def test_times_come_from_shape_and_device_and_tokens_from_what_was_measured():
    found = compute(SPEEDS, FIGURES, LLAMA, A100)
    assert [one.tokens_per_step for one in found] == [speed.tokens_per_step for speed in SPEEDS]
    assert found[0].step_ms == pytest.approx(7.11, abs=0.01)  # as the Hardware tab says
    slower = compute(SPEEDS, FIGURES, LLAMA, find_device("a40"))
    assert all(b.step_ms > a.step_ms for a, b in zip(found, slower, strict=True))
    assert "on A40" in shown(device="a40")[0]


def test_a_model_that_does_not_fit_the_device_is_computed_and_said():
    assert "do not fit into its memory" in shown(model="qwen2.5-72b", device="rtx4090")[0]
    assert "do not fit" not in shown()[0]


def test_before_anything_was_measured_there_is_nothing_to_compute():
    words, plot, table, _ = shown(Shown("Nothing measured yet."))
    assert (words, table) == ("Nothing measured yet.", "")
    assert plot.data == ()


def test_a_run_of_one_s_own_counts_its_own_heads(load, assets, engine):
    """Its tree is the one that was run, not the embedded model's."""
    session = Session(load, assets)
    updates = list(session.run(MethodsRequest("abca", 16, 1), StopFlag()))
    (last,) = [update for update in updates if isinstance(update, MethodsUpdate)]
    options = last.options
    found = shown_methods(measured_figures(last.record, Selection(), options), assets)
    assert found.figures.options is options
    tree = options["medusa"]["tree"]
    assert tree.size == next(speed for speed in found.speeds if speed.name == "medusa").nodes
    step = {one.name: one for one in compute(found.speeds, found.figures, LLAMA, A100)}
    one_head = options | {"medusa": {"tree": tree.limited(1)}}
    shallow = {
        one.name: one for one in compute(found.speeds, replace(found.figures, options=one_head), LLAMA, A100)
    }
    depth = max(tree.depths)
    assert depth > 1
    assert step["medusa"].draft_ms == pytest.approx(depth * shallow["medusa"].draft_ms)


def test_every_design_is_translated():
    """Of each drafter that has translated texts at all: a new one is shown in English."""
    table = json.loads((ROOT / "assets" / "language" / "zh.json").read_text("utf-8"))
    texts, known = table["figures"], {text for part in table.values() for text in part}
    shipped = [found for found in map(method, drafter_names()) if not own_texts(found).isdisjoint(known)]
    designs = [re.sub(r"\d+(?:[.,]\d+)*", "0", found.design) for found in shipped]
    assert len(designs) > 8
    known = {re.sub(r"\{\d\}", "0", text) for text in texts}
    assert [design for design in designs if design not in known] == []
