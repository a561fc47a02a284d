"""The Methods tab in a browser: one press measures every method, and draws and lists them."""

from __future__ import annotations

import pytest

from medusa_core.drafters import method_names

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}
NAMES = "#methods-plot .js-plotly-plot .textpoint text"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def test_one_press_measures_all_methods_and_a_phone_shows_them(shipped_address, open_page):
    page = open_page(shipped_address)
    page.get_by_role("tab", name="Methods", exact=True).click()
    page.wait_for_selector("#methods-plot .js-plotly-plot")
    for name, value in (("tokens", "16"), ("rounds", "1")):
        field = page.locator(f"#methods-{name} input[type=number]")
        field.fill(value)
        field.press("Tab")
    page.locator("#methods-prompt textarea").fill("One <b>two</b> three. One <b>two</b>")
    page.click("#methods-run")
    page.wait_for_selector("#methods-status :has-text('Measured.')")
    page.wait_for_selector("#methods-words :has-text('Measured on embedded')")
    rows = page.locator("#methods-table tbody th").all_inner_texts()
    assert set(rows) == set(method_names())
    page.wait_for_selector(NAMES)
    # Where points lie close, the names of two drafters together are left to the pointer.
    named = set(page.locator(NAMES).all_text_contents())
    assert {name for name in method_names() if "+" not in name} <= named <= set(method_names())
    page.set_viewport_size(PHONE)
    assert page.evaluate(WIDER) <= 0
