"""What a public page gives to requests that no button of it sends: no file, no other service, no stall."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gradio.route_utils import delete_files_created_by_app
from paths import ROOT
from served import DONE, file_at, launched, words_of

from ui.serving import request_body
from ui.serving.admission import Rate
from ui.serving.http_guard import TOO_MANY_LARGE
from ui.serving.policy import policy_of
from ui.serving.request_body import read_json

# ---- files and services ----------------------------------------------------------------------------------


PREFIXES = ("/gradio_api/file=", "/file=", "/gradio_api/file/", "/static/", "/assets/", "/svelte/")
FILES = [
    "/etc/passwd",
    "/proc/self/environ",
    str(ROOT / "README.md"),
    str(ROOT / "assets" / "model" / "config.json"),
    "assets/model/config.json",
    "../../../../../../etc/passwd",
    "%2e%2e/%2e%2e/etc/passwd",
]


def test_no_file_of_the_server_can_be_fetched(site, engine_folder, subtests):
    for path in FILES:
        with subtests.test(path=path):
            for prefix in PREFIXES:
                answer = site.client.get(f"{site.url}{prefix}{path}")
                assert answer.status_code in (403, 404), f"{prefix}{path}: {answer.status_code}"
            weights = site.client.get(f"{site.url}/gradio_api/file={engine_folder}/model.safetensors")
            assert weights.status_code == 403


CLOSED = [
    ("GET", "/gradio_api/file=http://127.0.0.1/"),
    ("GET", "/gradio_api/file=HTTPS://example.com/a.png"),
    ("GET", "/gradio_api/proxy=https://example.hf.space/x"),
    ("GET", "/gradio_api/deep_link?session_hash=x"),
    ("GET", "/gradio_api/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/gradio_api/vibe-code"),
    ("GET", "/gradio_api/mcp/schema"),
    ("GET", "/monitoring"),
    ("POST", "/gradio_api/process_recording"),
    ("POST", "/gradio_api/component_server"),
    ("POST", "/gradio_api/call/work"),
    ("POST", "/gradio_api/api/work"),
]


def test_services_that_the_page_does_not_use_are_closed(site, subtests):
    for method, path in CLOSED:
        with subtests.test(method=method, path=path):
            assert site.client.request(method, site.url + path).status_code in (403, 404)


def test_an_upload_is_bounded_and_its_path_is_not_another_file(site, tmp_path):
    url = f"{site.url}/gradio_api/upload"
    assert site.client.post(url, files={"files": ("big.json", b"1" * 700_000)}).status_code == 413
    many = [("files", (f"{number}.json", b"1" * 300_000)) for number in range(6)]
    assert site.client.post(url, files=many).status_code == 413
    outside = tmp_path / "tree.json"
    outside.write_text("[[0], [1]]", encoding="utf-8")
    load = site.event("_load", "UploadButton")
    for path in (str(outside), "/etc/passwd", str(ROOT / "assets" / "prompts.json")):
        answer = site.join("thief", load, [file_at(path), None])
        assert answer.status_code == 400
        assert "was not uploaded to this page" in answer.json()["detail"]
    [path] = site.client.post(url, files={"files": ("tree.json", b"[[0], [1]]")}).json()
    assert "Loaded" in words_of(site.outcome("visitor", load, [file_at(path), None]))
    # What gradio does by itself every now and then: `build_page` asks for it.
    delete_files_created_by_app(site.page, age=0)
    assert not Path(path).exists()


def test_a_text_to_train_on_is_an_uploaded_file_or_none(engine_folder):
    """The Train tab, where the owner allows it in public."""
    with launched(engine_folder, policy_of({"SPACE_ID": "me/space", "MEDUSA_TRAINING": "1"})) as site:
        train = site.event("work", "File")
        blocks = site.page.fns[train].inputs
        values = site.values(train)
        values[next(i for i, block in enumerate(blocks) if type(block).__name__ == "File")] = file_at(
            "/etc/passwd"
        )
        answer = site.join("thief", train, values)
    assert answer.status_code == 400
    assert "was not uploaded to this page" in answer.json()["detail"]


# ---- values that no control would send -------------------------------------------------------------------


OUT_OF_RANGE = [
    {"New tokens at most": 10**9},
    {"New tokens at most": "many"},
    {"Temperature": 10**9},
    {"Temperature": [0.1]},
    {"Tree": "/etc/passwd"},
    {"Tree": ["default", "default"]},
    {"Tree": {"path": "/etc/passwd"}},
    {"Heads": "0123456789abcdef0123456789abcdef"},
    {"Acceptance rule": "__import__('os')"},
    {"Seed": 10**30},
    {"Node budget": 10**9},
    {"Seed": True},
    {"Prompt": ["a"] * 100_000},
    {"Prompt": 7},
]


def test_values_out_of_range_are_refused_and_the_server_goes_on(site, run, subtests):
    for changes in OUT_OF_RANGE:
        with subtests.test(changes=str(changes)[:40]):
            good = {"Prompt": "abc", "New tokens at most": 8}
            answer = site.join("odd", run, site.values(run, **(good | changes)))
            assert answer.status_code == 400
            words = answer.json()["detail"]
            assert (
                words.endswith(("reload the page and try again.", "upload it first."))
                or "choose a number" in words
            )
            assert DONE in words_of(site.outcome("good", run, site.values(run, **good)))


@pytest.mark.parametrize(
    ("prompt", "cause"),
    [
        ("a" * 400_000, "The prompt has 400000 characters"),
        ("", "The prompt is empty"),
        ("\ud800", "The prompt"),
    ],
    ids=["long", "empty", "no character"],
)
def test_a_prompt_that_cannot_be_run_is_answered_by_the_page(site, run, prompt, cause):
    good = {"Prompt": "abc", "New tokens at most": 8}
    seen = site.outcome("odd", run, site.values(run, **(good | {"Prompt": prompt})))
    assert DONE not in words_of(seen)
    assert cause in words_of(seen)
    assert DONE in words_of(site.outcome("good", run, site.values(run, **good)))


def test_a_run_with_too_few_values_or_a_body_of_another_kind_is_an_error(site, run):
    count = len(site.page.fns[run].inputs)
    assert f"takes {count} values" in site.join("short", run, ["abc"]).json()["detail"]
    assert site.client.post(f"{site.url}/gradio_api/queue/join", content=b"{}").status_code == 415


def test_a_run_cannot_pass_the_queue_by(site, run):
    body = {"fn_index": run, "session_hash": "direct", "data": site.values(run, Prompt="abc")}
    for name in ("work", "predict"):
        assert site.client.post(f"{site.url}/gradio_api/run/{name}", json=body).status_code == 404


def test_a_large_request_is_refused_before_it_is_read(site, run):
    answer = site.join("large", run, site.values(run, Prompt="a" * 10_000_000))
    assert answer.status_code == 413
    assert answer.json()["detail"] == "The request is larger than 8.00 MB: shorten the text or the file."
    answer = site.join("large", run, site.values(run, Prompt="a" * 1_000_000))  # only a trace may be so long
    assert answer.json()["detail"] == "The request is larger than 800 kB: shorten the text or the file."
    answer = site.client.post(f"{site.url}/gradio_api/cancel", json={"event_id": "x" * 10_000})
    assert answer.json()["detail"] == "The request is larger than 2.00 kB: shorten the text or the file."
    chunks = (b" " * 100_000 for _ in range(100))  # no length beforehand
    answer = site.client.post(f"{site.url}/gradio_api/queue/join", content=chunks)
    assert answer.status_code == 413
    chunks = (b" " * 100_000 for _ in range(100))
    answer = site.client.post(f"{site.url}/gradio_api/run/predict", content=chunks)
    assert answer.status_code == 413


def test_a_trace_may_be_large_and_an_address_sends_a_few_of_them(site, monkeypatch):
    monkeypatch.setattr(site.guard, "_large", Rate(2))
    opens = next(number for number, one in site.page.fns.items() if one.name == "open_trace")
    answers = [site.join("reader", opens, ["[" * 2_000_000, False]) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[-1].json()["detail"] == TOO_MANY_LARGE
    assert answers[-1].headers["retry-after"].isdecimal()
    with site.listen("reader") as messages:
        assert any("refused" in words_of([message]) for message in messages)


def test_many_small_parts_are_no_event(site, run):
    """They are what takes long to read: the same bytes in one text are taken."""
    headers = {"content-type": "application/json"}
    for body in (b'{"data":[' + b"1," * 300_000 + b"1]}", b'{"data":[' + b'"",' * 200_000 + b"1]}"):
        for encoded in (body, body.decode().encode("utf-16")):
            answer = site.client.post(f"{site.url}/gradio_api/queue/join", content=encoded, headers=headers)
            assert answer.status_code == 400
            assert "too many parts" in answer.json()["detail"]
    text = '\\"[1,1],\\\\' * 30_000 + "\\"
    assert site.join("writer", run, site.values(run, Prompt=text)).status_code == 200
    assert read_json(json.dumps({"data": [text]}).encode()) == {"data": [text]}


def test_one_visitor_does_not_have_the_page_written_again_and_again(site, monkeypatch):
    monkeypatch.setattr(site.guard, "_whole", Rate(3))
    addresses = ["1.1.1.1"] * 4 + ["2.2.2.2"]
    answers = [site.client.get(f"{site.url}/config", headers={"x-forwarded-for": one}) for one in addresses]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 200]


def test_the_refusal_of_a_whole_request_waits_for_no_more_of_it(site, run, monkeypatch):
    monkeypatch.setattr(request_body, "DRAIN_SECONDS", 3600.0)
    assert site.join("short", run, ["abc"]).status_code == 400  # or else the client gives up
