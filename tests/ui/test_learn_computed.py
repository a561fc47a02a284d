"""What Learn's cards compute: by the formulas of Hardware and Methods, and refused in words."""

from __future__ import annotations

import json

import pytest

from medusa_core.experiments.spec_bench import STEP
from medusa_core.hardware.devices import find_device
from medusa_core.hardware.operators import Work, attention, operators, score_bytes, step_seconds
from medusa_core.hardware.shapes import find_shape
from medusa_core.words import seconds_words
from ui.figures.method_speeds import MethodSpeed
from ui.records.figures import stored_page
from ui.tabs.hardware.choice import CONTEXT
from ui.tabs.learn_computed import DEVICE, MODEL, WEIGHTS, answered, card_facts, expectation
from ui.tabs.methods_computed import compute

SHOWN = stored_page().stored


def test_facts_of_the_cards_are_those_of_the_formulas():
    facts, shape, device = card_facts(), find_shape(MODEL), find_device(DEVICE)
    assert facts["hw_step"] == seconds_words(step_seconds(shape, Work(1, 1, CONTEXT), device))
    plain, tree, prompt = facts["roofline"]["points"]
    assert plain["intensity"] < tree["intensity"] < device.ridge < prompt["intensity"]
    for point in (plain, tree, prompt):
        assert point["speed"] <= device.attainable(point["intensity"]) * 1.0001
    assert plain["speed"] == pytest.approx(device.attainable(plain["intensity"]), rel=0.01)


def test_scores_are_what_attention_moves_beside_its_operands():
    shape, work = find_shape("llama-7b"), Work(1, 100, 100)
    operands = 2 * shape.heads * shape.head_size * (100 + 100)
    assert attention("qk", shape, work).moved == score_bytes(shape, work) + operands
    assert {p.name for p in operators(shape, work) if p.moved > score_bytes(shape, work)} >= {"qk", "pv"}


def test_an_expectation_is_what_the_methods_tab_computes():
    found = expectation("3B", "900 GB/s, 120 TFLOP/s", SHOWN)
    rows = {row["name"]: row for row in found["rows"]}
    assert not [name for name in rows if "+" in name]
    medusa = next(row for row in SHOWN.record.rows if row.series == "medusa" and row.label == "all kinds")
    speed = MethodSpeed("medusa", medusa.tokens_per_step.mean, medusa.step_ms, medusa.tree_nodes)
    own = compute([speed], SHOWN, find_shape("3B"), find_device("900 GB/s, 120 TFLOP/s"))[0]
    assert rows["medusa"]["rate"] == own.tokens_per_second
    assert rows["medusa"]["draft"] > rows["hydra"]["draft"] > rows["suffix"]["draft"] == 0
    assert rows["none"]["overhead"] == rows["none"]["speedup"] == 1
    assert rows["medusa"]["speedup"] == pytest.approx(rows["medusa"]["tokens"] / rows["medusa"]["overhead"])
    assert found["before"]["english"].startswith("Computed by formulas, not measured: 3B")


def test_the_heads_get_the_measured_tree_that_pays_most_on_the_device():
    """Medusa's own row is of the tree that is fastest on the machine of the record, a CPU."""
    recorded = next(row for row in SHOWN.record.rows if row.series == "medusa" and row.label == "all kinds")
    sizes = {row.tree_nodes for row in SHOWN.record.rows if row.series == STEP}

    def heads(model: str, device: str, bits: int) -> dict[str, float]:
        return next(row for row in expectation(model, device, SHOWN, bits)["rows"] if row["name"] == "medusa")

    large, small = heads("llama-7b", "a100", 16), heads("3B", "rtx4090", 4)
    assert large["nodes"] in sizes
    assert large["nodes"] > recorded.tree_nodes
    assert large["nodes"] >= small["nodes"]  # heads of 16 bits weigh more beside 4
    assert small["draft"] > 2 * large["draft"]


def test_weights_of_fewer_bits_make_a_step_shorter_but_not_a_draft():
    by_bits = [expectation("llama-7b", "a100", SHOWN, bits) for bits in WEIGHTS]
    plain, hydra = (
        [next(row for row in found["rows"] if row["name"] == name) for found in by_bits]
        for name in ("none", "hydra")
    )
    assert [row["rate"] for row in plain] == sorted(row["rate"] for row in plain)
    seconds = [row["draft"] / beside["rate"] for row, beside in zip(hydra, plain, strict=True)]
    assert seconds == pytest.approx([seconds[0]] * len(WEIGHTS))
    assert "in 4 bits" in by_bits[-1]["before"]["english"]
    assert "choose 16, 8 or 4" in expectation("llama-7b", "a100", SHOWN, 3)["error"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ('{"model": "large", "device": "a100", "bits": 16}', "give a size such as 3B"),
        ('{"model": "3B", "device": "fast", "bits": 16}', "give its limits as in"),
        ('{"model": "3B", "device": "a100", "bits": "many"}', "no shape is called ''"),
        ("no JSON", "no shape is called ''"),
        ("[1]", "no shape is called ''"),
        ("[" * 5000, "no shape is called"),
    ],
)
def test_what_cannot_be_computed_is_said(asked, words):
    assert words in json.loads(answered(asked, SHOWN))["error"]


def test_without_any_measurement_it_says_what_to_do():
    assert "measure them in Compare" in expectation("3B", "a100", None)["error"]
