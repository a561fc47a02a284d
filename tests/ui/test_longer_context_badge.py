"""A context beyond the trained one in the page: its badge says so, and another model does not inherit it."""

from __future__ import annotations

from medusa_core.config import LoadConfig
from medusa_core.loading.load import load_engine
from ui.serving.models import Models, badge_of
from ui.serving.policy import Policy


def test_the_badge_says_the_context_and_how_it_is_extended(engine_folder):
    own = LoadConfig(str(engine_folder), dtype="float32", device="cpu")
    longer = LoadConfig(str(engine_folder), dtype="float32", device="cpu", context=500, extend="window")
    assert "context" not in badge_of(load_engine(own))
    assert badge_of(load_engine(longer)).endswith("context 500 in a window of 96, trained with 96")


def test_another_model_has_its_own_context(engine_folder, tmp_path):
    own = LoadConfig(str(engine_folder), dtype="float32", device="cpu", context=500)
    models = Models(own, Policy())
    assert models.wanted(LoadConfig(str(tmp_path), dtype="float32")).context == 0
    assert models.wanted(LoadConfig(str(engine_folder), heads="none", dtype="float32")).context == 500
