"""The Hardware tab in a browser: charts follow the sliders, bad settings are said, a measurement streams."""

from __future__ import annotations

import pytest
from places import turn_to

pytestmark = pytest.mark.browser

SAYS = "([id, words]) => document.querySelector(id).innerText.includes(words)"


@pytest.fixture(scope="module")
def page(private_address, open_warm_page):
    page = open_warm_page(private_address)
    turn_to(page, "Hardware")
    page.wait_for_selector("#hardware-roofline .main-svg")
    return page


def set_number(page, where: str, value: int) -> None:
    field = page.locator(f"{where} input[type=number]")
    field.fill(str(value))
    field.press("Tab")


def says(page, where: str, words: str) -> None:
    page.wait_for_function(SAYS, arg=[where, words])


def test_the_roofline_follows_the_sliders(page):
    says(page, "#hardware-words", "7.11 ms")
    assert page.locator("#hardware-table table").first.locator("tbody tr").count() == 10
    set_number(page, "#hardware-batch", 64)
    says(page, "#hardware-table", "arithmetic")


def test_the_gain_ends_above_batch_32(page):
    page.get_by_role("tab", name="Gain").click()
    page.wait_for_selector("#gain-1 .main-svg")
    says(page, "#gain-words", "Best where")
    set_number(page, "#gain-batch", 64)
    says(page, "#gain-words", "No number of candidates is faster")


@pytest.mark.slow
def test_heads_that_cannot_be_shared_get_a_sentence(page):
    page.get_by_role("tab", name="Memory wall").click()
    page.wait_for_selector("#memory-sharing .main-svg")
    set_number(page, "#memory-kv-heads", 8)
    says(page, "#memory-words", "GQA: 131 kB a token")
    set_number(page, "#memory-kv-heads", 5)
    says(page, "#memory-words", "do not divide 32 query heads evenly: use one of 1, 2, 4, 8")


def test_a_text_is_timed_with_and_without_a_cache(page):
    page.get_by_role("tab", name="Measured here").click()
    page.wait_for_selector("#live-growth .main-svg")
    page.locator("#live-what input[value=cache]").check()
    set_number(page, "#live-tokens", 16)
    page.locator("#live-run").click()
    says(page, "#live-status", "Both chose the same token 16 of 16 times.")
    page.wait_for_selector("#live-growth .scatterlayer .trace")
