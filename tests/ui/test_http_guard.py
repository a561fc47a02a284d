"""What a public page gives to requests that no button of it sends: no file, no other service, no stall."""

from __future__ import annotations

import inspect
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from gradio.route_utils import delete_files_created_by_app
from paths import ROOT

from app import launch_options
from medusa_core.config import LoadConfig
from ui.http_guard import (
    LONG,
    RUNS_OF_A_PAGE,
    UNQUEUED_OF_AN_ADDRESS,
    WAITING_EVENTS_OF_AN_ADDRESS,
    WAITING_RUNS,
    WAITING_RUNS_OF_AN_ADDRESS,
    Ask,
    address_of,
    refusal,
)
from ui.layout import build_page
from ui.policy import Reach, policy_of
from ui.session import Session

PATIENCE = 60  # seconds until a test gives up waiting
DONE = "the token budget is used up"
PUBLIC = policy_of({"SPACE_ID": "me/space"})


class Site:
    """A launched page and what its own browser code would know of it."""

    def __init__(self, page, session):
        self.page = page
        self.session = session
        self.url = page.local_url.rstrip("/")

    def event(self, name, component=None):
        """Number of the queued event with this function, fed by such a component."""
        return next(
            number
            for number, function in self.page.fns.items()
            if function.name == name
            and function.queue
            and (component is None or any(type(block).__name__ == component for block in function.inputs))
        )

    def values(self, number, **changes):
        """What the page sends for this event; ``changes`` by the components' labels."""
        blocks = self.page.fns[number].inputs
        values = [None if type(block).__name__ == "State" else block.value for block in blocks]
        labels = [getattr(block, "label", None) for block in blocks]
        for label, value in changes.items():
            values[labels.index(label)] = value
        return values

    def join(self, page, number, values, **headers):
        """Ask for an event; the page's code would do so after a click."""
        body = {"fn_index": number, "session_hash": page, "data": values}
        return httpx.post(f"{self.url}/gradio_api/queue/join", json=body, headers=headers, timeout=PATIENCE)

    @contextmanager
    def listen(self, page) -> Iterator[Iterator[dict]]:
        """The messages of one page's events; leaving this closes the page."""
        with httpx.stream(
            "GET", f"{self.url}/gradio_api/queue/data", params={"session_hash": page}, timeout=PATIENCE
        ) as stream:
            yield (json.loads(line[5:]) for line in stream.iter_lines() if line.startswith("data:"))

    def outcome(self, page, number, values):
        """All messages of one event, up to its last."""
        assert self.join(page, number, values).status_code == 200
        seen = []
        with self.listen(page) as messages:
            for message in messages:
                seen.append(message)
                if message["msg"] == "process_completed":
                    return seen
        raise AssertionError(f"the event did not end: {seen[-1]}")

    def idle(self):
        """Wait until no event is being done and none waits."""
        wait_until(lambda: not len(self.page._queue) and not any(self.page._queue.active_jobs))


@contextmanager
def launched(folder, policy) -> Iterator[Site]:
    """A page as `app.py` would serve it."""
    session = Session(LoadConfig(str(folder), dtype="float32", device="cpu"), policy=policy)
    page = build_page(session)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    options = launch_options(page, policy, Reach("127.0.0.1", share=False, hosted=True))
    page.launch(**options, quiet=True, prevent_thread_lock=True)
    yield Site(page, session)
    page.close(verbose=False)


@pytest.fixture(scope="module")
def site(engine_folder):
    with launched(engine_folder, PUBLIC) as found:
        yield found


@pytest.fixture
def run(site):
    """Number of the Decode tab's run."""
    site.idle()
    return site.event("work", "Textbox")


@contextmanager
def engine_taken(site):
    """The engine is busy with somebody's run until this is left."""
    begun, over = threading.Event(), threading.Event()

    def hold(engine):
        begun.set()
        yield over.wait(PATIENCE)

    seen = []
    thread = threading.Thread(target=lambda: seen.extend(site.session.on_engine(hold)))
    thread.start()
    assert begun.wait(PATIENCE), seen
    try:
        yield
    finally:
        over.set()
        thread.join()


def file_at(path):
    """What the page sends for a file after its upload."""
    return {"path": path, "orig_name": "tree.json", "meta": {"_type": "gradio.FileData"}}


def wait_until(condition):
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def words_of(messages):
    """Every string of what the server said."""
    return json.dumps(messages, ensure_ascii=False)


# ---- files and services ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/proc/self/environ",
        str(ROOT / "README.md"),
        str(ROOT / "app.py"),
        str(ROOT / "assets" / "prompts.json"),
        str(ROOT / "assets" / "model" / "config.json"),
        "app.py",
        "assets/model/config.json",
        "../../../../../../etc/passwd",
        "%2e%2e/%2e%2e/etc/passwd",
    ],
)
def test_no_file_of_the_server_can_be_fetched(site, engine_folder, path):
    for prefix in ("/gradio_api/file=", "/file=", "/gradio_api/file/", "/static/", "/assets/", "/svelte/"):
        answer = httpx.get(f"{site.url}{prefix}{path}")
        assert answer.status_code in (403, 404), f"{prefix}{path}: {answer.status_code}"
    weights = httpx.get(f"{site.url}/gradio_api/file={engine_folder}/model.safetensors")
    assert weights.status_code == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/gradio_api/file=http://127.0.0.1/"),
        ("GET", "/gradio_api/file=https://example.com/a.png"),
        ("GET", "/gradio_api/file=HTTPS://example.com/a.png"),
        ("GET", "/gradio_api/proxy=https://example.hf.space/x"),
        ("GET", "/gradio_api/deep_link?session_hash=x"),
        ("GET", "/gradio_api/openapi.json"),
        ("GET", "/openapi.json"),
        ("GET", "/docs"),
        ("GET", "/gradio_api/vibe-code"),
        ("GET", "/gradio_api/mcp/schema"),
        ("GET", "/monitoring"),
        ("GET", "/monitoring/summary"),
        ("POST", "/gradio_api/process_recording"),
        ("POST", "/gradio_api/component_server"),
        ("POST", "/gradio_api/call/work"),
        ("POST", "/gradio_api/api/work"),
    ],
)
def test_services_that_the_page_does_not_use_are_closed(site, method, path):
    assert httpx.request(method, site.url + path).status_code in (403, 404)


def test_the_page_offers_no_interface_for_programs(site):
    info = httpx.get(f"{site.url}/gradio_api/info").json()
    assert info["named_endpoints"] == {}
    assert info["unnamed_endpoints"] == {}


def test_an_upload_is_bounded_and_its_path_is_not_another_file(site, tmp_path):
    url = f"{site.url}/gradio_api/upload"
    assert httpx.post(url, files={"files": ("big.json", b"1" * 700_000)}).status_code == 413
    many = [("files", (f"{number}.json", b"1" * 300_000)) for number in range(6)]
    assert httpx.post(url, files=many).status_code == 413
    outside = tmp_path / "tree.json"
    outside.write_text("[[0], [1]]", encoding="utf-8")
    load = site.event("_load", "UploadButton")
    for path in (str(outside), "/etc/passwd", str(ROOT / "assets" / "prompts.json")):
        seen = site.outcome("thief", load, [file_at(path), None])
        assert not seen[-1]["success"]
        assert "Loaded" not in words_of(seen)
    [path] = httpx.post(url, files={"files": ("tree.json", b"[[0], [1]]")}).json()
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
        seen = site.outcome("thief", train, values)
    assert not seen[-1]["success"]
    assert "root:" not in words_of(seen)


# ---- values that no control would send -------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"New tokens at most": 10**9},
        {"New tokens at most": -1},
        {"New tokens at most": "many"},
        {"New tokens at most": None},
        {"Temperature": 10**9},
        {"Temperature": [0.1]},
        {"Tree": "/etc/passwd"},
        {"Tree": ["default", "default"]},
        {"Tree": {"path": "/etc/passwd"}},
        {"Heads": "0123456789abcdef0123456789abcdef"},
        {"Heads": "yours"},
        {"Acceptance rule": "__import__('os')"},
        {"Seed": 10**30},
        {"Seed": "x"},
        {"Node budget": 10**9},
        {"Prompt": "a" * 400_000},
        {"Prompt": ["a"] * 100_000},
        {"Prompt": ""},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_values_out_of_range_are_refused_and_the_server_goes_on(site, run, changes):
    good = {"Prompt": "abc", "New tokens at most": 8}
    seen = site.outcome("odd", run, site.values(run, **(good | changes)))
    assert DONE not in words_of(seen)
    # gradio's own checks fail the event, the page's say what is wrong.
    assert not seen[-1]["success"] or any(message["msg"] == "log" for message in seen)
    assert DONE in words_of(site.outcome("good", run, site.values(run, **good)))


def test_a_run_with_too_few_values_or_of_no_event_is_an_error(site, run):
    seen = site.outcome("short", run, ["abc"])
    assert not seen[-1]["success"]
    assert site.join("none", 10**6, []).status_code >= 400
    assert site.join("none", "work", []).status_code >= 400
    assert httpx.post(f"{site.url}/gradio_api/queue/join", content=b"{").status_code == 422


def test_a_run_cannot_pass_the_queue_by(site, run):
    body = {"fn_index": run, "session_hash": "direct", "data": site.values(run, Prompt="abc")}
    assert httpx.post(f"{site.url}/gradio_api/run/work", json=body).status_code == 404


def test_a_large_request_is_refused_before_it_is_read(site, run):
    answer = site.join("large", run, site.values(run, Prompt="a" * 10_000_000))
    assert answer.status_code == 413
    assert answer.json()["detail"] == "The request is larger than 1 MB: shorten the text or the file."
    chunks = (b" " * 100_000 for _ in range(100))  # no length beforehand
    answer = httpx.post(f"{site.url}/gradio_api/queue/join", content=chunks)
    assert answer.status_code == 413
    chunks = (b" " * 100_000 for _ in range(100))
    answer = httpx.post(f"{site.url}/gradio_api/run/x", content=chunks, headers={"content-type": "text/json"})
    assert answer.status_code in (400, 413)


# ---- one visitor among others ----------------------------------------------------------------------------


def test_one_page_has_two_runs_at_most(site, run):
    values = site.values(run, Prompt="abc")
    with engine_taken(site):
        answers = [site.join("greedy", run, values) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200] * RUNS_OF_A_PAGE + [429] * 3
        assert answers[-1].json()["detail"] == "You already have 2 runs: wait for one to end, or stop it."
        # gradio reads "12" as 12, and so must the count
        assert site.join("greedy", str(run), values).status_code == 429
        assert site.join("other", run, values).status_code == 200
    site.idle()
    assert site.join("greedy", run, values).status_code == 200


def test_requests_that_come_together_are_counted_too(site, run):
    values, answers = site.values(run, Prompt="abc"), []
    with engine_taken(site):
        threads = [
            threading.Thread(target=lambda: answers.append(site.join("burst", run, values).status_code))
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(answers) == [200] * RUNS_OF_A_PAGE + [429] * 10


def test_one_address_leaves_half_of_the_places_to_others(site, run):
    values = site.values(run, Prompt="abc", **{"New tokens at most": 2})
    with engine_taken(site):
        assert site.join("first", run, values).status_code == 200
        wait_until(lambda: not len(site.page._queue))  # it waits for the engine inside its run
        mine = [site.join(f"mine{i}", run, values, **{"x-forwarded-for": "1.1.1.1"}) for i in range(12)]
        assert [answer.status_code for answer in mine] == [200] * WAITING_RUNS_OF_AN_ADDRESS + [429] * 2
        assert "10 runs from your address are waiting" in mine[-1].json()["detail"]
        theirs = [site.join(f"theirs{i}", run, values, **{"x-forwarded-for": "9.9.9.9"}) for i in range(10)]
        assert [answer.status_code for answer in theirs] == [200] * 10
        full = site.join("late", run, values, **{"x-forwarded-for": "8.8.8.8"})
        assert full.json()["detail"].startswith("20 runs are waiting, and there is room for no more")
        # Small things still go: a page that opens now shows what it has.
        functions = site.page.fns.items()
        badge = next(number for number, one in functions if one.fn and one.queue and not one.inputs)
        assert site.join("late", badge, []).status_code == 200
    site.idle()


def test_one_address_does_not_take_every_thread(site):
    """What is done at once waits for nobody, so its number at a time is bounded."""
    number = next(number for number, one in site.page.fns.items() if one.fn and not one.queue)
    begun, over = threading.Semaphore(0), threading.Event()
    function = site.page.fns[number]
    usual, answers = function.fn, []

    def slow(*values):
        begun.release()
        over.wait(PATIENCE)
        return usual(*values)

    def ask(name, address="1.1.1.1"):
        body = {"fn_index": number, "session_hash": name, "data": site.values(number)}
        headers = {"x-forwarded-for": address}
        url = f"{site.url}/gradio_api/run/predict"
        answers.append(httpx.post(url, json=body, headers=headers, timeout=PATIENCE).status_code)

    function.fn = slow
    threads = [threading.Thread(target=ask, args=(f"p{i}",)) for i in range(UNQUEUED_OF_AN_ADDRESS)]
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            assert begun.acquire(timeout=PATIENCE)
        ask("one more")
        other = threading.Thread(target=ask, args=("else", "9.9.9.9"))
        other.start()
        assert begun.acquire(timeout=PATIENCE)
    finally:
        over.set()
        for thread in threads:
            thread.join()
        function.fn = usual
    other.join()
    assert answers.pop(0) == 429
    assert answers == [200] * (UNQUEUED_OF_AN_ADDRESS + 1)


def test_a_closed_page_ends_its_run(site, run):
    values = site.values(run, Prompt="abc", **{"New tokens at most": 80})
    assert site.join("leaving", run, values).status_code == 200
    with site.listen("leaving") as messages:
        assert any(message["msg"] == "process_generating" for message in messages)
        assert site.session.busy
    begun = time.monotonic()
    site.idle()
    assert time.monotonic() - begun < 80 * 0.025  # the whole run would take this long at least


def test_refusals_follow_from_who_is_there():
    def asks(count, run=True, waiting=True, **names):
        return [
            Ask(names.get("page", f"p{i}"), names.get("address", f"a{i}"), run, waiting) for i in range(count)
        ]

    me = Ask("me", "home", run=True)
    assert refusal(me, []) is None
    assert refusal(me, asks(1, page="me", waiting=False)) is None
    assert "2 runs" in refusal(me, asks(1, page="me", waiting=False) + asks(1, page="me"))
    assert refusal(me, asks(WAITING_RUNS - 1)) is None
    assert "20 runs are waiting" in refusal(me, asks(WAITING_RUNS))
    assert refusal(me, asks(WAITING_RUNS_OF_AN_ADDRESS - 1, address="home")) is None
    assert "your address" in refusal(me, asks(WAITING_RUNS_OF_AN_ADDRESS, address="home"))
    # Small things stand in no run's way, nor runs in theirs.
    assert refusal(me, asks(150, run=False, address="home")) is None
    small = Ask("me", "home", run=False)
    assert refusal(small, asks(WAITING_RUNS, page="me", address="home")) is None
    assert refusal(small, asks(WAITING_EVENTS_OF_AN_ADDRESS, run=False, address="home")) is not None


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("192.168.1.9", "", "192.168.1.9"),
        ("10.0.0.1", "8.8.8.8", "8.8.8.8"),
        ("10.0.0.1", "1.2.3.4, 8.8.8.8, 10.1.1.1", "8.8.8.8"),  # the first is the visitor's invention
        ("127.0.0.1", "10.0.0.5", "127.0.0.1"),
        ("8.8.4.4", "1.2.3.4", "8.8.4.4"),  # asked directly: nobody has forwarded anything
        ("", "nonsense, ", ""),
    ],
)
def test_an_address_cannot_be_invented(peer, forwarded, address):
    assert address_of(peer, forwarded) == address


def test_whatever_streams_is_counted(site):
    """A run that joined no queue of its own would escape the limits."""
    streams = [function for function in site.page.fns.values() if inspect.isgeneratorfunction(function.fn)]
    assert len(streams) >= 3
    assert all(function.queue and function.concurrency_id in LONG for function in streams)
