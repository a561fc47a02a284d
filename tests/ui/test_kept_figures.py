"""A measurement of the page is kept for later starts on one's own machine, and is one visitor's in public."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medusa_core.config import LoadConfig
from ui.records.selection import Selection
from ui.serving.policy import Policy
from ui.session import Session


@pytest.mark.parametrize("public", [False, True], ids=["own", "public"])
def test_a_measurement_is_kept_for_other_pages_unless_they_are_public(public, monkeypatch, own_cache):
    monkeypatch.setenv("MEDUSA_MEASURE", "1")

    def opened():
        """The app after a start, and a page that opens."""
        figures = Session(LoadConfig(device="cpu"), policy=Policy(public=public)).figures
        return figures, figures.choose(figures.begin(), Selection())

    figures, page = opened()
    assert page.own is None
    measured = replace(page.stored, at="2026-01-02T03:04")
    page = figures.adopt(page, measured)
    assert page.shown is measured
    assert public == (not own_cache.exists())
    for later in (figures.choose(figures.begin(), Selection()), opened()[1]):
        assert public == (later.own is None)
        assert later.shown.at == ("" if public else measured.at)
    page = figures.forget(page)
    assert page.shown is page.stored
    assert opened()[1].own is None
