"""The languages that the page and the replay file speak beside English: one file of `assets/language` each.

A file holds the language's own name and, by part of the page, its texts by their English ones. English itself
stands in the code. `assets/web/language.js` chooses the language and puts texts into it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from medusa_core.replay.view import WEB

LANGUAGES = WEB.parent / "language"
NAME = "language"  # key of the language's own name
OF_A_VIEW = ("view", "share")  # the parts that a replay file needs


def languages(folder: Path = LANGUAGES) -> dict[str, dict[str, Any]]:
    """What each file holds, by its tag such as "zh"."""
    files = sorted(folder.glob("*.json"))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


def languages_script(parts: tuple[str, ...] | None = None) -> str:
    """Adds the languages to `LANGUAGE` of `language.js`; `parts` of their texts, or all."""
    lines = []
    for tag, held in languages().items():
        texts = {part: own for part, own in held.items() if part != NAME and (parts is None or part in parts)}
        arguments = (_literal(value) for value in (tag, held[NAME], texts))
        lines.append(f"LANGUAGE.add({', '.join(arguments)});\n")
    return "".join(lines)


def _literal(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
