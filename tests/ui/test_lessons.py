"""The tour's texts: short, complete, the same in every language; and its numbers are shipped ones."""

from __future__ import annotations

import json
import re

import pytest
from paths import ROOT
from shipped_runs import recordings

from medusa_core.drafters import method
from medusa_core.experiments import store
from medusa_core.experiments.spec_bench import step_times
from ui.components.views import learn_content
from ui.records.figures import stored_page
from ui.tabs.learn import FIRST_LANGUAGE, lesson_records, lesson_runs, lesson_texts

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
