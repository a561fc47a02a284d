"""A recording of another version of the engine is shown, and leaves the controls with what they can hold."""

from __future__ import annotations

import json
import shutil

import pytest
from trace_factory import make_trace

from medusa_core.config import LoadConfig
from medusa_core.options import option_defaults
from ui.layout import build_page
from ui.records.examples import ASSETS
from ui.records.settings import MOST_TOKENS, RunSettings, make_config, settings_of
from ui.session import Session

FOREIGN = {
    "a drafter of another version": {
        "drafter": {"name": "oracle", "settings": {"depth": 3, "temperature": "hot", "prompt": 7}}
    },
    "a rule of another version": {"acceptance": {"name": "fair", "settings": {"epsilon": "x", "seed": "y"}}},
    "more tokens than the page makes": {"max_new_tokens": MOST_TOKENS + 1},
    "a temperature beyond the slider": {"temperature": 50.0},
    "a seed beyond the field": {"seed": 10**40},
}  # fmt: skip


def foreign(changes):
    trace = make_trace()
    return trace | {"config": trace["config"] | changes}


@pytest.mark.parametrize("changes", FOREIGN.values(), ids=FOREIGN)
def test_its_settings_make_a_run_of_this_page(changes):
    trace = foreign(changes)
    settings = settings_of(trace)
    make_config(RunSettings.of(**settings))
    assert settings["prompt"] == trace["prompt"]["text"]
    numbers = {name for name, default in option_defaults().items() if isinstance(default, int | float)}
    assert set(settings) >= numbers


@pytest.mark.sample(2)
@pytest.mark.parametrize("changes", FOREIGN.values(), ids=FOREIGN)
def test_the_page_begins_with_it(changes, tmp_path):
    (tmp_path / "traces").mkdir()
    shutil.copy(ASSETS / "prompts.json", tmp_path)
    (tmp_path / "traces" / "1-foreign.json").write_text(json.dumps(foreign(changes)), "utf-8")
    page = build_page(Session(LoadConfig(), assets=tmp_path))
    run = next(function for function in page.fns.values() if function.name == "work")
    for block in run.inputs:
        if not block.stateful:
            block.preprocess(block.value)  # raises for what is out of range or not in the menu
