"""The Share menu: files of what is on screen, texts that no shell and no Python takes for code, links."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import subprocess
import xml.etree.ElementTree as ET
from urllib.parse import parse_qsl

import pytest
from places import says
from view_trace import HOSTILE, TREE, make_trace

from medusa_core.cli.main import build_parser
from medusa_core.trace.format import RunTrace, parse_trace
from medusa_core.trace.replay.page import replay_html, write_replay
from ui.records.outside import read_link

pytestmark = pytest.mark.browser

TRACE = make_trace()
SLOT = r'(?<=id="trace">)(.*?)(?=</script>)'
SVG = "{http://www.w3.org/2000/svg}"
PROMPTS = [
    "plain", "two words", "it's", "$(touch x) `touch x` ${HOME} $HOME !!", "-", "--trace=/tmp/x", "-rf",
    "a\nb\r\tc", "'; touch x; '", '"""', "\\", "\\'", "$'x'", "\x1b[2J\x07\x7f", "\u202eabc\u2028\u200b",
    "🦉 ünï 中文", "*?[a-z]~#", "{a,b} <x >y &", "%s%n", "",
]  # fmt: skip
TEXTS = """([trace, prompts]) => prompts.map((prompt) => {
  const recipe = recipeOf(trace, prompt);
  return [asPython(recipe), asCommand(recipe)];
})"""


@pytest.fixture(scope="module")
def page(chromium, tmp_path_factory):
    """The replay file of a run with hostile texts, at its second step, with the menu open."""
    path = tmp_path_factory.mktemp("share") / "run.html"
    write_replay(RunTrace.model_validate(TRACE), path)
    page = chromium.new_page()
    page.goto(path.as_uri())
    page.click("[data-act=next]")
    page.wait_for_selector('.mdv[data-step="1"]')
    page.click(".mdv-shareopen")
    yield page
    page.close()


def saved(page, name: str) -> bytes:
    with page.expect_download() as download:
        page.click(f"[data-share={name}]")
    with open(download.value.path(), "rb") as file:
        return file.read()


def test_the_trace_comes_back_as_it_was(page):
    assert parse_trace(saved(page, "json"), "") == RunTrace.model_validate(TRACE)


def test_the_table_has_a_line_for_each_step_and_no_formula(page):
    rows = list(csv.DictReader(io.StringIO(saved(page, "csv").decode("utf-8"), newline="")))
    assert len(rows) == len(TRACE["steps"])
    for row, step in zip(rows, TRACE["steps"], strict=True):
        texts = [step["nodes"][i]["text"] for i in step["path"]]
        assert json.loads(row["emitted_text"]) == "".join(texts)
        assert row["emitted_text"][0] == '"'  # whatever the text begins with
        counts = (len(step["nodes"]), len(step["path"]) - 1, len(step["emitted"]))
        assert tuple(int(row[name]) for name in ("nodes", "accepted_guesses", "tokens")) == counts
        assert [int(row[name]) for name in ("step", "cache_length")] == [
            step["index"] + 1,
            step["cache_length"],
        ]
        assert [float(row[f"{phase}_ms"]) for phase in step["ms"]] == list(step["ms"].values())


def test_tree_and_mask_are_pictures_that_need_nothing_beside_themselves(page):
    words = {}
    for what in ("tree", "mask"):
        picture = ET.fromstring(saved(page, f"{what}-svg"))
        tags = {node.tag.removeprefix(SVG) for node in picture.iter()}
        assert tags <= {"svg", "g", "rect", "path", "text", "tspan", "title", "defs", "clipPath"}
        names = {name for node in picture.iter() for name in node.attrib}
        assert not {name for name in names if name.startswith("on") or "href" in name or name == "class"}
        words[what] = "".join(picture.itertext())
        assert "var(" not in ET.tostring(picture, "unicode")  # no rule of the page is asked for
    # Not clipped by the box on the screen: the tree has its nodes, the mask a cell for each pair.
    assert HOSTILE[0][:7] in words["tree"]
    assert "prefix" in words["mask"]
    mask = ET.fromstring(saved(page, "mask-svg"))
    nodes = len(TREE) + 1
    assert sum(path.get("d").count("M") for path in mask.iter(f"{SVG}path")) >= nodes * nodes
    for what in ("tree", "mask"):
        png = saved(page, f"{what}-png")
        assert png.startswith(b"\x89PNG")
        assert int.from_bytes(png[16:20]) > 400  # its width


def test_every_prompt_comes_out_of_the_shell_and_of_python_as_it_went_in(page, tmp_path):
    texts = page.evaluate(TEXTS, [TRACE, PROMPTS])
    for prompt, (python, command) in zip(PROMPTS, texts, strict=True):
        program = ast.parse(python)
        values = [node.value for node in program.body if isinstance(node, ast.Assign)]
        assert ast.literal_eval(values[1]) == prompt
        script = f"python() {{ printf '%s\\0' \"$@\"; }}\n{command}"
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, check=True)
        words = done.stdout.decode().split("\0")[:-1]
        assert words[:3] == ["-m", "medusa_core", "generate"]
        given = build_parser().parse_args(words[2:])
        if prompt == "-":
            assert given.prompt_ids == "1,2,3"
        else:
            assert given.prompt == prompt
        assert (given.epsilon, given.delta, given.temperature, given.max_new_tokens) == (0.09, 0.3, 0.7, 99)
        assert json.loads((tmp_path / given.tree).read_text()) == TREE
    assert [file.name for file in tmp_path.iterdir()] == ["medusa-tree.json"]  # nothing else was run


def test_a_dynamic_tree_is_made_again_and_its_link_has_its_nodes(page):
    config = TRACE["config"] | {
        "tree": None,
        "drafter": {"name": "medusa", "settings": {"tree": "dynamic-24"}},
    }
    [[python, command]] = page.evaluate(TEXTS, [TRACE | {"config": config}, ["hello"]])
    assert 'tree="dynamic-24"' in python
    assert "--tree=dynamic-24" in command
    made = {"prompt": "hello", "method": "medusa", "copies": False, "tree": "dynamic", "budget": 24}
    parts = page.evaluate("(made) => linkParts({ run: 'mine', index: 0, made }, { method: 'medusa' })", made)
    carried = read_link(json.dumps({name: str(value) for name, value in parts.items()}), ())
    assert made.items() <= carried.settings.items()


def test_a_reply_of_a_chat_is_made_again_with_its_prompt_and_its_stop_string(page, tmp_path):
    trace = json.loads(json.dumps(TRACE))
    spelled = page.evaluate("(trace) => textOf(trace)", trace)
    trace["output"] |= {"finish_reason": "stop", "text": spelled[:-3]}
    [[python, command]] = page.evaluate(TEXTS, [trace, ["hello"]])
    program = ast.parse(python)
    words = {word.arg: word.value for node in ast.walk(program) for word in getattr(node, "keywords", [])}
    assert ast.literal_eval(words["stop"]) == spelled[-3:]
    script = f"python() {{ printf '%s\\0' \"$@\"; }}\n{command}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, check=True)
    assert build_parser().parse_args(done.stdout.decode().split("\0")[2:-1]).stop == [spelled[-3:]]
    made = {"method": "medusa", "mode": "chat"}
    parts = page.evaluate(
        "([made, trace]) => linkParts({ run: 'mine', index: 0, made, trace }, { method: 'medusa' })",
        [made, trace],
    )
    assert parts == {"prompt": trace["prompt"]["text"]}
    limits = page.evaluate("(trace) => linkLimits({ run: 'mine', note: '', index: 0, trace })", trace)
    assert limits.endswith("It does not carry the stop string that ended the run.")


def test_names_and_values_of_a_forged_trace_stay_words(page, tmp_path):
    forged = json.loads(json.dumps(TRACE))
    forged["model"] |= {"base": "x; touch y", "heads": "$(touch y)"}
    settings = {"a b; touch y": 1, "tree": "../x"}
    forged["config"]["drafter"] = {"name": "ngram'; touch y; '", "settings": settings}
    forged["config"]["acceptance"]["settings"] = {"__import__('os')": True, "root": "`touch y`"}
    [[python, command]] = page.evaluate(TEXTS, [forged, ["hello"]])
    ast.parse(python)
    assert "__import__" not in python + command
    script = f"python() {{ printf '%s\\0' \"$@\"; }}\n{command}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, check=True)
    assert b"--method=ngram'; touch y; '" in done.stdout.split(b"\0")
    assert b"--heads=$(touch y)" in done.stdout.split(b"\0")
    assert not (tmp_path / "y").exists()


def test_a_run_of_the_page_is_saved_opened_again_and_restored_by_a_link(private_address, open_page):
    page = open_page(private_address)
    page.wait_for_selector("#decode-view .mdv-node")
    page.evaluate("location.hash = '#run=tree=%2Fetc%2Fpasswd'")
    says(page, "#decode-status", "Nothing was taken")
    page.click("[data-act=next]")
    page.click(".mdv-shareopen")
    trace = parse_trace(saved(page, "json"), "")
    before, data, after = re.split(SLOT, saved(page, "html").decode())
    assert parse_trace(data, "") == trace
    assert "<" not in data
    assert [before, after] == re.split(SLOT, replay_html(trace))[::2]
    page.click("[data-share=link]")
    page.wait_for_function("document.querySelector('.mdv-copied').value.includes('#run=')")
    link = page.locator(".mdv-copied").input_value()
    assert "recorded=" in link
    assert len(link) < 120
    says(page, ".mdv-sharesaid", "does not carry what you tried out")

    def open_file(text: bytes, words: str) -> None:
        with page.expect_file_chooser() as chooser:
            page.click("[data-share=open]")
        chooser.value.set_files({"name": "t.json", "mimeType": "application/json", "buffer": text})
        page.wait_for_selector(f"text={words}")

    open_file(b'{"log": {}}', "the file is not a trace: schema_version")
    open_file(b" " * 6_000_001, "a trace may have 6.0")
    assert page.locator("#decode-view .is-note").inner_text() == "recorded run"
    open_file(trace.model_dump_json().encode(), f"uploaded trace, {len(trace.steps)} steps")
    box = page.locator("#decode-prompt textarea")
    prompt = box.input_value()
    assert prompt == trace.prompt.text
    assert not page.locator("#decode-status .text-line-words").inner_text()  # the status of the former run

    page.evaluate("link => { location.href = link }", link)  # only the part behind "#" changes
    page.wait_for_selector("#decode-view .is-note:text-is('recorded run')")
    page.wait_for_selector("#decode-view .mdv[data-step='1']")  # the step that was shared
    box.fill("something else")
    page.evaluate("location.hash = '#run=prompt=a+fox&temperature=1.5'")
    page.wait_for_selector("text=are those of the link")
    assert box.input_value() == "a fox"
    page.evaluate("location.hash = '#run=tree=%2Fetc%2Fpasswd'")
    page.wait_for_selector("text=Nothing was taken from the link: no tree is called")
    assert page.locator("#decode-view .is-note").inner_text() == "recorded run"  # nothing was run


@pytest.mark.slow
def test_a_link_is_restored_when_the_page_opens(private_address, open_page):
    page = open_page(f"{private_address}#run=prompt=a+fox&temperature=1.5")
    page.wait_for_selector("text=are those of the link")
    assert page.locator("#decode-prompt textarea").input_value() == "a fox"
    assert page.locator(".setting-temperature input[type=number]").first.input_value() == "1.5"
    page.click("#decode-run")
    page.wait_for_function("/tokens in/.test(document.querySelector('#decode-status').innerText)")
    page.click(".mdv-shareopen")
    page.click("[data-share=link]")
    page.wait_for_function("document.querySelector('.mdv-copied').value.includes('#run=')")
    link = page.locator(".mdv-copied").input_value()
    parts = dict(parse_qsl(link.split("#run=")[1]))
    carried = read_link(json.dumps(parts), ())
    assert carried.settings["temperature"] == 1.5  # a live run's settings, too
    assert len(link) < 300
