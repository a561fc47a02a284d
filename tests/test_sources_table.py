"""Every row of docs/sources.md names a place that is there, or says why the item is not here."""

from __future__ import annotations

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


def test_every_method_and_rule_has_a_row():
    text = "\n".join(here for _, here in ROWS)
    for room in ("drafters", "acceptance"):
        for file in (ROOT / "medusa_core" / room).iterdir():
            name = file.stem
            if not name.startswith("_") and name not in ("none", "ngram", "verdict", "sampling"):
                assert f"medusa_core/{room}/{name}" in text, name
