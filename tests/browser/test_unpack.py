"""What the browser computes of a trace and of an edited tree, as Python does, also with other settings."""

from __future__ import annotations

import itertools
import random

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_verdict import Case, cases
from page_messages import step_messages
from view_trace import make_trace

from medusa_core.acceptance import make_rule
from medusa_core.acceptance.sampling import entropy, probabilities
from medusa_core.config import GenerationConfig
from medusa_core.trace.alternatives import TEMPERATURES
from medusa_core.trace.builder import TraceBuilder
from medusa_core.trace.packed import packed, unpacked
from medusa_core.trees.baselines import random_choices
from medusa_core.trees.search import assumed_accuracies, expected_lengths, node_value, search_tree
from medusa_core.trees.tree import cartesian, published_trees
from ui.components.views import editor_script
from ui.records.messages import message_begin, message_end

pytestmark = pytest.mark.browser

SETTINGS = {
    "greedy": {"tree": "cartesian-4x2x2"},
    "typical": {"tree": "cartesian-4x2x2", "acceptance": "typical", "temperature": 0.7},
    "other shapes": {"method": "ngram"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_records_are_those_that_python_reads(script_page, engine, name):
    config = GenerationConfig.of(max_new_tokens=20, **SETTINGS[name])
    builder = tiny.recorded(engine, config)
    assert script_page.evaluate("unpackedTrace", builder.ended().packed()) == builder.finish()


def test_a_trace_of_steps_that_differ_between_siblings(script_page):
    trace = make_trace(3)
    trace["steps"][1]["nodes"][2] |= {"entropy": 0.125, "threshold": None}
    assert script_page.evaluate("unpackedTrace", packed(trace)) == unpacked(packed(trace))


def test_steps_that_come_twice_or_before_their_time_are_left_out(script_page):
    trace = make_trace(5)
    begin, end, steps = message_begin("r", trace), message_end("r", trace), step_messages("r", trace)
    messages = [begin, steps[0], steps[0], steps[2], steps[1], *steps[1:], end]
    kept = script_page.evaluate(
        """(messages) => {
          const store = makeStore(() => {});
          messages.forEach((message) => receive(store, message));
          return [store.state.trace, store.state.packed];
        }""",
        messages,
    )
    assert [step["nodes"] for step in kept[0]["steps"]] == [step["nodes"] for step in trace["steps"]]
    assert unpacked(kept[1]) == {**trace, "steps": unpacked(packed(trace))["steps"]}


# --- The page's greedy verdict accepts the nodes that the engine's does, also where tokens come twice.


def recorded(case: Case, shares: list[float]) -> dict:
    """A step as a trace has it; p of one token may differ between nodes by rounding."""
    nodes = [
        {"parent": parent if parent >= 0 else None, "token_id": token, "p": share}
        for parent, token, share in zip(case.parents, case.tokens, shares, strict=False)
    ]
    after = [{"node": node, "token_ids": [choice]} for node, choice in enumerate(case.choices)]
    return {"nodes": nodes, "after": after}


# Many trees in one call, since a call takes longer than a tree.
@given(found=st.lists(cases(), min_size=20, max_size=30), data=st.data())
@settings(max_examples=10)
def test_the_page_accepts_the_nodes_that_the_engine_accepts(script_page, found, data):
    shares = data.draw(st.lists(st.floats(0.4, 0.6), min_size=16, max_size=16))
    steps = [recorded(case, shares) for case in found]
    paths = script_page.evaluate("(steps) => steps.map((step) => greedyVerdict(step).path)", steps)
    assert paths == [case.path for case in found]


# --- p and entropy at a temperature that was not run: what the browser makes of the trace, and the logits.


BETWEEN = (0.05, 0.4, 0.6, 0.85, 1.15, 1.45, 1.9)
REHEATED = """([trace, from, wishes]) => wishes.map((to) => trace.steps.map((step) =>
  reheated(trace, step, from, to).nodes.slice(1).map((node) => [node.p, node.entropy])))"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_numbers_at_other_temperatures_are_those_of_the_logits(script_page, engine, temperature):
    config = GenerationConfig.of(
        acceptance="typical", temperature=temperature, tree="cartesian-4x2x2", max_new_tokens=20
    )
    builder, steps = TraceBuilder(engine, config, tiny.PROMPT), []
    for step in engine.stream(tiny.PROMPT, config):
        builder.add(step)
        steps.append(step)
    wishes = [*TEMPERATURES, *BETWEEN]
    found = script_page.evaluate(REHEATED, [builder.finish(), temperature or 1.0, wishes])
    for wish, by_step in zip(wishes, found, strict=True):
        most = 1e-2 if wish in TEMPERATURES else 0.03
        for step, nodes in zip(steps, by_step, strict=True):
            probs = probabilities(step.logits, wish)
            known = entropy(probs)
            for node, (p, h) in enumerate(nodes, start=1):
                parent = step.tree.parents[node]
                assert p == pytest.approx(float(probs[parent, step.tree.tokens[node]]), rel=most, abs=most)
                assert h == pytest.approx(float(known[parent]), abs=3 * most), (wish, node)


# --- What the page says of other settings, against the engine itself: over rules, temperatures, ε and δ.


TREE = "cartesian-4x2x2"
RUNS = [("match", 0.0), ("typical", 0.0), ("typical", 0.7), ("typical", 1.0), ("match", 0.7), ("match", 1.0)]
RULES, HEATS = ("match", "typical"), (0.0, 0.7, 1.0)
BARS = [(0.02, 0.3), (0.09, 0.3), (0.5, 0.9), (1.0, 1.0), (0.09, 0.05)]
# Everything that a view draws for these settings: the verdict, and what is said beside the controls.
SHOWN = """([trace, wishes]) => wishes.map((settings) => trace.steps.map((_, index) => {
  const made = settingsOf(trace.config);
  const state = { trace, index, settings, made, hover: null, node: null, pinned: false };
  const { verdict, hypothetical } = sceneOf(state);
  const notes = notesOf(made, settings, hypothetical);
  return { path: verdict.path, judged: Boolean(hypothetical), notes };
}))"""


def run_of(engine, rule: str, temperature: float):
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
        for rule, heat, (epsilon, delta) in itertools.product(RULES, HEATS, BARS)
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
    _, steps, trace = run_of(engine, rule, temperature)
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
    config, steps, trace = run_of(engine, rule, temperature)
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
    _, _, trace = run_of(engine, "typical", 0.7)
    for wish, shown in zip(wishes(), script_page.evaluate(SHOWN, [trace, wishes()]), strict=True):
        idle = wish["acceptance"] != "typical" or wish["temperature"] == 0
        for name in ("epsilon", "delta"):
            assert ("have no effect" in shown[0]["notes"][name]) == idle


# --- What the browser computes of an edited tree, against the formulas of the engine.


ROWS = assumed_accuracies(5)
EDITED = [
    [],
    [(0,)],
    search_tree(ROWS, 63).choices,
    list(cartesian((4, 2, 2)).choices),
    [(3,), (0,), (0, 7), (3, 1), (0, 7, 9)],  # out of order, with ranks left out
    *([tuple(choice) for choice in choices] for choices in published_trees().values()),
    *(random_choices(ROWS, 40, seed) for seed in range(4)),
]


@pytest.fixture(scope="module")
def editor_page(chromium):
    page = chromium.new_page()
    page.add_script_tag(content=editor_script())
    yield page
    page.close()


def test_the_browser_expects_of_a_tree_what_python_expects(editor_page):
    script = """([rows, trees]) => trees.map((nodes) => [expectedLength(rows, nodes),
        nodes.map((node) => nodeValue(rows, node))])"""
    for choices, (length, values) in zip(EDITED, editor_page.evaluate(script, [ROWS, EDITED]), strict=True):
        assert length == pytest.approx(expected_lengths(ROWS, choices)[-1], rel=1e-12)
        assert values == pytest.approx([node_value(ROWS, choice) for choice in choices], rel=1e-12)


def test_taking_always_the_likeliest_addition_grows_the_tree_of_the_search(editor_page):
    grown = editor_page.evaluate(
        """([rows, steps]) => {
          const nodes = [];
          for (let i = 0; i < steps; i++) nodes.push(additions(rows, nodes)[0].node);
          return nodes;
        }""",
        [ROWS, 63],
    )
    assert [tuple(node) for node in grown] == search_tree(ROWS, 63).choices


def test_edits_give_every_tree_its_next_guesses_and_take_subtrees_whole(editor_page):
    """Against the same said with sets."""
    rng = random.Random(3)
    for choices in EDITED[1:]:
        node = rng.choice(choices)
        tree = {"rows": ROWS, "nodes": choices, "most": 64}
        without = editor_page.evaluate("([tree, node]) => withoutNode(tree, node)", [tree, node])
        left = {tuple(each) for each in without["nodes"]}
        assert left == {each for each in choices if each[: len(node)] != node}
        assert without["gain"] == pytest.approx(
            expected_lengths(ROWS, sorted(left))[-1] - expected_lengths(ROWS, choices)[-1], abs=1e-12
        )
        back = editor_page.evaluate(
            "([tree, node]) => withGuess(tree, node)", [tree | {"nodes": without["nodes"]}, node[:-1]]
        )
        free = next(rank for rank in range(len(ROWS[len(node) - 1])) if (*node[:-1], rank) not in left)
        assert tuple(back["added"]) == (*node[:-1], free)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ("withGuess(full, [5])", "The tree has 64 nodes and the limit here is 64"),
        ("withGuess(small, [0])", "No guess can follow one of head 1"),
        ("withGuess(small, [])", "Head 1 offers 1 guess here and none is left"),
        ("withoutNode(small, [])", "cannot be removed"),
        ("withoutNode(small, [1])", "not in the tree"),
    ],
)
def test_what_cannot_be_is_said(editor_page, edit, words):
    full = {"rows": ROWS, "nodes": search_tree(ROWS, 63).choices, "most": 64}
    small = {"rows": [[0.5]], "nodes": [[0]], "most": 64}
    assert words in editor_page.evaluate(f"([full, small]) => {edit}.refused", [full, small])
