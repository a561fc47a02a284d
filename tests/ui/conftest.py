"""What several tests of the page's server side start from."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from served import PRIVATE, PUBLIC, launched

from medusa_core.config import LoadConfig
from medusa_core.model.target import Target
from medusa_core.model.try_capture import capture_model
from ui.runs.session import Session
from ui.tabs.layout import build_page


@pytest.fixture(scope="module")
def each_step_by_itself():
    """A message a step, where a test counts them or a run of a few milliseconds is to be ended within."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ui.runs.decode.TOGETHER_SECONDS", 0)
        yield


@pytest.fixture(scope="module")
def load(engine_folder):
    """The tiny engine's folder, as the app's own model."""
    return LoadConfig(str(engine_folder), dtype="float32", device="cpu")


@pytest.fixture(scope="session")
def run_apart():
    """Call it with a coroutine: its result, from another thread, as browser tests leave a loop in ours."""
    with ThreadPoolExecutor(1) as thread:
        yield lambda coroutine: thread.submit(asyncio.run, coroutine).result()


@pytest.fixture
def captures():
    """The steps that the engine ``captured`` has captured so far."""
    return []


@pytest.fixture
def captured(engine, captures, monkeypatch):
    """The tiny engine with captured steps, which reads the cache in small buckets."""
    monkeypatch.setattr("medusa_core.model.captured_forward._SMALLEST_BUCKET", 16)

    def capture(work):
        captures.append(work)
        return work

    target = Target(engine.target.model)
    capture_model(target, capture)
    return replace(engine, target=target)


@pytest.fixture(scope="module")
def session(load, assets):
    """The page's session around it with prompts that fit it, for all tests of a module."""
    return Session(load, assets)


@pytest.fixture(scope="session")
def shipped_page():
    """The page as it is shipped, to be looked at: building it takes a second."""
    return build_page(Session(LoadConfig()))


@pytest.fixture(scope="module")
def assets(tmp_path_factory):
    """Example prompts that fit the tiny model's context."""
    folder = tmp_path_factory.mktemp("assets")
    prompts = [{"label": "one", "text": "abca"}, {"label": "two", "text": "fad"}]
    kinds = [{"kind": "Story", "prompts": prompts}]
    (folder / "prompts.json").write_text(json.dumps(kinds), "utf-8")
    return folder


@pytest.fixture(scope="session")
def public_page(engine_folder):
    with launched(engine_folder, PUBLIC) as found:
        yield found


@pytest.fixture(scope="session")
def private_page(engine_folder):
    with launched(engine_folder, PRIVATE) as found:
        yield found


@pytest.fixture(scope="module")
def site(request):
    """A served page, public unless a test is parametrised with others; files share each.

    Starting one takes over a second.
    """
    page = request.getfixturevalue(f"{getattr(request, 'param', 'public')}_page")
    page.forget_visitors()
    return page


@pytest.fixture
def run(site):
    """Number of Watch's run on an idle page."""
    site.idle()
    return site.event("work", "Textbox")
