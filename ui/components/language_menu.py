"""The menu of languages in the page's header: it changes what the browser shows, without the server."""

from __future__ import annotations

from typing import Any

from medusa_core.trace.replay.page import languages_script
from medusa_core.trace.replay.view import read_web
from ui.components.scripted_view import ScriptedView


def language_head() -> str:
    """The languages, for the page's head: they are there before any part of the page is drawn."""
    scripts = [read_web("language.js"), read_web("page_language.js"), languages_script(), "dressPage();"]
    return f"<script>(() => {{\n{''.join(scripts)}\n}})();</script>"


class LanguageMenu(ScriptedView):
    """The browser's language, or one of those that there are; the browser remembers the choice."""

    def __init__(self, **kwargs: Any):
        script = "".join(map(read_web, ("language.js", "dom.js", "language_menu.js")))
        super().__init__(None, host="language-host", script=script, **kwargs)
