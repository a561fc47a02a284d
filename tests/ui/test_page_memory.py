"""What a page costs the server: nothing more with each run, and a known amount after the longest one."""

from __future__ import annotations

import gc
import json
import sys
from collections import Counter
from weakref import ref

import pytest

from ui.records.settings import BY_BUDGET, MOST_TOKENS
from ui.serving.kept import GONE
from ui.serving.page import MOST_EVENTS_NOTED

pytestmark = pytest.mark.parametrize("site", ["private"], indirect=True)

MOST_OF_A_PAGE = 1_500_000  # bytes that gradio keeps for a page, and those of its newest run, packed
LONGEST = {"Temperature": 2.0, "New tokens at most": MOST_TOKENS, "Tree": BY_BUDGET, "Node budget": 40}


def charts_of(site, run):
    """The event that draws the charts of a run."""
    return next(
        number
        for number, function in site.page.fns.items()
        if function.trigger_after == run and function.queue
    )


def press_run(site, page, run, **changes):
    """A run as the browser has it done, its charts included; returns the messages of both."""
    site.idle()
    messages = site.outcome(page, run, site.values(run, Prompt="abc", **changes))
    charts = charts_of(site, run)
    return messages, site.outcome(page, charts, site.values(charts))


def size_of(things, seen=None):
    """Bytes of plain data, each counted once."""
    seen = set() if seen is None else seen
    if id(things) in seen:
        return 0
    seen.add(id(things))
    size = sys.getsizeof(things)
    if isinstance(things, dict):
        return size + sum(size_of(part, seen) for pair in things.items() for part in pair)
    if isinstance(things, (list, tuple, set)):
        return size + sum(size_of(part, seen) for part in things)
    return size


def test_a_page_that_stays_open_does_not_grow_with_its_runs(site, run):
    for _ in range(3):
        press_run(site, "open", run)
    state = site.page.app.state_holder.session_data["open"]
    before = size_of([state.config_values, len(state.blocks_config.blocks)])
    blocks = set(state.blocks_config.blocks)
    gc.collect()
    parts = Counter(type(thing).__name__ for thing in gc.get_objects())
    for _ in range(5):
        press_run(site, "open", run)
    assert set(state.blocks_config.blocks) == blocks == set(site.page.default_config.blocks)
    assert set(state.config_values) <= blocks
    assert size_of([state.config_values, len(blocks)]) < before + 20_000
    gc.collect()
    more = Counter(type(thing).__name__ for thing in gc.get_objects()) - parts
    assert not {"DecodeView", "TextLine", "Textbox"} & set(more)
    assert len(site.page._queue.event_analytics) <= MOST_EVENTS_NOTED


def test_the_longest_run_leaves_little_behind(site, run):
    press_run(site, "long", run)
    holder = site.page.app.state_holder.session_data
    shared = size_of(holder["open"].config_values) if "open" in holder else 0
    kept = site.session.kept_runs.size
    messages, _ = press_run(site, "long", run, **LONGEST)
    sent = sum(len(json.dumps(message)) for message in messages)
    assert sent > 50_000  # it was a long one
    assert size_of(holder["long"].config_values) < shared + MOST_OF_A_PAGE / 2
    assert 0 < site.session.kept_runs.size - kept < MOST_OF_A_PAGE / 2
    assert len(words_shown(holder["long"])) < 1000  # and not the whole run


def words_shown(state):
    """What gradio holds as the value of the linked view."""
    return next(
        config["props"]["value"]
        for config in state.config_values.values()
        if config["props"].get("elem_id") == "decode-view"
    )


def test_a_visitor_whose_run_was_dropped_for_others_is_told(site, run, monkeypatch):
    monkeypatch.setattr(site.session.kept_runs, "_most", 100)
    _, charts = press_run(site, "poor", run)
    logs = [message["log"] for message in charts if message["msg"] == "log"]
    assert logs == [GONE]
    assert charts[-1]["success"]
    assert site.session.kept_runs.size <= 100


def test_a_run_that_failed_leaves_no_charts_of_the_one_before(site, run):
    press_run(site, "failing", run)
    site.idle()
    site.outcome("failing", run, site.values(run, Prompt="   "))
    charts = charts_of(site, run)
    answer = site.outcome("failing", charts, site.values(charts))
    assert not [message for message in answer if message["msg"] == "log"]
    assert '"plot"' not in json.dumps(answer)


def test_a_page_that_is_put_away_takes_its_run_along(site, run):
    press_run(site, "leaving", run)
    kept = site.session.kept_runs.size
    state = ref(site.page.app.state_holder.session_data.pop("leaving"))
    gc.collect()
    assert state() is None
    assert site.session.kept_runs.size < kept
