"""All tabs show one record of speed, stored or measured on this machine, and name it alike."""

from __future__ import annotations

import re

import pytest
from places import says, turn_to

from medusa_core.config import LoadConfig
from ui.runs.session import Session
from ui.runs.speed import Effort
from ui.serving import kept
from ui.tabs import speed as tab

pytestmark = pytest.mark.browser

RECORDED, MEASURED = "Recorded, not measured here: embedded", "Measured on this machine, today at"


@pytest.fixture
def quick(monkeypatch, own_cache, slow_machine):
    """A measurement of few tokens may be kept, in a folder of its own."""
    monkeypatch.setattr(kept, "is_busy", lambda _: False)  # other tests run beside it
    monkeypatch.setitem(tab.EFFORTS, "quick", Effort(2, 8, 1, 1e9))


def figures_of(
    page, source: str, tables: tuple[str, ...] = ("Methods", "Speed")
) -> dict[str, tuple[str, str, str, str]]:
    """By tab the ms of a plain step and of Medusa's, the speedup where it is said, and the source's name."""
    found = {}
    if source == RECORDED:  # a measurement of a smaller tree says nothing of that of its recorded run
        turn_to(page, "Watch")
        found["Watch"] = stated(page, "#decode-view [data-role=worth]", source)
    for name in tables:
        turn_to(page, name)
        where = {"Methods": "#methods-words", "Speed": "#speed-where"}[name]
        says(page, where, source)
        if name == "Methods" and not page.locator("#methods-table tbody tr").count():
            page.click("#methods-figures button")
            page.wait_for_selector("#methods-table tbody tr")
        cells = {row[0]: row for row in table(page, f"#{name.lower()}-table")}
        columns = page.locator(f"#{name.lower()}-table thead th").all_inner_texts()
        at, gain = columns.index("ms a step"), columns.index("speedup")
        faster = cells["Medusa heads"][gain].split(" ")[0]
        found[name] = (
            cells["Plain decoding"][at],
            cells["Medusa heads"][at],
            faster,
            named(page.inner_text(where)),
        )
    turn_to(page, "Side by side")
    found["Side by side"] = stated(page, "#race-headline", source)
    return found


def stated(page, selector: str, source: str) -> tuple[str, str, str, str]:
    """What a sentence says: the ms of a plain step and of Medusa's, the speedup, the source's name."""
    says(page, selector, source)
    words = page.inner_text(selector)
    said = r"(?:is|are) ([\d.]+) times .* ([\d.]+) ms where a plain one takes ([\d.]+)\. "
    speedup, own, plain = re.search(said, words).groups()
    return plain, own, speedup, named(words)


def table(page, selector: str) -> list[list[str]]:
    return [row.split("\t") for row in page.locator(f"{selector} tbody tr").all_inner_texts()]


def named(words: str) -> str:
    return re.search(rf"({RECORDED}|{MEASURED})(.*?) (?=A model of)", words)[0]


def learn_says(page, source: str) -> tuple[str, str]:
    """The plain step's ms and the run's speedup on the card that tells of speed."""
    turn_to(page, "Learn")
    page.locator(".learn-yours .learn-plain").first.click()  # the run that Watch shows
    page.locator(".learn-dots button").nth(8).click()
    says(page, ".learn[data-card=speed] [data-role=source]", source)
    words = page.inner_text(".learn-card")
    answer = page.locator(".learn-card button", has_text=" times").first
    if answer.is_enabled():  # it stays answered
        answer.click()
    says(page, ".learn-card", "÷")
    division = re.search(r"[\d.]+ ÷ [\d.]+ = (\d+\.\d+)", page.inner_text(".learn-card"))
    return re.search(r"([\d.]+) ms with one token", words)[1], division[1]


def watch_says(page) -> str:
    """The speedup of the recorded run's own text."""
    turn_to(page, "Watch")
    words = page.inner_text("#decode-view [data-role=worth]")
    return re.search(
        r"This text alone: [\d.]+ tokens a step ÷ overhead [\d.]+, with \d+ nodes, ≈ (\d+\.\d+) times", words
    )[1]


def measure(page) -> None:
    turn_to(page, "Speed")
    page.click("#speed-run")
    says(page, "#speed-status", "Measured.")
    page.wait_for_selector("#figures-bar", state="visible")


def test_tabs_agree_before_and_after_a_measurement_which_a_new_page_has_too(
    quick, monkeypatch, serve_session, open_page
):
    monkeypatch.setenv("MEDUSA_MEASURE", "1")
    page = open_page(serve_session(Session(LoadConfig(dtype="float32", device="cpu"))))
    before = figures_of(page, RECORDED)
    assert len(set(before.values())) == 1, before
    learned = learn_says(page, RECORDED)
    assert learned == (before["Speed"][0], watch_says(page))
    assert not page.locator("#figures-bar").is_visible()

    measure(page)
    after = figures_of(page, MEASURED, ("Speed",))
    assert len(set(after.values())) == 1, after
    assert after["Speed"] != before["Speed"]
    # Speed has measured neither all drafters nor trees of several sizes, of which these three tell.
    turn_to(page, "Methods")
    says(page, "#methods-words", RECORDED)
    assert learn_says(page, RECORDED) == learned
    turn_to(page, "Trees")
    says(page, "#trees-source", RECORDED)

    open_page.reload(page)  # reads what was kept, as a page of a later start does: test_stored_figures.py
    page.wait_for_selector("#figures-bar", state="visible")
    assert figures_of(page, MEASURED, ("Speed",)) == after
    page.click("#figures-back")
    page.wait_for_selector("#figures-bar", state="hidden")
    del before["Methods"]  # drawn with Speed, from one record
    assert figures_of(page, RECORDED, ("Speed",)) == before
