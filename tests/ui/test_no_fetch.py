"""No request makes the server ask another one: every door through which gradio fetches is closed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from gradio.utils import get_upload_folder
from recording_server import recording_server
from served import PUBLIC, file_at, launched, terminal, words_of

META = {"_type": "gradio.FileData"}


@pytest.fixture(scope="module")
def elsewhere():
    with recording_server() as found:
        yield found


@pytest.fixture(scope="module", params=["public_page", "private_page"], ids=["public", "private"])
def site(request):
    page = request.getfixturevalue(request.param)
    page.forget_visitors()
    return page


@pytest.fixture(autouse=True)
def reachable_through_gradio(monkeypatch):
    """gradio refuses addresses of this machine; a test would not see it fetch without this."""
    import gradio.processing_utils as processing
    import safehttpx

    async def anywhere(host):
        return "127.0.0.1"

    monkeypatch.setattr(safehttpx, "async_validate_url", anywhere)
    monkeypatch.setattr(processing, "PUBLIC_HOSTNAME_WHITELIST", ["127.0.0.1"])


def shapes(url):
    """Values that hold a file elsewhere, as the different components of gradio send files."""
    file = {"path": url, "url": url, "meta": META}
    own = str(Path(get_upload_folder()) / "x")
    return [
        file,
        {"path": url, "meta": META},
        {"path": url},  # without meta, as older versions sent it
        {"path": url, "url": None, "orig_name": "a.json", "meta": META | {"more": 1}},
        {"path": own, "url": url, "meta": META},
        {"url": url, "meta": META},
        {"url": url},
        [file],
        [[{"a": [file]}]],
        {"text": "", "files": [file]},  # value of a multimodal text box
        [{"image": file, "caption": None}],  # value of a gallery
        {"video": file, "subtitles": None},
        {"background": file, "layers": [], "composite": None},
        {"value": file},
        {"path": url, "meta": META, "is_stream": True},
        {"path": url.replace("http", "HTTP"), "meta": META},
        {"path": f" {url}", "meta": META},
        {"path": f"file://{own}", "meta": META},
        {"path": url, "meta": []},
        {"path": f"/gradio_api/file={url}", "meta": META},
        {"path": f"/proxy={url}", "meta": META},
    ]


@pytest.mark.sample(4)
@pytest.mark.parametrize("number", range(len(shapes("http://x"))))
def test_a_file_elsewhere_is_refused_in_every_input(site, elsewhere, number):
    url, asked = elsewhere
    shape = shapes(f"{url}/{number}")[number]
    queued = [site.event("work", "Textbox"), site.event("_load", "UploadButton")]
    if not site.session.policy.public:  # where one may choose any model, the browser remembers the last ones
        queued.append(site.event("follow", "BrowserState"))
    with terminal() as seen:
        for event in queued:
            blocks = site.page.fns[event].inputs
            for place in [i for i, block in enumerate(blocks) if not block.stateful]:
                values = site.values(event)
                values[place] = shape
                answer = site.join("thief", event, values)
                assert answer.status_code == 400, (blocks[place], answer.text)
                assert answer.json()["detail"].endswith(("try again.", "upload it first."))
    assert asked == []
    assert "Traceback" not in seen.getvalue()


def test_a_file_elsewhere_is_refused_at_once_and_beside_the_values(site, elsewhere):
    url, asked = elsewhere
    event, function = next((n, f) for n, f in site.page.fns.items() if f.fn and not f.queue and f.inputs)
    body = {"fn_index": event, "session_hash": "thief", "data": [None] * len(function.inputs)}
    for shape in shapes(url):
        for forged in (body | {"data": [shape]}, body | {"event_data": shape}, body | {"trigger_id": shape}):
            answer = site.client.post(f"{site.url}/gradio_api/run/predict", json=forged)
            assert answer.status_code == 400
    assert asked == []


FETCHING = [
    "/gradio_api/file={}", "/gradio_api/file/{}", "/gradio_api/proxy={}", "/gradio_api//file={}",
    "/file={}", "/proxy={}", "/gradio_api/file=%20{}", "/gradio_api/stream/{}", "//gradio_api/file={}",
    "/x/../gradio_api/file={}",
]  # fmt: skip


@pytest.mark.parametrize("lower", [True, False])
def test_no_service_fetches(site, elsewhere, lower, subtests):
    for path in FETCHING:
        with subtests.test(path=path):
            url, asked = elsewhere
            url = url if lower else url.replace("http", "HtTp")
            for method in ("GET", "HEAD"):
                answer = site.client.request(method, site.url + path.format(url))
                assert answer.status_code in (403, 404), answer.status_code
            assert asked == []


def test_a_page_below_a_path_of_a_proxy_fetches_nothing_either(elsewhere, engine_folder, monkeypatch):
    """The prefix is not part of the name of a service, whoever sends it."""
    url, asked = elsewhere
    monkeypatch.setenv("GRADIO_ROOT_PATH", "/medusa")
    with launched(engine_folder, PUBLIC) as site:
        for door in ("file=", "file/", "proxy=", "deep_link?session_hash="):
            for prefix in ("/medusa", ""):
                assert site.client.get(f"{site.url}{prefix}/gradio_api/{door}{url}").status_code in (403, 404)
        assert site.client.get(f"{site.url}/medusa/config").status_code == 200
        assert site.client.get(f"{site.url}/config").status_code == 200
        # As gradio does: a path that only begins with the same letters is not below the prefix.
        assert site.client.get(f"{site.url}/medusaconfig").status_code == 404
    assert asked == []


def test_links_to_a_saved_state_are_closed(site):
    assert site.client.get(f"{site.url}/?deep_link=x").status_code == 404
    assert site.client.get(f"{site.url}/config?deep_link=../../x").status_code == 404
    assert site.client.get(f"{site.url}/config?deep_link").status_code == 404
    assert site.client.get(f"{site.url}/?__theme=dark").status_code == 200


OTHER_WAYS = ["call/work", "call/v2/work", "api/predict", "component_server", "stream/x", "mcp/", "vibe-edit"]


def test_services_that_take_values_by_another_way_are_closed(site, elsewhere, subtests):
    for name in OTHER_WAYS:
        with subtests.test(name=name):
            url, asked = elsewhere
            file = {"path": url, "meta": META}
            body = {"data": [file], "session_hash": "x", "component_id": 3, "fn_name": "preprocess"}
            body["fn_index"] = 27
            assert site.client.post(f"{site.url}/gradio_api/{name}", json=body).status_code == 404
            assert asked == []


def test_a_link_in_the_folder_of_uploads_is_no_upload(site, tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text("[[0], [1]]", encoding="utf-8")
    folder = Path(get_upload_folder()) / "test-of-a-link"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "tree.json"
    link.symlink_to(secret)
    try:
        load = site.event("_load", "UploadButton")
        for path in (str(link), f"{folder}/../../secret.json", str(folder), f"{link}\0", "x" * 5000):
            assert site.join("thief", load, [file_at(path), None]).status_code == 400
    finally:
        link.unlink()
        os.rmdir(folder)


@pytest.mark.sample
@pytest.mark.parametrize("form", ["plain", "as the browser sends it", "below a proxy"])
def test_an_upload_goes_on_working(site, form):
    [path] = site.client.post(
        f"{site.url}/gradio_api/upload", files={"files": ("tree ü.json", b"[[0], [1]]")}
    ).json()
    file = file_at(path)
    if form != "plain":
        root = site.url if form.startswith("as") else "https://example.com/medusa"
        url = f"{root}/gradio_api/file={path}"
        file |= {"url": url, "size": 10, "mime_type": "application/json", "is_stream": False}
    load = site.event("_load", "UploadButton")
    seen = site.outcome("visitor", load, [file, None])
    assert "Loaded" in words_of(seen)
    assert json.dumps(seen).count("http") == 0
