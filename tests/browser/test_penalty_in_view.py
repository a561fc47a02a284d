"""The view of a run with the penalty: what it says of it, of the choice it changed, and of repetition."""

from __future__ import annotations

import pytest
import tiny
from places import drawn

from medusa_core.config import GenerationConfig
from medusa_core.engine.summary import distinct_n

pytestmark = pytest.mark.browser
CONFIG = GenerationConfig.of(max_new_tokens=24, tree="cartesian-4x2x2", penalty=1.4, penalty_window=7)


def record(engine, config):
    return tiny.recorded(engine, config)


def words_at(page, step, node):
    """What stands beside the table of the likeliest tokens."""
    page.evaluate(
        "([step, node]) => { view.store.goto(step); view.store.set({ node, pinned: true }); }", [step, node]
    )
    drawn(page)
    return page.locator("[data-role=processed]").all_inner_texts()


def test_the_inspector_names_the_penalty_and_the_choice_it_changed(view, tell, engine):
    builder = record(engine, CONFIG)
    trace = builder.finish()
    assert view.evaluate("unpackedTrace", builder.ended().packed()) == trace
    tell(trace)
    assert "penalty 1.4 on the last 7 tokens" in view.locator("#host").inner_text()
    changed = same = False
    for number, step in enumerate(trace["steps"][:12]):
        own = {row["node"]: row.get("penalised") for row in step["after"]}
        node = len(step["nodes"]) - 1
        words, penalised = words_at(view, number, node), own[step["nodes"][node]["parent"]]
        assert words[0].startswith("p is after the penalty of 1.4.")
        if penalised is None:
            assert "fell behind" not in words[0]
            same = True
        else:
            times = "once" if penalised["copies"] == 1 else f"{penalised['copies']} times"
            own_choice = f"The model’s own first choice, “{penalised['text']}”, fell behind"
            assert f"{own_choice}, as it stands {times} in the last 7 tokens." in words[0]
            changed = True
    assert changed
    assert same


def test_a_run_without_says_nothing_of_it(view, tell, engine):
    tell(record(engine, CONFIG.changed(penalty=1.0)).finish())
    assert words_at(view, 2, 1) == []
    assert "penalty" not in view.locator("#host").inner_text()


def test_min_p_leaves_the_tokens_it_masks_out_and_allows_no_other_temperature(view, tell, engine):
    """What another temperature would have left is in no trace."""
    config = CONFIG.changed(penalty=1.0, min_p=0.4, temperature=0.8, acceptance="typical")
    trace = record(engine, config).finish()
    tell(trace)
    assert words_at(view, 0, 1) == ["p is after min-p 0.4."]
    shown = view.locator("[data-role=alternatives] tbody tr").count()
    possible = [p for p in trace["steps"][0]["after"][0]["p"] if p > 1e-3]
    guesses = [node for node in trace["steps"][0]["nodes"] if node["parent"] == 0]
    assert shown <= len(possible) + len(guesses) < 5 + len(guesses)
    assert not view.evaluate("(trace) => canReheat(trace, trace.steps[0])", trace)
    trace["config"].pop("min_p")
    assert view.evaluate("(trace) => canReheat(trace, trace.steps[0])", trace)


def test_the_share_of_distinct_n_grams_is_pythons(view, tell, engine):
    trace = record(engine, CONFIG).finish()
    tokens = trace["output"]["token_ids"]
    for n in range(1, 5):
        assert view.evaluate("([tokens, n]) => distinctShare(tokens, n)", [tokens, n]) == distinct_n(
            [tokens], n
        )
        assert view.evaluate("(n) => distinctShare([1], n + 1)", n) is None
    tell(trace)
    words = view.locator("[data-count=distinct]").inner_text().split("\n")
    assert words == [
        f"{round(100 * distinct_n([tokens], 4))} %",
        "distinct sequences of 4 tokens, whole run",
    ]


def test_the_program_that_makes_the_run_again_has_them(view, tell, engine):
    trace = record(engine, CONFIG.changed(min_p=0.2, temperature=0.5)).finish()
    command = view.evaluate("(trace) => asCommand(recipeOf(trace))", trace)
    assert "--penalty=1.4 --penalty-window=7 --min-p=0.2" in command
    assert "penalty" not in view.evaluate(
        "(trace) => asCommand(recipeOf(trace))",
        record(engine, CONFIG.changed(penalty=1.0, penalty_window=1024)).finish(),
    )


def test_controls_that_count_for_nothing_are_told(view):
    idle = "(settings) => idleSettings({ temperature: 0, penalty: 1, penalty_window: 1024, ...settings })"
    assert view.evaluate(idle, {})["penalty_window"] == "counts for nothing: the penalty is 1"
    assert "temperature 0" in view.evaluate(idle, {})["min_p"]
    found = view.evaluate(idle, {"penalty": 1.2, "penalty_window": 0, "temperature": 0.5})
    assert found["penalty"] == "counts for nothing: the window is 0"
    assert "penalty_window" not in found
    assert "min_p" not in found
