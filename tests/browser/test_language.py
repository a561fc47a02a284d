"""The page in the browser's language: tabs, a run with its reasons, the tour, and the menu of languages."""

from __future__ import annotations

import re

import pytest
from places import says, turn_to

from ui.records.words import as_data, sentences

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(private_address, open_warm_page):
    page = open_warm_page(private_address, alone=True, locale="zh-CN")
    page.wait_for_selector(".mdv-node")
    return page


def test_a_chinese_browser_gets_a_chinese_page_and_the_menu_another_one(page):
    tabs = page.get_by_role("tab").all_inner_texts()
    assert tabs == ["观看", "学习", "对比", "测量", "实验室"]
    assert page.evaluate("document.documentElement.lang").startswith("zh")
    assert page.locator("#decode-prompt textarea").get_attribute("placeholder").startswith("写下文本的开头")
    assert page.locator("#decode-settings .setting-heads input").input_value() == "模型自带"
    # A run: its status is made on the server, its reasons in the browser.
    page.locator("#decode-run").click()
    page.wait_for_function("/总共 .* 秒/.test(document.querySelector('#decode-status').innerText)")
    assert re.search(r"\d+ 个 token，\d+ 步，平均每步", page.locator("#decode-status").inner_text())
    assert page.locator("[data-role=summary]").first.inner_text().startswith("已完成：◀")
    why = page.locator("#decode-view [data-role=why]")
    assert re.search("是根。它由基座模型|模型给它的概率 p = ", why.inner_text())
    page.locator("#decode-view .mdv-phase[data-phase=verify]").click()
    says(page, "#decode-view [data-role=phase]", "前向")
    # The tour has texts of its own; a click on its tab is enough for its keys.
    turn_to(page, "学习")
    page.wait_for_selector(".learn[lang=zh][data-card=passes]")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".learn[data-card=heads]")
    turn_to(page, "对比")
    turn_to(page, "并排对比")
    page.wait_for_selector(".race-view")
    assert page.locator("#race-run").inner_text() == "对比"
    shown = page.locator("#decode-view .mdv").get_attribute("data-step")
    # The menu: everything changes at once, and the run stays.
    page.select_option(".language-menu", "en")
    assert page.get_by_role("tab").all_inner_texts()[:3] == ["Watch", "Learn", "Compare"]
    assert page.evaluate("document.documentElement.lang") == "en"
    turn_to(page, "Watch")
    assert page.locator("#decode-view .mdv").get_attribute("data-step") == shown
    assert "forward" in page.locator("#decode-view [data-role=phase]").inner_text()
    assert re.search(r"tokens? in \d+ steps?, .* a step", page.locator("#decode-status").inner_text())
    assert page.locator("#decode-settings .setting-heads input").input_value() == "shipped with the model"
    assert page.evaluate("localStorage.getItem('medusa-language')") == "en"
    page.select_option(".language-menu", "")
    assert page.get_by_role("tab").all_inner_texts()[0] == "观看"
    assert page.evaluate("localStorage.getItem('medusa-language')") is None


@pytest.mark.parametrize(
    ("english", "said"),
    [
        ("MQA, 1 key-value head, pooled", "MQA, 1 个键值头, 取平均"),
        ("EAGLE-3 · /data/llama, base, 8 bit", "EAGLE-3 · /data/llama, base, 8 bit"),  # names of a visitor's
    ],
)
def test_a_list_is_translated_where_all_its_parts_are_known(page, english, said):
    assert page.evaluate("english => medusaLanguage.tell(english)", english) == said


def test_no_space_stands_between_chinese_sentences(page):
    two = as_data(sentences("Stopped.", "Stopped."))
    assert page.evaluate("two => medusaLanguage.tell(two)", two) == "已停止。已停止。"


def test_what_a_person_or_a_model_wrote_stays_as_it_is(page):
    box = page.locator("#decode-prompt textarea")
    box.fill("Decode")
    page.wait_for_selector("#decode-view h3:has-text('候选树')")  # drawn in the language that was chosen last
    page.wait_for_selector("#decode-view .mdv-prompt", state="attached")
    page.evaluate("document.querySelector('#decode-view .mdv-prompt').textContent = 'Learn'")
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('h6'), { textContent: 'Learn' }))"
    )
    page.wait_for_function("document.querySelector('h6').textContent === '学习'")  # the page's own is said
    assert box.input_value() == "Decode"
    assert page.locator("#decode-view .mdv-prompt").inner_text() == "Learn"
