"""The tour: short texts, complete in every language; its numbers are shipped or computed by formulas."""

from __future__ import annotations

import json
import re

import pytest
from paths import ROOT
from shipped_runs import recordings

from medusa_core.drafters import method
from medusa_core.experiments import store
from medusa_core.experiments.spec_bench import STEP, step_times
from medusa_core.hardware.devices import find_device
from medusa_core.hardware.operators import Work, attention, operators, score_bytes, step_seconds
from medusa_core.hardware.shapes import find_shape
from medusa_core.words import seconds_words
from ui.components.views import learn_content
from ui.figures.method_speeds import MethodSpeed
from ui.records.figures import stored_page
from ui.tabs.hardware.choice import CONTEXT
from ui.tabs.learn import FIRST_LANGUAGE, lesson_records, lesson_runs, lesson_texts
from ui.tabs.learn_computed import DEVICE, MODEL, WEIGHTS, answered, card_facts, expectation
from ui.tabs.methods_computed import compute

TEXTS = lesson_texts()
FIRST = TEXTS[FIRST_LANGUAGE]
LINK = re.compile(r"\[\[(\w+)(?:\|([^\]]+))?\]\]")
MOST_WORDS = 60  # words of a card before its question


# What the script reads, and no reader.
FOR_THE_SCRIPT = {"id", "when", "parts", "after", "mark", "picture", "formula", "pick", "answer", "part"}
FOR_THE_SCRIPT |= {"phase", "phase_after", "order", "needs", "lecture", "try", "run"}


def strings(part):
    """All texts in a part of the file."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict | list):
        for item in part.values() if isinstance(part, dict) else part:
            yield from strings(item)


def holes(text):
    return sorted(re.findall(r"\{\w+\}|\$\w+\$", text))


def shape(part):
    """Cards or terms with every text reduced to what is filled into it."""
    if isinstance(part, dict):
        return {name: item if name in FOR_THE_SCRIPT else shape(item) for name, item in part.items()}
    if isinstance(part, list):
        return [shape(item) for item in part]
    return holes(part) if isinstance(part, str) else part


def test_short_cards_each_with_a_question_of_two_to_four_choices():
    assert len(FIRST["cards"]) > 20
    for card in FIRST["cards"]:
        for body in card["body"]:
            text = body if isinstance(body, str) else body["text"]
            words = LINK.sub(lambda found: found[2] or found[1], text).split()
            assert len(words) <= MOST_WORDS, card["id"]
        for ask in card["ask"]:
            assert 2 <= len(ask["choices"]) <= 4
            assert 0 <= ask["right"] < len(ask["choices"])
        last = card["ask"][-1].get("when")
        assert last in (None, "sampling"), f"{card['id']}: a run may be left without a question"


@pytest.mark.parametrize("language", TEXTS)
def test_every_language_has_the_same_cards_terms_and_holes(language):
    own = TEXTS[language]
    for section in ("words", "pictures"):
        assert {name: holes(text) for name, text in own[section].items()} == {
            name: holes(text) for name, text in FIRST[section].items()
        }
    for section in ("cards", "glossary"):
        assert shape(own[section]) == shape(FIRST[section])


def test_every_drafter_of_a_card_has_a_recorded_run_and_words_for_its_picture():
    told = {card["run"] for card in FIRST["cards"] if "run" in card}
    assert told == {"hydra", "eagle3", "mtp", "block", "draft_model", "lookup", "suffix", "tokenswift"}
    runs = lesson_runs(recordings())
    assert told <= {run.trace["config"]["drafter"]["name"] for run in runs}
    greedy = sorted(recordings(), key=lambda run: run.trace["config"]["temperature"])
    assert any(run.trace["config"]["temperature"] > 0 for run in lesson_runs(greedy))
    assert all(method(name).drafting for name in told)


def test_what_a_run_can_lack_has_words_for_it():
    needed = {need for card in FIRST["cards"] for need in card.get("needs", [])}
    script = (ROOT / "assets/web/learn/needs.js").read_text("utf-8")
    table = script[script.index("const NEEDS") : script.index("\n};")]
    assert needed == set(re.findall(r"^  (\w+): ", table, re.MULTILINE))
    assert {name for name in FIRST["words"] if name.startswith("need_")} == {
        f"need_{need}" for need in needed | {"together", "question"}
    }


@pytest.mark.parametrize("language", TEXTS)
def test_every_linked_term_is_in_the_glossary(language):
    terms = {entry["id"] for entry in TEXTS[language]["glossary"]}
    linked = {found[1] for text in strings(TEXTS[language]) for found in LINK.finditer(text)}
    assert linked <= terms
    assert {"root", "node", "path", "draft", "head", "verify", "bar", "entropy", "epsilon", "delta"} <= terms
    assert {"temperature", "bonus", "kv", "slot", "position", "overhead", "acceptance", "speedup"} <= terms


def test_measurements_are_those_of_the_shipped_files():
    records = lesson_records(stored_page())
    measured = json.loads((ROOT / "assets/model/heads/accuracies.json").read_text("utf-8"))
    table = store.record("table2")
    assert records["accuracies"] == measured["accuracies"]
    expected = store.record(store.HEADLINE)
    steps = step_times(expected.rows) or measured["latency"]
    assert [row["step_ms"] for row in records["latency"]] == [row["step_ms"] for row in steps]
    assert [row["loss"] for row in records["trainings"]] == [row.quality.mean for row in table.rows]
    assert records["latency"][0]["nodes"] == 1, "the cards compare with a step of one token"


def test_no_number_of_a_measurement_is_written_into_a_text():
    for text in strings({"cards": FIRST["cards"], "glossary": FIRST["glossary"]}):
        assert not re.search(r"\d\.\d|\d %", text), text


def test_what_is_sent_holds_no_tag():
    trace = {"steps": [], "output": {"text": "<script>alert(1)</script>"}}
    content = learn_content(TEXTS, lesson_records(stored_page()), trace)
    assert "<" not in content
    assert json.loads(content)["recording"]["trace"]["output"] == trace["output"]


# --- What Learn's cards compute: by the formulas of Hardware and Methods, and refused in words.


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
