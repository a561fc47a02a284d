"""The scripts and styles of the linked view, as the page and the replay file hold them."""

from __future__ import annotations

import json

from medusa_core.files import project_folder
from medusa_core.replay.colours import css_variables
from medusa_core.replay.methods import drafter_colours, methods_script

WEB = project_folder() / "assets" / "web"
SCRIPTS = (
    "language", "dom", "text", "unpack", "overview", "judge", "heat", "settings", "explain", "phases",
    "windows", "store", "links", "text_tools", "strip", "fold", "rows", "chip", "tree", "mask", "kv_strip",
    "bar_curve", "drafting/picture", "alternatives", "inspector", "phase_panel", "transport", "worth",
    "counters", "keyboard", "lecture", "help", "flights", "view",
    "share/again", "share/pen", "share/files", "share/gif", "share/wrap", "share/film_frame", "share/film",
    "share/link", "share/menu",
)  # fmt: skip
STYLES = (
    "view.css", "inside.css", "drafting/drafting.css", "one_screen.css", "lecture.css", "share/share.css",
    "opening/opening.css",
)  # fmt: skip


def web_script() -> str:
    """All of the view without gradio: it defines `mountDecodeView(host, style)` and `DECODE_VIEW_STYLE`."""
    parts = ['"use strict";', vendored("gifenc"), methods_script(), view_style_script()]
    return "\n".join(parts + [read_web(f"{name}.js") for name in SCRIPTS])


def view_style_script() -> str:
    """It defines `DECODE_VIEW_STYLE`, the style sheet of the view and of what is drawn like it."""
    colours = css_variables(".mdv") + css_variables(".dark .mdv", dark=True)
    rules = "".join(read_web(name) for name in STYLES)
    style = json.dumps(colours + rules + drafter_colours(".mdv", "--mdv-accept"))
    return f"const DECODE_VIEW_STYLE = {style};"


def vendored(name: str) -> str:
    """A module of others (`vendor/NAME`) as an object of that name, with its licence.

    All of the view is one script, which can neither import nor export.
    """
    licence = read_web(f"vendor/{name}/LICENSE.md").strip()
    module = read_web(f"vendor/{name}/{name}.esm.js").partition("//# sourceMappingURL")[0]
    body, exported = module.rsplit("export{", 1)
    pairs = (pair.partition(" as ") for pair in exported.rstrip().rstrip(";").rstrip("}").split(","))
    members = ",".join(f"{public or own}:{own}" for own, _, public in pairs)
    return f"/* {name}\n{licence} */\nconst {name} = (() => {{ {body}return {{{members}}}; }})();"


def read_web(name: str) -> str:
    """A file of the browser's side."""
    return (WEB / name).read_text(encoding="utf-8")
