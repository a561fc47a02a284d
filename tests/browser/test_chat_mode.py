"""The chat mode of Watch in a browser, with a tiny model that says what looks like code; old views."""

from __future__ import annotations

import pytest
from hostile import HOSTILE
from places import says, set_tokens
from served import wait_until

pytestmark = pytest.mark.browser


@pytest.fixture
def chat(warm_page, session):
    """The chat of one page for all these tests, with a conversation that begins."""
    page = turn_to_chat(warm_page)
    # An answer to a click that changes nothing to be seen would come at any time, and put a reply away.
    if not page.locator(".talk-empty").is_visible():
        page.locator("#chat-new").dispatch_event("click")
        page.wait_for_selector(".talk-empty", state="visible")
    wait_until(lambda: not session.busy)
    page.locator("#chat-message textarea").fill("")
    set_tokens(page, 24)
    return page


def turn_to_chat(page):
    page.wait_for_selector("#decode-view .mdv", state="attached")
    page.get_by_label("Chat", exact=True).click()
    page.wait_for_selector("#chat-message textarea", state="visible")
    return page


def write(page, text):
    page.locator("#chat-message textarea").fill(text)
    page.locator("#chat-message textarea").press("Enter")


def replies(page, count):
    """Wait for so many finished replies; the lines with their figures."""
    page.wait_for_function("count => document.querySelectorAll('.talk-figures').length === count", arg=count)
    return page.locator(".talk-figures").all_inner_texts()


def words(page):
    return page.locator(".talk-words").all_text_contents()


def wait_for_step(page):
    says(page, "#chat-status", "Step ")
    page.wait_for_function("document.querySelector('.talk-words.is-live')?.textContent")


def test_messages_make_replies_that_are_text_and_steps_in_the_view_or_get_a_hint_and_stay(chat):
    page = chat
    write(page, "a fox <b>went</b> home")
    first = replies(page, 1)
    assert page.locator("#chat-message textarea").input_value() == ""
    write(page, "and {{then}}?")
    second = replies(page, 2)
    assert "0 of 4 prompt tokens reused" in first[0]
    reused, _, read = second[1].split(" · ")[2].split()[:3]
    assert 4 <= int(reused) < int(read)  # this tokenizer does not find its own words again
    assert page.locator(".talk-name").all_inner_texts() == ["You", "Model", "You", "Model"]
    said = words(page)
    assert (said[0], said[2]) == ("a fox <b>went</b> home", "and {{then}}?")
    assert any(piece in said[1] + said[3] for piece in HOSTILE)
    assert page.locator(".talk-drafted").count() > 0
    assert page.locator("#chat-transcript :is(script, img, b:not(.talk-name))").count() == 0
    assert page.title() != "broken"
    # The view has the second reply, and the charts follow it.
    page.locator("#charts button").first.click()
    page.wait_for_selector("#decode-view .mdv:not(.is-empty)")
    steps = int(second[1].split(" tokens in ")[1].split()[0])
    says(page, "#decode-view", f"of {steps}:")
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length >= 4")
    page.locator("#charts button").first.click()  # or they would be drawn again after each reply below
    write(page, "  ")
    says(page, "#chat-status", "The message is empty")
    too_much = "a " * 3000
    write(page, too_much)
    says(page, "#chat-status", "the context holds 2048")
    box = "document.querySelector('#chat-message textarea').value"
    page.wait_for_function(f"(text) => {box} === text", arg=too_much)
    assert len(words(page)) == 4
    write(page, "go on")
    replies(page, 3)


@pytest.mark.slow
def test_the_mode_can_be_changed_without_losing_prompt_or_conversation(chat):
    page = chat
    page.get_by_role("button", name="Booking: a table", exact=True).last.click()
    page.wait_for_function("document.querySelector('#chat-message textarea').value === 'a table please'")
    page.click("#chat-run")
    replies(page, 1)
    page.locator("#chat-message textarea").fill("not sent yet")
    before = words(page)
    page.get_by_label("Complete a text").click()
    page.wait_for_selector("#chat-message", state="hidden")
    page.locator("#decode-prompt textarea").fill("my own words")
    page.click("#decode-run")
    says(page, "#decode-status", "24 tokens in")
    page.get_by_label("Chat", exact=True).click()
    page.wait_for_selector("#decode-prompt", state="hidden")
    assert words(page) == before
    assert page.locator("#chat-message textarea").input_value() == "not sent yet"
    page.get_by_label("Complete a text").click()
    assert page.locator("#decode-prompt textarea").input_value() == "my own words"


@pytest.mark.slow
@pytest.mark.usefixtures("unhurried")
def test_what_is_typed_while_a_reply_is_made_is_not_lost(chat):
    box = chat.locator("#chat-message textarea")
    set_tokens(chat, 100)
    write(chat, "a fox")
    wait_for_step(chat)
    box.press_sequentially("line one", delay=20)
    box.press("Shift+Enter")
    box.press_sequentially("line two", delay=20)
    replies(chat, 1)
    assert box.input_value() == "line one\nline two"
    assert len(words(chat)) == 2  # Shift+Enter sends nothing


@pytest.mark.usefixtures("unhurried")
def test_a_second_message_waits_in_its_box_until_the_reply_is_there(chat):
    box, send = chat.locator("#chat-message textarea"), chat.locator("#chat-run")
    set_tokens(chat, 2000)  # the reply goes on until it is stopped, however busy the machine is
    write(chat, "a fox")
    chat.wait_for_function("document.querySelector('#chat-message textarea').value === ''")
    write(chat, "and a dog")  # before the first reply has begun, or while it grows
    assert send.get_attribute("aria-disabled") == "true"
    wait_for_step(chat)
    send.dispatch_event("click")
    box.press("Enter")
    chat.locator("#chat-stop").dispatch_event("click")
    replies(chat, 1)
    assert box.input_value() == "and a dog"
    chat.wait_for_selector("#chat-run:not([aria-disabled])")
    set_tokens(chat, 4)
    box.press("Enter")
    replies(chat, 2)
    assert words(chat)[::2] == ["a fox", "and a dog"]


@pytest.mark.usefixtures("unhurried")
def test_a_new_conversation_ends_the_reply_and_forgets(chat, session):
    set_tokens(chat, 2000)
    write(chat, "a fox")
    wait_for_step(chat)
    chat.locator("#chat-new").dispatch_event("click")
    chat.locator("#decode-view").get_by_text("finished: cancelled").wait_for()  # the run's last message
    wait_until(lambda: not session.busy)
    chat.wait_for_selector(".talk-empty", state="visible")
    assert words(chat) == []
    set_tokens(chat, 8)
    write(chat, "a black dog")
    assert "of 3 prompt tokens" in replies(chat, 1)[0]
    assert words(chat)[0] == "a black dog"


def former(page) -> str:
    return page.locator("#decode-view .mdv-former").inner_text()


@pytest.mark.slow
def test_a_view_of_the_other_mode_or_of_a_conversation_put_away_is_marked(chat):
    page = chat
    page.get_by_label("Complete a text").click()
    page.locator("#decode-prompt textarea").fill("a fox")
    page.click("#decode-run")
    says(page, "#decode-status", "tokens/s")
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
    page.locator("#charts button").first.click()
    for part in ("#decode-view .mdv-grid", "#charts .js-plotly-plot"):
        assert page.locator(part).first.evaluate("(part) => getComputedStyle(part).filter") == "grayscale(1)"
    page.locator("#charts button").first.click()
