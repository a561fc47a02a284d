"""One HTML file that replays a run: the linked view, its styles and the trace, without server or network.

The trace is data in a script element that no browser runs, and a Content-Security-Policy allows the one
script of the file, by its hash, and no request to anywhere.

The page and the replay file speak the languages of `assets/language`, a file each: the language's own name
and, by part of the page, its texts by their English ones. `assets/web/language.js` chooses one and puts its
texts in.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import read_asset
from medusa_core.trace.format import RunTrace
from medusa_core.trace.packed import packed
from medusa_core.trace.replay.colours import MONO, SANS
from medusa_core.trace.replay.view import WEB, read_web, web_script

LANGUAGES = WEB.parent / "language"
NAME = "language"  # key of the language's own name
OF_A_VIEW = ("view", "share")  # the parts that a replay file needs


_SLOT = '<script type="application/json" id="trace">{}</script>'
EMPTY_SLOT = _SLOT.format("null")  # filled by the page's own script, as `replay_html` does
# Characters by which text could end the script element, or which scripts once took for line ends.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
_HALF_CHARACTERS = re.compile("[\ud800-\udfff]")  # UTF-8 has no bytes for them


def replay_html(trace: RunTrace) -> str:
    """The file for this run."""
    return replay_shell().replace(
        EMPTY_SLOT, _SLOT.format(script_json(packed(trace.model_dump(mode="json")))), 1
    )


def write_replay(trace: RunTrace, path: Path) -> None:
    """Write the file for this run. Raises MedusaError when that cannot be done."""
    try:
        path.write_bytes(replay_html(trace).encode())  # bytes: the hash is of these line ends
    except OSError as error:
        raise MedusaError(f"cannot write the replay {path}: {reason_of(error)}: name another file") from error


def replay_frame(trace: RunTrace) -> str:
    """The file for this run as a frame of another page, such as a notebook, which it cannot reach."""
    return (
        f'<iframe srcdoc="{html.escape(replay_html(trace))}" sandbox="allow-scripts allow-downloads" '
        f'loading="lazy" title="Replay of a Medusa run" '
        'style="width:100%;height:1000px;border:0"></iframe>'
    )


def replay_shell() -> str:
    """The file without a run; `EMPTY_SLOT` stands where the trace belongs."""
    script = web_script() + languages_script(OF_A_VIEW) + read_web("replay/start.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    fonts = f":root {{ --font: {', '.join(SANS)}; --font-mono: {', '.join(MONO)}; }}\n"
    return (
        read_web("replay/page.html")
        .replace("@POLICY@", policy)
        .replace("@STYLE@", fonts + read_web("replay/page.css"))
        .replace("@SLOT@", EMPTY_SLOT)
        .replace("@SCRIPT@", script)  # last: what it holds is not looked at again
    )


def script_json(value: Any) -> str:
    """JSON that stays data inside a script element, whatever its texts hold."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _HALF_CHARACTERS.sub(lambda half: f"\\u{ord(half[0]):04x}", text.translate(_ESCAPES))


def languages() -> dict[str, dict[str, Any]]:
    """What each file holds, by its tag such as "zh"."""
    files = sorted(LANGUAGES.glob("*.json"))
    return {file.stem: read_asset(file) for file in files}


def languages_script(parts: tuple[str, ...] | None = None) -> str:
    """Adds the languages to `LANGUAGE` of `language.js`; `parts` of their texts, or all."""
    lines = []
    for tag, held in languages().items():
        texts = {part: own for part, own in held.items() if part != NAME and (parts is None or part in parts)}
        arguments = (script_json(value) for value in (tag, held[NAME], texts))
        lines.append(f"LANGUAGE.add({', '.join(arguments)});\n")
    return "".join(lines)
