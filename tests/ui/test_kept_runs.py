"""What the page keeps: finished runs by bytes, what a conversation has read, and files for a while."""

from __future__ import annotations

import gc
import json
import random
import re
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import Mock

import gradio as gr
import httpx
import pytest
from launching import launch
from trace_factory import make_trace

from medusa_core.config import GenerationConfig
from medusa_core.engine.chat import Conversation
from medusa_core.errors import MedusaError
from medusa_core.model.target import Target
from medusa_core.trace.packed import Tables, packed_step
from medusa_core.trace.run_record import RunRecord
from ui.serving.engines import ConversationCache
from ui.serving.kept import KeptRuns, RunSlot


def record(seed=0, tokens=400):
    """A finished run of about the same packed size whatever the seed."""
    draw = random.Random(seed)
    made = make_trace([f"word{draw.random()}" for _ in range(tokens)], seed=seed)
    tables = Tables()
    found = RunRecord({name: made[name] for name in ("model", "config", "prompt")}, tables)
    found.steps.add([packed_step(step, tables) for step in made["steps"]])
    found.output = made["output"]
    return found


def is_of(trace, run):
    return trace["output"] == run.output and trace["steps"] == run.trace(after=False)["steps"]


def test_a_page_has_its_newest_run_and_no_older_one():
    runs, slot = KeptRuns(), RunSlot()
    assert runs.trace(slot) is None
    runs.keep(slot, record(1))
    size = runs.size
    for seed in range(2, 6):
        runs.keep(slot, record(seed))
    assert is_of(runs.trace(slot), record(5))
    assert size * 0.9 < runs.size < size * 1.1
    runs.drop(slot)
    assert runs.size == 0
    assert runs.trace(slot) is None


def test_all_pages_stay_within_the_bytes_and_the_one_used_longest_ago_is_told():
    records = [record(seed) for seed in range(8)]
    most = 5 * records[0].size
    runs = KeptRuns(most)
    slots = [RunSlot() for _ in records]
    for slot, run in zip(slots, records, strict=True):
        runs.keep(slot, run)
        assert is_of(runs.trace(slots[0]), records[0])  # used again and again
        assert runs.size <= most
    assert runs.size > most / 2
    assert is_of(runs.trace(slots[-1]), records[-1])
    with pytest.raises(MedusaError, match="gave the memory of this run to others"):
        runs.trace(slots[1])


def test_a_run_larger_than_all_memory_is_not_kept():
    runs, slot = KeptRuns(most_bytes=1000), RunSlot()
    runs.keep(slot, record())
    assert runs.size == 0
    with pytest.raises(MedusaError, match="Run it again"):
        runs.trace(slot)


def test_a_page_that_goes_takes_its_run_along():
    runs, slots = KeptRuns(), [RunSlot() for _ in range(5)]
    for number, slot in enumerate(slots):
        runs.keep(slot, record(number), f"key of page {number}")
    del slots[1:], slot
    gc.collect()
    assert runs.size < 2 * record().size
    assert is_of(runs.trace(slots[0]), record())
    assert runs.window("key of page 0", 0)
    with pytest.raises(MedusaError, match="no longer has the details"):
        runs.window("key of page 1", 0)


def test_a_run_that_grows_is_brought_within_the_bytes():
    first, growing = record(1), record(2)
    runs, slots = KeptRuns(first.size + growing.size + 1000), [RunSlot(), RunSlot()]
    runs.keep(slots[0], first)
    runs.keep(slots[1], growing, "the second page")
    assert all(runs.trace(slot) for slot in slots)
    assert runs.trace(slots[0])  # used last, but the other one is being made
    growing.steps.add([{"p": [random.random() for _ in range(1000)]}])
    runs.grown(slots[1])
    with pytest.raises(MedusaError, match="gave the memory"):
        runs.trace(slots[0])
    assert runs.window("the second page", 0)


def test_a_new_run_of_a_page_takes_the_key_of_the_one_before_away():
    runs, slot = KeptRuns(), RunSlot()
    runs.keep(slot, record(1), "the first run")
    runs.drop(slot)
    for key in ("the first run", "of nobody"):
        with pytest.raises(MedusaError, match="run it again"):
            runs.window(key, 0)
    runs.keep(slot, record(2), "the second run")
    with pytest.raises(MedusaError, match="no such steps"):
        runs.window("the second run", 99)
    assert json.loads(b"".join(runs.texts("the second run")))["output"] == record(2).output


# --- What a conversation has read is kept for its next turn, within a number and a size.


def test_the_cache_keeps_the_last_used_of_each_model(model):
    one, two = (SimpleNamespace(target=Target(model)) for _ in range(2))
    cache = ConversationCache(most=2)
    first, second = cache.get(one, "a"), cache.get(one, "b")
    assert cache.get(two, "a") is not first
    assert cache.get(one, "a") is first
    cache.get(one, "c")
    assert cache.get(one, "a") is first
    assert cache.get(one, "b") is not second


def test_the_cache_drops_what_takes_too_much_memory(engine):
    cache = ConversationCache(most_bytes=1)
    first = cache.get(engine, "a")
    assert list(Conversation(engine, "", (), first).reply("abc", GenerationConfig.of(max_new_tokens=12)))
    assert cache.get(engine, "a") is first  # the one in use stays
    cache.get(engine, "b")
    assert cache.get(engine, "a") is not first


def test_the_drafters_own_cache_counts_as_well(engine, monkeypatch):
    cache = ConversationCache(most_bytes=2**30)
    first = cache.get(engine, "a")
    assert list(Conversation(engine, "", (), first).reply("abc", GenerationConfig.of(max_new_tokens=12)))
    cache.get(engine, "b")
    assert cache.get(engine, "a") is first
    monkeypatch.setattr(first, "drafter", Mock(cache_bytes=2**31))
    cache.get(engine, "b")
    assert cache.get(engine, "a") is not first


# --- Files made for a visitor lie in a folder that nobody can guess, and are gone after a while.


@pytest.mark.slow
def test_a_file_can_be_fetched_and_is_gone_when_it_is_old(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))

    def pack():
        with TemporaryDirectory() as folder:
            file = Path(folder) / "a.zip"
            file.write_bytes(b"x")
            yield str(file)

    with gr.Blocks(delete_cache=(2, 2)) as page:
        button, packed = gr.Button(), gr.DownloadButton()
        button.click(pack, None, packed, api_name="pack")
    url = launch(page) + "gradio_api"
    try:
        event = httpx.post(f"{url}/call/pack", json={"data": []}).json()["event_id"]
        said = httpx.get(f"{url}/call/pack/{event}").text
        made = Path(re.search(r'"path": "([^"]+)"', said)[1])
        assert httpx.get(f"{url}/file={made}").content == b"x"
        assert made.is_relative_to(tmp_path)
        assert len(made.parent.name) >= 32  # too long to be guessed
        deadline = time.monotonic() + 20
        while made.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not [file for file in tmp_path.rglob("*") if file.is_file()]
    finally:
        page.close(verbose=False)
