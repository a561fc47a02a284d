"""What the page says of other settings, against the engine itself: over rules, temperatures, ε and δ.

The browser judges recorded steps; the engine judges the same trees, and runs anew from the same text.
"""

from __future__ import annotations

import itertools

import pytest
import tiny
import torch

from medusa_core.acceptance import make_rule
from medusa_core.config import GenerationConfig
from medusa_core.trace.builder import TraceBuilder

pytestmark = pytest.mark.browser

TREE = "cartesian-4x2x2"
RUNS = [("match", 0.0), ("typical", 0.0), ("typical", 0.7), ("typical", 1.0), ("match", 0.7), ("match", 1.0)]
RULES, TEMPERATURES = ("match", "typical"), (0.0, 0.7, 1.0)
BARS = [(0.02, 0.3), (0.09, 0.3), (0.5, 0.9), (1.0, 1.0), (0.09, 0.05)]
# Everything that a view draws for these settings: the verdict, and what is said beside the controls.
SHOWN = """([trace, wishes]) => wishes.map((settings) => trace.steps.map((_, index) => {
  const made = settingsOf(trace.config);
  const state = { trace, index, settings, made, hover: null, node: null, pinned: false };
  const { verdict, hypothetical } = sceneOf(state);
  const notes = notesOf(made, settings, hypothetical);
  return { path: verdict.path, judged: Boolean(hypothetical), notes };
}))"""


def recorded(engine, rule: str, temperature: float):
    """A run's settings, steps and trace."""
    config = GenerationConfig.of(
        acceptance=rule, temperature=temperature, tree=TREE, max_new_tokens=30, epsilon=0.09, delta=0.3
    )
    builder = TraceBuilder(engine, config, tiny.PROMPT)
    steps = list(engine.stream(tiny.PROMPT, config))
    for step in steps:
        builder.add(step)
    return config, steps, builder.finish()


def wishes() -> list[dict]:
    return [
        {"acceptance": rule, "temperature": heat, "epsilon": epsilon, "delta": delta}
        for rule, heat, (epsilon, delta) in itertools.product(RULES, TEMPERATURES, BARS)
    ]


def judged_by_engine(step, wish: dict) -> list[int]:
    """The path that the engine's own rule takes on this tree under these settings."""
    return make_rule(GenerationConfig.of(**wish), torch.Generator())(step.tree, step.logits).path


def draws(settings: dict) -> bool:
    """Whether a verdict hangs on random draws, which nothing recorded can foretell."""
    return settings["acceptance"] == "match" and settings["temperature"] > 0


@pytest.mark.sample(2)
@pytest.mark.parametrize(("rule", "temperature"), RUNS)
def test_what_is_shown_is_the_engines_verdict_or_marked_for_the_next_run(
    script_page, engine, rule, temperature
):
    _, steps, trace = recorded(engine, rule, temperature)
    compared = judged = 0
    for wish, shown in zip(wishes(), script_page.evaluate(SHOWN, [trace, wishes()]), strict=True):
        for step, view in zip(steps, shown, strict=True):
            waits = [view["notes"][name] for name in ("acceptance", "temperature")].count("for the next run")
            judged += view["judged"]
            if waits and not view["judged"]:
                assert view["path"] == step.verdict.path
            elif not draws(wish):
                compared += 1
                assert view["path"] == judged_by_engine(step, wish), (wish, step.index)
            else:  # the same draws as in the run
                assert wish["temperature"] == temperature
                assert view["path"] == step.verdict.path
    assert compared >= len(BARS) * len(steps) or draws({"acceptance": rule, "temperature": temperature})
    assert judged


@pytest.mark.sample(1)
@pytest.mark.parametrize(("rule", "temperature"), [("typical", 0.7), ("typical", 0.0), ("match", 0.0)])
def test_a_real_run_with_the_wished_settings_accepts_as_many(script_page, engine, rule, temperature):
    """From the text before each step: the root there is the most likely token under these settings."""
    config, steps, trace = recorded(engine, rule, temperature)
    wished = [
        {"acceptance": "typical", "temperature": temperature, "epsilon": e, "delta": d} for e, d in BARS
    ]
    changed = 0
    for wish, shown in zip(wished, script_page.evaluate(SHOWN, [trace, wished]), strict=True):
        text = list(tiny.PROMPT)
        for step, view in zip(steps, shown, strict=True):
            new = GenerationConfig.of(tree=TREE, max_new_tokens=30, **wish)
            first = next(engine.stream(text, new))
            assert first.tree.tokens.tolist() == step.tree.tokens.tolist()
            assert view["path"] == first.verdict.path, (wish, step.index)
            changed += view["path"] != step.verdict.path
            text += step.emitted
    assert bool(changed) == (temperature > 0)  # at temperature 0 no bar changes a verdict
    assert config.max_new_tokens == len(text) - len(tiny.PROMPT)


def test_the_page_says_where_the_bars_count_for_nothing(script_page, engine):
    _, _, trace = recorded(engine, "typical", 0.7)
    for wish, shown in zip(wishes(), script_page.evaluate(SHOWN, [trace, wishes()]), strict=True):
        idle = wish["acceptance"] != "typical" or wish["temperature"] == 0
        for name in ("epsilon", "delta"):
            assert ("have no effect" in shown[0]["notes"][name]) == idle
