"""Every text of the page has its translation: of the scripts, of the server and of gradio's components."""

from __future__ import annotations

import pickle
import re
from html.parser import HTMLParser
from itertools import count

import gradio as gr
import pytest
from paths import ROOT
from said_texts import of_additions, of_method, of_module, of_script

from medusa_core.drafters import method, method_names
from medusa_core.errors import MedusaError
from medusa_core.experiments import experiment_names
from medusa_core.trace.replay.page import NAME, OF_A_VIEW, languages, languages_script
from medusa_core.trace.replay.view import SCRIPTS, WEB, read_web
from ui.records.examples import ASSETS
from ui.records.settings import Selection, check_prompt, check_tokens, own_tree
from ui.records.words import Words, amount, as_data, joined, sentences
from ui.serving.runner import as_sentence, problem_of
from ui.tabs.experiments import load_section
from ui.tabs.train.plan import OWN, PASTE, Plan

PARTS = ("race", "tree_editor")  # folders of scripts beside the view's
DOT, COMMA = " · ", ", "  # between parts that language.js says one by one
LONGER = " or have the model loaded with a longer --context"
PLACE = re.compile(r"\{\d\}")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*%?")
# What is the same in every language: names of settings' values, of published trees, and symbols.
DEVICES = r"A100 80 GB PCIe|A40|RTX A?\d+|H100 SXM|H200|Apple M3 Max|llama-\d+b|qwen2.5-[\d.]+b"
NAMES = re.compile(rf"(float|bfloat)\d+|[48]bit|auto|none|published: \w+|[εδλ]0?|MHA, GQA, MQA|{DEVICES}")
TEXTS = ("label", "info", "placeholder")


@pytest.fixture(params=languages())
def tag(request):
    return request.param


def texts_of(tag: str, parts: tuple[str, ...] | None = None) -> dict[str, str]:
    held = languages()[tag]
    return {
        english: own
        for part, texts in held.items() if part != NAME and (parts is None or part in parts)
        for english, own in texts.items()
    }  # fmt: skip


def has_words(text: str) -> bool:
    return re.search("[A-Za-z]{2}", PLACE.sub("", text)) is not None


def said_by_a_view() -> set[str]:
    methods = (of_method(method(name)) - {method(name).design} for name in method_names())
    return set().union(*methods, *(of_script(read_web(f"{name}.js")) for name in SCRIPTS))


def said_by_the_page() -> set[str]:
    """The tour has files of its own, and its ``say`` takes their names."""
    scripts = [*WEB.glob("*.js"), *(file for part in PARTS for file in (WEB / part).glob("*.js"))]
    return set().union(
        *(of_script(file.read_text(encoding="utf-8")) for file in scripts),
        *(of_module(file) for file in (ROOT / "ui").rglob("*.py")),
    )


def test_every_text_of_the_scripts_and_the_server_is_translated(tag):
    said = {text for text in said_by_the_page() if has_words(text)}
    assert len(said) > 300
    assert sorted(said - texts_of(tag).keys()) == []


def test_a_replay_file_holds_every_text_of_its_view(tag):
    said = {text for text in said_by_a_view() if has_words(text)}
    texts = texts_of(tag, OF_A_VIEW)
    assert sorted(said - texts.keys() - of_additions(texts_of(tag))) == []


def test_a_translation_has_the_places_of_its_text_and_no_text_stands_twice(tag):
    texts = texts_of(tag)
    assert [
        (english, own) for english, own in texts.items()
        if sorted(PLACE.findall(english)) != sorted(PLACE.findall(own)) or not own.strip()
    ] == []  # fmt: skip
    parts = [part for name, part in languages()[tag].items() if name != NAME]
    assert sum(map(len, parts)) == len(texts)


def test_a_phase_has_one_name_on_its_button_and_in_the_times(tag):
    texts = texts_of(tag)
    for name in ("propose", "verify", "accept", "commit"):
        assert texts[name.capitalize()] == texts[name]


def shown_by_components(page: gr.Blocks) -> set[str]:
    """Labels, help, placeholders, entries of menus and words on buttons, as gradio is told of them."""
    found = set()
    for component in page.get_config_file()["components"]:
        properties, kind = component["props"], component["type"]
        if kind == "api":
            continue
        texts = [properties.get(name) for name in TEXTS]
        texts += [label for label, _ in properties.get("choices") or ()]
        if "button" in kind:
            texts.append(properties.get("value"))
        found |= {text for text in texts if isinstance(text, str) and text.strip()}
    return found


# Names of models, of other people's methods and of machines.
PROPER = re.compile(
    r"hf|hf-lookup|(\+ )?[A-Z][\w.-]*( [A-Z\d][\w.-]*)*|[\d.]+ [kMG]B|torch \S+|.* Processor"
    r"|(embedded|model|llama-7b)( \+ \d+ Medusa heads)?|cpu|b?float\d\d"
)


def test_every_text_of_a_component_is_translated(shipped_page, tag):
    texts = texts_of(tag)
    shown = shown_by_components(shipped_page)
    assert len(shown) > 100
    known = texts | dict.fromkeys(of_additions(texts), "")
    assert [text for text in sorted(shown) if not is_said(text, known)] == []


def is_said(text: str, texts: dict[str, str]) -> bool:
    """Whether `tell` of language.js has the text: whole, in parts with dots, or in a list of known parts."""
    if text in texts or without_numbers(text) in texts or NAMES.fullmatch(text):
        return True
    between = DOT if DOT in text else COMMA
    parts = text.split(between)
    named = (not has_words(part) or PROPER.fullmatch(part) or is_said(part, texts) for part in parts)
    return len(parts) > 1 and all(named)


def without_numbers(text: str) -> str:
    """As `find` of language.js looks a text up."""
    places = count()
    return NUMBER.sub(lambda _: f"{{{next(places)}}}", text)


class TextNodes(HTMLParser):
    """What a browser would look up of a part of the page; code is never translated."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._code = False
        self.feed(markup)

    def handle_starttag(self, tag, attrs):
        self._code = tag == "code"

    def handle_endtag(self, tag):
        self._code = False

    def handle_data(self, data):
        if not self._code and has_words(data):
            self.found.add(" ".join(data.split()))


def test_every_experiment_names_the_command_that_measures_it(tmp_path):
    """Without a record in place of its result, with one as where it came from."""
    for name in experiment_names():
        assert f"reproduce {name}" in load_section(tmp_path, name).introduction
        assert f"reproduce {name}" in load_section(ASSETS, name).details


def test_every_text_of_the_experiments_is_translated(tag):
    """The records beside the code: a list of figures is said part by part, so that other figures are too."""
    texts = texts_of(tag)
    missing = set()
    for name in experiment_names():
        shown = load_section(ASSETS, name)
        nodes = TextNodes(shown.introduction).found | TextNodes(shown.details).found
        missing |= {text for text in nodes if not PROPER.fullmatch(text) and not is_said(text, texts)}
    assert sorted(missing) == []


def test_what_a_visitor_is_told_of_a_wrong_setting_and_of_the_model_is_translated(tag):
    texts = texts_of(tag)
    told = []
    for refused in (
        lambda: check_prompt(""), lambda: check_prompt("a" * 9000), lambda: check_tokens(9999, 512),
        lambda: own_tree(Selection()), lambda: Plan("medusa1", PASTE).check(),
        lambda: Plan("medusa1", OWN, minutes=99).check(),
    ):  # fmt: skip
        with pytest.raises(MedusaError) as error:
            refused()
        told.append(as_sentence(str(error.value)))
    told.append("embedded model · 5 Medusa heads and 4 other drafters · 13.9 M parameters · cpu")
    told.append("forward in C, exact, 1 thread")
    too_long = "the prompt has 200 tokens, the context holds 96: shorten the prompt"
    told += [problem_of(MedusaError(too_long + fix)).status for fix in ("", LONGER)]
    assert [text for text in told if not is_said(text.removesuffix(" · cpu"), texts)] == []


def test_words_are_their_english_and_keep_their_parts():
    words = sentences(Words("{0} in {1}.", amount(2, "token"), amount(1, "step")), "", Words("Done."))
    assert words == "2 tokens in 1 step. Done."
    data = as_data(words)
    assert (data["english"], data["text"]) == (words, "{0} {1}")
    one = data["values"][0]["values"][1]
    assert one == {"english": "1 step", "text": "{0} steps", "values": [1]}
    assert as_data("plain") == "plain"
    assert joined(" · ", ["a", "b"]) == "a · b"


def test_words_reach_another_process():
    for words in (Words("{0} of {1}", 1, "x"), amount(1, "step"), amount(2, "guess", "guesses")):
        again = pickle.loads(pickle.dumps(words))
        assert (again, as_data(again)) == (words, as_data(words))


def test_a_table_cannot_end_its_script():
    assert "<" not in languages_script()
