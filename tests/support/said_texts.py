"""The page's own English texts, as they stand in its scripts and in the server's code."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Collection, Iterator
from dataclasses import fields
from pathlib import Path

from medusa_core.acceptance import rule_info, rule_names
from medusa_core.config import GenerationConfig
from medusa_core.drafters import Method, drafter_names, drafters_of, method, method_names
from medusa_core.drafters._options import option_kinds
from ui.components.controls import label_of

COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
CALL = re.compile(r"\b(?:say|phrase)\(\s*(\"(?:[^\"\\]|\\.)*\")")
PLURAL = re.compile(r"\b(plural|noun)\([^;`]*?,\s*\"([^\"]+)\"(?:,\s*\"([^\"]+)\")?\)")
LISTED = re.compile(r"\[((?:\s*\"[^\"]*\",?)+)\s*\]\.map\(phrase\)")
STRING = re.compile(r"\"(?:[^\"\\]|\\.)*\"")


def of_method(found: Method) -> set[str]:
    """What a drafter, or two of them, say about themselves."""
    drafting = found.drafting
    shared = {*drafting.reads, *drafting.levels, drafting.feeds} if drafting else set()
    return (own_texts(found) | shared) - {""}


def own_texts(found: Method) -> set[str]:
    """Sentences that no other drafter has."""
    words = {found.drafting.who, *found.drafting.words} if found.drafting else set()
    return ({found.title, found.help, found.design} | words) - {""}


def of_additions(translated: Collection[str]) -> set[str]:
    """Texts of drafters, rules and settings without any translation: they stay English.

    They are listed in a warning. One that has a translated text must be translated whole.
    """
    new = {name for name in drafter_names() if own_texts(method(name)).isdisjoint(translated)}
    things = [of_method(method(name)) for name in method_names() if not new.isdisjoint(drafters_of(name))]
    rules = [{name, f"{name}: {rule_info(name).help}"} for name in rule_names()]
    things += [texts for texts in rules if texts.isdisjoint(translated)]
    for item in (item for kind in (GenerationConfig, *option_kinds().values()) for item in fields(kind)):
        has_control = isinstance(item.default, int | float)
        texts = {item.metadata["help"], label_of(item.name)} if has_control else set()
        things += [texts] if texts.isdisjoint(translated) else []
    found = set().union(*things).difference(translated)
    if found:
        warnings.warn(f"without a translation: {sorted(found)}", stacklevel=2)
    return found


def of_script(source: str) -> set[str]:
    """Texts of ``say`` and ``phrase``, and the plurals of ``plural`` and ``noun``."""
    source = COMMENT.sub("", source)
    found = {json.loads(text) for text in CALL.findall(source)}
    for texts in LISTED.findall(source):
        found |= {json.loads(text) for text in STRING.findall(texts)}
    for kind, word, many in PLURAL.findall(source):
        found.add(("{0} " if kind == "plural" else "") + (many or f"{word}s"))
    return found | {_template(source, match.end()) for match in re.finditer(r"\bsay`", source)}


def of_module(file: Path) -> Iterator[str]:
    """Texts of ``Words(…)`` and the plurals of ``amount(…)``."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
        words = [text for text in texts if isinstance(text, str)]
        if node.func.id == "Words" and node.args and isinstance(node.args[0], ast.Constant):
            yield words[0]
        elif node.func.id == "amount":
            yield f"{{0}} {words[1] if len(words) > 1 else words[0] + 's'}"


def _template(source: str, start: int) -> str:
    """The text of a template that begins at ``start``, with {0}, {1} for its values."""
    text, count, at = "", 0, start
    while source[at] != "`":
        if source.startswith("${", at):
            text += f"{{{count}}}"
            count, at = count + 1, _behind_value(source, at + 2)
        else:
            text, at = text + source[at], at + 1
    return text


def _behind_value(source: str, at: int) -> int:
    """The place after the brace that ends a value, which may hold its own braces and templates."""
    depth = 1
    while depth:
        if source[at] == "`":
            at = _behind_template(source, at + 1)
            continue
        depth += {"{": 1, "}": -1}.get(source[at], 0)
        at += 1
    return at


def _behind_template(source: str, at: int) -> int:
    while source[at] != "`":
        at = _behind_value(source, at + 2) if source.startswith("${", at) else at + 1
    return at + 1
