"""What no longer belongs to what stands beside it is marked."""

from __future__ import annotations

import pytest
from places import says, turn_to, unfold

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def page(private_address, open_page):
    page = open_page(private_address)
    page.wait_for_selector("#decode-settings .setting-method input")
    unfold(page)
    return page


def former(page) -> str:
    return page.locator("#decode-view .mdv-former").inner_text()


def run(page, prompt: str = "abcabcabc") -> None:
    page.locator("#decode-prompt textarea").fill(prompt)
    page.click("#decode-run")
    says(page, "#decode-status", "tokens/s")


def test_a_view_of_the_other_mode_or_of_a_conversation_put_away_is_marked(page):
    run(page)
    assert former(page) == ""
    page.get_by_label("Chat", exact=True).click()
    page.wait_for_selector("#decode-view .mdv.is-former")
    assert "not of this conversation" in former(page)
    page.get_by_label("Complete a text").click()
    page.wait_for_selector("#decode-view .mdv:not(.is-former)")
    page.get_by_label("Chat", exact=True).click()
    page.locator("#chat-message textarea").fill("abc")
    page.locator("#chat-message textarea").press("Enter")
    page.wait_for_selector(".talk-figures")
    page.wait_for_selector("#decode-view .mdv:not(.is-former)")
    page.get_by_label("Complete a text").click()
    page.wait_for_selector("#decode-view .mdv.is-former")
    assert "the chat’s last reply" in former(page)
    page.get_by_label("Chat", exact=True).click()
    page.wait_for_selector("#decode-view .mdv:not(.is-former)")
    page.locator("#chat-new").click()
    page.wait_for_selector("#decode-view .mdv.is-former")
    assert "the previous conversation" in former(page)
    page.get_by_role("button", name="Charts of the run").click()
    for part in ("#decode-view .mdv-grid", "#charts .js-plotly-plot"):
        assert page.locator(part).first.evaluate("(part) => getComputedStyle(part).filter") == "grayscale(1)"


def test_a_recorded_run_takes_the_figures_of_a_run_before_away(page):
    run(page)
    page.locator("#recorded input").click()
    page.get_by_role("listbox").get_by_role("option").first.click()
    page.wait_for_selector("#decode-view .mdv-badges :text('recorded run')")
    page.wait_for_function("() => !document.querySelector('#decode-status p').textContent")


def test_a_refused_comparison_says_why_and_can_be_started_again(page):
    turn_to(page, "Side by side")
    page.locator("#race-prompt textarea").fill("abcabc")
    page.click("#race-run")
    page.wait_for_selector(".race-result")
    page.locator("#race-second button").first.click()
    page.locator("#race-second .setting-second-temperature :is(input, textarea)").fill("warm")
    page.click("#race-run")
    says(page, ".race-status", "Temperature of the second lane")
    # The lanes wait for the prompt beside them, which is another text than this tokenizer read.
    says(page, ".race-stage", "About to start")
