"""Opens the page's parts, as `ui/tabs/layout.py` nests them, and waits for what a part says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from paths import ROOT


def _tabs(node: ast.AST, place: str | None = None) -> Iterator[tuple[str, str | None]]:
    """(tab, the tab around it) of each ``with gr.Tab(…)``, in order."""
    for child in ast.iter_child_nodes(node):
        name = place
        for item in child.items if isinstance(child, ast.With) else ():
            call = item.context_expr
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "gr.Tab":
                name = ast.literal_eval(call.args[0])
                yield name, place
        yield from _tabs(child, name)


PLACE_OF = dict(_tabs(ast.parse((ROOT / "ui" / "tabs" / "layout.py").read_text(encoding="utf-8"))))
PARTS = [name for name in PLACE_OF if name not in PLACE_OF.values()]  # tabs without inner tabs


SAYS = """([where, words]) => {
  const part = document.querySelector(where);
  return part?.checkVisibility() && part.innerText.includes(words);
}"""


def says(page: Any, where: str, words: str) -> None:
    """Wait until the first part at this selector is shown with these words in it."""
    page.wait_for_function(SAYS, arg=[where, words])


def drawn(page: Any) -> None:
    """Wait until a change is drawn: the next frame draws it, so the one after that comes later."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def turn_to(page: Any, part: str) -> None:
    """Open a part by its English name."""
    for name in (PLACE_OF.get(part), part):
        if name is not None:
            page.get_by_role("tab", name=name, exact=True).click()


def unfold(page: Any) -> None:
    """Show what Watch folds away: examples, recorded runs, the other settings, the view's tools."""
    page.locator("#decode-more input").check()


def set_tokens(page: Any, tokens: int) -> None:
    """Set the new tokens of Watch's next run."""
    unfold(page)
    field = page.locator("#decode-settings input[type=number][aria-label*='New tokens']").first
    field.fill(str(tokens))
    field.press("Tab")
