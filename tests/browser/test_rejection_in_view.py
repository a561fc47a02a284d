"""The view of a run judged by rejection sampling: its words, and no what-if that would draw anew."""

from __future__ import annotations

import re

import pytest
import small_model
import tiny
from places import says

from medusa_core.config import GenerationConfig

pytestmark = pytest.mark.browser
DRAWS = GenerationConfig.of(
    method="draft_model", acceptance="rejection", temperature=0.7, draft_top_k=3, draft_nodes=12,
    max_new_tokens=24,
)  # fmt: skip
SURE = GenerationConfig.of(
    method="medusa", acceptance="rejection", temperature=0.7, tree="cartesian-3x2", max_new_tokens=24
)
COMPARED = re.compile(r"because u = (\S+) ([<≥]) (p|p/q) = (\S+?)\.(?: |$)")
# The sentence, the kind and the recorded reason of every guess of a run, as the view makes them.
TOLD = """() => document.mdvTrace.steps.flatMap((step, index) => {
    const verdict = recordedVerdict(step, new Map());
    const scene = { step, verdict, index, ruling: "rejection" };
    return step.nodes.slice(1).map(({ id, reason }) => [explainNode(scene, id), verdict.kinds[id], reason]);
})"""


def traced(engine, config):
    return tiny.recorded(engine, config).finish()


@pytest.fixture(scope="module")
def traces(engine):
    """Of a drafter that draws, and of one that does not."""
    drafting = small_model.with_draft_model(engine)
    return {"draws": traced(drafting, DRAWS), "sure": traced(drafting, SURE)}


@pytest.fixture(params=["draws", "sure"])
def kind(request):
    return request.param


@pytest.fixture
def page(tell, traces, kind):
    page = tell(traces[kind])
    page.evaluate("(trace) => { document.mdvTrace = trace; }", traces[kind])
    page.wait_for_function("document.getElementById('host').textContent.includes('rejection sampling')")
    return page


def number(shown):
    """A number as the view writes it."""
    digits, _, power = shown.partition("·10⁻")
    exponent = power.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789"))
    return float(f"{digits}e-{exponent or 0}")


def test_no_sentence_is_contradicted_by_its_own_numbers(page, kind):
    told = page.evaluate(TOLD)
    refused = 0
    for sentence, verdict, reason in told:
        found = COMPARED.search(sentence)
        assert (found is None) == (verdict == "untried") == reason.startswith("not tried")
        assert "u = " not in COMPARED.sub("", sentence)
        if found is None:
            assert "It was not tried: " in sentence
            continue
        u, sign, what, bar = found.groups()
        assert (
            (sign == "<")
            == (number(u) < number(bar))
            == (verdict == "accepted")
            == ("→ accepted" in sentence)
        )
        assert what == ("p/q" if kind == "draws" else "p")
        values = re.findall(r"\bp = (\S+?)[.,;]?(?= |$)", sentence)
        left = "refused; what" in sentence
        refused += left
        assert len(set(values)) <= 1 + left  # two values of p have a sentence between them that says why
        if verdict == "rejected":
            assert number(values[-1]) < 1
        assert re.search(r"with q = \S" if kind == "draws" else "so q = 1", sentence)
    assert {verdict for _, verdict, _ in told} == {"accepted", "rejected", "untried"}
    assert refused


def test_a_guess_that_was_not_tried_has_a_mark_of_its_own(page):
    verdicts = page.evaluate("recordedVerdict(document.mdvTrace.steps[0], new Map()).kinds")
    shown = [page.locator(f".mdv-node[data-node='{i}'] .mark").text_content() for i in range(len(verdicts))]
    assert shown == [
        {"root": "", "accepted": "✓", "rejected": "✕", "untried": "·"}[each] for each in verdicts
    ]
    untried = verdicts.index("untried")
    assert (
        page.locator(f".mdv-node[data-node='{untried}']").get_attribute("aria-label").endswith(", not tried")
    )
    legend = page.locator(".mdv-treelegend").inner_text()
    assert "· not tried" in legend
    assert "parent rejected" not in legend


@pytest.mark.parametrize("kind", ["sure"], indirect=True)
def test_two_numbers_are_printed_with_the_fewest_digits_that_compare(page):
    """And in one notation, however small they are."""
    pairs = [[0.9968, 1], [0.999, 0.996807], [2.36e-8, 2.41e-8], [0.5, 0.5], [0.30451, 0.30449], [0.02, 3.2]]
    shown = page.evaluate("(pairs) => pairs.map(([a, b]) => pairOf(a, b))", pairs)
    for (a, b), (first, second) in zip(pairs, shown, strict=True):
        assert (number(first) < number(second)) == (a < b)
        assert (number(first) == number(second)) == (a == b)
        assert "e" not in first + second
    assert shown == [
        ["0.997", "1.00"], ["0.999", "0.997"], ["2.36·10⁻⁸", "2.41·10⁻⁸"], ["0.50", "0.50"],
        ["0.305", "0.304"], ["0.020", "3.20"],
    ]  # fmt: skip
    assert page.evaluate("[0.9968, 0.99999, 1, 0.5, 0].map(probability)") == [
        "0.997", "0.99999", "1.00", "0.50", "0.00"
    ]  # fmt: skip
    assert page.evaluate("[0.9968, 0.99999, 1, 0.5].map(shortP)") == ["0.997", ">.999", "1.00", "0.50"]


@pytest.mark.parametrize("kind", ["draws"], indirect=True)
def test_the_view_tells_what_was_compared_and_whose_guess_it_was(page):
    page.locator(".mdv-node[data-node='1']").click()
    # The view is drawn again in a later frame.
    says(page, "#host", "Guess 1 by Draft model, “")
    said = page.locator("#host").inner_text()
    assert "p/q" in said
    assert "the draft model’s 1st token, its draw 1" in said


@pytest.mark.parametrize("kind", ["draws"], indirect=True)
def test_a_rule_that_draws_is_not_applied_again(page):
    """What would have been drawn is in no trace: only rules that need no draw can re-judge a step."""
    settle = """(wanted) => settleWhatIf(
        {acceptance: "typical", temperature: 0.7, epsilon: 0.09, delta: 0.3}, wanted, true)"""
    own = {"temperature": 0.9, "epsilon": 0.09, "delta": 0.3}
    assert page.evaluate(settle, {**own, "acceptance": "rejection"}) is None
    assert page.evaluate(settle, {**own, "acceptance": "match"}) is None
    assert page.evaluate(settle, {**own, "acceptance": "typical"}) is not None
