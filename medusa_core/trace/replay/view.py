"""The linked view of page and replay file: scripts, styles, and what is known of the methods."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

from medusa_core.config import RUN_SETTINGS
from medusa_core.drafters import drafter_names, method, method_names
from medusa_core.files import project_folder
from medusa_core.trace.asked import ALWAYS_HELD
from medusa_core.trace.replay.colours import css_variables, drafter_palette

WEB = project_folder() / "assets" / "web"
SCRIPTS = (
    "language", "dom", "text", "unpack", "overview", "judge", "heat", "settings", "explain", "phases",
    "windows", "store", "links", "text_tools", "strip", "fold", "rows", "chip", "tree", "mask", "kv_strip",
    "bar_curve", "drafting/picture", "alternatives", "inspector", "phase_panel", "transport", "worth",
    "pager", "counters", "keyboard", "lecture", "help", "flights", "view",
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
    return "\n".join([*parts, read_web(*(f"{name}.js" for name in SCRIPTS))])


def view_style_script() -> str:
    """It defines `DECODE_VIEW_STYLE`, the style sheet of the view and of what is drawn like it."""
    colours = css_variables(".mdv, .learn") + css_variables(".dark .mdv, .dark .learn", dark=True)
    style = json.dumps(colours + read_web(*STYLES) + drafter_colours(".mdv", "--mdv-accept"))
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


def read_web(*names: str) -> str:
    """Files of the browser's side, one after the other."""
    return "\n".join((WEB / name).read_text(encoding="utf-8") for name in names)


def methods_script() -> str:
    """Defines ``METHODS``, by name, and ``RUN_SETTINGS``, a run's numbers and switches with their defaults.

    ``mark`` is empty for a method that drafts nothing.
    """
    known = {
        name: {
            "title": (found := method(name)).title,
            "mark": found.mark,
            "weights": found.has_weights,
            "sequential": found.sequential,
            "drafting": found.drafting and asdict(found.drafting),
            "settings": [item.name for item in fields(found.settings)],
        }
        for name in method_names()
    }
    settings = dict.fromkeys(ALWAYS_HELD) | RUN_SETTINGS  # the fields of every trace come first
    return (
        f"const METHODS = {json.dumps(known, ensure_ascii=False)};\n"
        f"const RUN_SETTINGS = {json.dumps(settings)};"
    )


def drafter_colours(selector: str, variable: str) -> str:
    """Rules that give ``selector`` with ``data-drafter`` the colour of that drafter's accepted guesses.

    The variable's name with "-soft" behind it is a pale ground of the same colour.
    """
    rules = []
    for dark, theme in ((False, ""), (True, ".dark ")):
        for name in drafter_names():
            colour = drafter_palette(name, dark).accepted
            soft = f"color-mix(in srgb, {colour} {24 if dark else 12}%, transparent)"
            rules.append(
                f'{theme}{selector}[data-drafter="{name}"] '
                f"{{ {variable}: {colour}; {variable}-soft: {soft}; }}"
            )
    return "\n".join(rules) + "\n"


def mark_of(name: str) -> str:
    """The letter on a drafter's guesses; for one that is not known here, the first of its name."""
    return method(name).mark if name in method_names() else name[:1]
