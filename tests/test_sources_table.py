"""Every row of docs/sources.md names a place that is there, or says why the item is not here."""

from __future__ import annotations

import ast
import re

import pytest
from paths import ROOT

ROWS = [
    re.split(r"(?<!\\) \| ", line.strip("| \n"))
    for line in (ROOT / "docs" / "sources.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| Item", "| ---"))
]
PLACE = re.compile(r"`((?:medusa_core|ui|assets|docs|tests)/[\w./-]+\.\w+)(?::(\w+))?`")
LEAST_REASON = 40  # characters


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_row_names_a_place_or_a_reason(row):
    item, here = row
    places = PLACE.findall(here)
    assert places or (here.startswith("Not here") and len(here) > LEAST_REASON), item
    for file, name in places:
        assert (ROOT / file).is_file(), file
        if name:
            defined = rf"^\s*(class|def) {name}\b|^{name}\b"
            assert re.search(defined, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), name


def cites(docstring: str) -> bool:
    """Whether a module's docstring names the source of what it does: a paper, its section or its year."""
    return re.search(r"arXiv|§|\b(19|20)\d\d\b", docstring) is not None


def test_every_method_and_rule_of_a_source_has_a_row():
    """One whose docstring cites nobody is the project's own and needs none."""
    text = "\n".join(here for _, here in ROWS)
    found = {}
    for room in ("drafters", "acceptance"):
        for file in (ROOT / "medusa_core" / room).iterdir():
            name = file.stem
            if name.startswith("_") or name in ("ngram", "verdict"):
                continue
            module = file / "__init__.py" if file.is_dir() else file
            docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
            found[f"medusa_core/{room}/{name}"] = cites(docstring)
    assert sum(found.values()) > 10
    lacking = [place for place, cited in found.items() if cited and place not in text]
    assert not lacking, f"docs/sources.md needs a row with a place in each of {lacking}, which cite a source"
