"""The slider of new tokens on one's own page: far, dragged in round numbers, exact by box and keys."""

from __future__ import annotations

import pytest
from places import unfold

from medusa_core.config import GenerationConfig
from ui.components.controls import FIELDS
from ui.records.settings import LONGEST_RUN, MOST_TOKENS

pytestmark = pytest.mark.browser

SLIDER = "#decode-settings .setting-max_new_tokens"
DRAG = """([selector, value, held]) => {
  const range = document.querySelector(selector + " input[type=range]");
  if (held) range.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true }));
  else range.dispatchEvent(new KeyboardEvent("keydown", { bubbles: true, key: "ArrowRight" }));
  range.value = value;
  range.dispatchEvent(new Event("input", { bubbles: true }));
}"""


def test_it_goes_to_the_longest_run_in_sane_steps(open_page, private_address):
    page = open_page(private_address)
    box = page.locator(f"{SLIDER} input[type=number]")
    unfold(page)
    box.wait_for()
    most = min(LONGEST_RUN, FIELDS["max_new_tokens"].metadata["high"])
    assert page.locator(f"{SLIDER} input[type=range]").get_attribute("max") == str(most)
    assert most > MOST_TOKENS > GenerationConfig.max_new_tokens
    for value, held, shown in (
        (3217, True, "3200"),
        (3217, False, "3217"),
        (633, True, "650"),
        (7, True, "1"),
    ):
        page.evaluate(DRAG, [SLIDER, value, held])
        page.wait_for_function(f"document.querySelector('{SLIDER} input[type=number]').value === '{shown}'")
