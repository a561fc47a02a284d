"""The replay file, read as a browser reads it: one script, known by its hash, and the trace as data."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re

import pytest
from view_trace import make_trace

from medusa_core import generate
from medusa_core.drafters import drafter_names
from medusa_core.errors import MedusaError
from medusa_core.trace.format import RunTrace
from medusa_core.trace.packed import unpacked
from medusa_core.trace.replay.colours import drafter_palette
from medusa_core.trace.replay.page import replay_frame, replay_html, script_json
from medusa_core.trace.replay.view import WEB, vendored, web_script

HOSTILE = [
    "</script><script>alert(1)</script>", "<!--<script>", "]]>", "\u2028\u2029", "\x00\x1b", "@SCRIPT@",
    "$&$1", "&lt;/script&gt;", "\\u003c", "\r\n", "🦉", '"><img src=x onerror=alert(1)>', "\u202e",
]  # fmt: skip
LOADS = ("src", "href", "action", "data", "formaction", "poster", "background", "srcset", "ping")


class Reader(html.parser.HTMLParser):
    """Elements with their attributes, and the text of those that hold no markup."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.closed = True
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.texts.append("")
        self.closed = False

    def handle_endtag(self, tag):
        self.closed = True

    def handle_data(self, data):
        if not self.closed:
            self.texts[-1] += data

    def named(self, tag):
        """(attributes, text) of each element of this name."""
        pairs = zip(self.elements, self.texts, strict=True)
        return [(attributes, text) for (name, attributes), text in pairs if name == tag]


@pytest.fixture(scope="module")
def trace() -> RunTrace:
    """A run whose texts try to be markup, code or placeholders."""
    made = make_trace(4)
    for step in made["steps"]:
        for node in step["nodes"]:
            node["text"] = HOSTILE[node["id"] % len(HOSTILE)]
    made["prompt"]["text"] = "".join(HOSTILE)
    made["model"]["name"] = HOSTILE[0]
    return RunTrace.model_validate(made)


@pytest.fixture(scope="module")
def document(trace) -> Reader:
    return Reader(replay_html(trace))


def test_the_file_holds_the_trace_as_data_and_one_script(document, trace):
    data, script = document.named("script")
    assert data[0] == {"type": "application/json", "id": "trace"}
    assert unpacked(json.loads(data[1])) == trace.model_dump(mode="json")
    assert script[0] == {}
    assert "mountDecodeView" in script[1]
    assert HOSTILE[0] not in script[1]
    assert not re.search(r"</script|<!--", script[1], re.IGNORECASE)


def test_the_policy_allows_that_script_alone_and_no_request(document):
    meta = dict(attributes.values() for attributes, _ in document.named("meta") if len(attributes) == 2)
    rules = dict(part.strip().split(" ", 1) for part in meta["Content-Security-Policy"].split(";"))
    _, script = document.named("script")
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'"
    assert {word for rule in rules.values() for word in rule.split()} <= {
        "'none'", "'unsafe-inline'", "data:", "blob:", f"'sha256-{digest}'"
    }  # fmt: skip
    assert "script" not in rules["style-src"]


def test_the_file_asks_nothing_of_anybody(document):
    assert {name for _, attributes in document.elements for name in attributes}.isdisjoint(LOADS)
    _, (_, script) = document.named("script")
    calls = r"\b(?:fetch|XMLHttpRequest|WebSocket|importScripts|sendBeacon|eval)\s*\("
    assert re.findall(calls, script) == []
    styles = "".join(text for _, text in document.named("style"))
    addresses = re.findall(r"https?://[^\s\"'`]+", script + styles)
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}  # the name of a language, not a place


def test_a_policy_stands_before_anything_that_could_run(document):
    tags = [tag for tag, _ in document.elements]
    place = next(i for i, (_, attributes) in enumerate(document.elements) if "http-equiv" in attributes)
    assert place < min(tags.index(tag) for tag in ("style", "script", "title"))


@pytest.mark.parametrize("text", [*HOSTILE, "\ud800 half", "\udfff"])
def test_json_for_a_script_element_comes_back_and_never_ends_it(text):
    written = script_json({"text": text})
    assert json.loads(written) == {"text": text}
    assert not re.search("[<>&\u2028\u2029\ud800-\udfff\x00-\x1f]", written)


def test_a_frame_in_a_notebook_is_sandboxed_and_holds_the_whole_file(trace):
    frame = Reader(replay_frame(trace))
    assert [tag for tag, _ in frame.elements] == ["iframe"]
    attributes = frame.elements[0][1]
    assert set(attributes["sandbox"].split()) == {"allow-scripts", "allow-downloads"}  # no allow-same-origin
    assert attributes["srcdoc"] == replay_html(trace)


def test_a_result_with_a_trace_shows_and_saves_itself(engine, tmp_path):
    result = generate(engine, [1, 2, 3], trace=True, max_new_tokens=6)
    assert "srcdoc" in result._repr_html_()
    result.save_replay(tmp_path / "run.html")
    written = Reader((tmp_path / "run.html").read_bytes().decode())
    assert json.loads(written.named("script")[0][1])["output"]["token_ids"] == result.token_ids
    with pytest.raises(MedusaError, match=r"cannot write the replay .*name another file"):
        result.save_replay(tmp_path)


def test_a_result_without_a_trace_says_how_to_get_one(engine, tmp_path):
    result = generate(engine, [1, 2, 3], max_new_tokens=6)
    assert result._repr_html_() is None  # the notebook then shows the record
    with pytest.raises(MedusaError, match="trace=True"):
        result.save_replay(tmp_path / "run.html")


def test_every_drafter_has_a_colour_of_its_own():
    drafting = [name for name in drafter_names() if name != "none"]
    for dark in (False, True):
        assert len({drafter_palette(name, dark).accepted for name in drafting}) == len(drafting)


# --- Scripts by others in the bundle: with their licence, under their name, and said where they come from.


def test_a_module_becomes_an_object_and_brings_its_licence():
    script = vendored("gifenc")
    assert "Permission is hereby granted, free of charge" in script
    assert script.startswith("/* gifenc")
    assert "GIFEncoder:" in script
    assert "quantize:" in script
    for module_word in ("export{", "export ", "import ", "sourceMappingURL", "</script", "<!--"):
        assert module_word not in script
    assert web_script().count(script) == 1


def test_every_folder_is_in_the_table_with_its_licence():
    table = (WEB / "vendor" / "README.md").read_text("utf-8")
    for folder in (path for path in (WEB / "vendor").iterdir() if path.is_dir()):
        assert f"| `{folder.name}/` |" in table
        assert (folder / "LICENSE.md").is_file()
