"""Where an experiment comes out against the paper the page says why, first, and not to compare the order."""

from __future__ import annotations

import pytest

from medusa_core.experiments import store
from medusa_core.experiments.record import Mean, Row, Spread
from medusa_core.experiments.remarks import reason_against_paper
from ui.records.examples import ASSETS
from ui.tabs.experiments import COMPARE, load_section


def row(series, label, rate, x=None, kept=2.0):
    spread = Spread(median=rate, low=rate, high=rate)
    return Row(
        series=series, label=label, x=x, prompts=1, new_tokens=9, tree_nodes=4, step_ms=1.0, phase_ms={},
        tokens_per_step=Mean(mean=kept, standard_error=0.1), tokens_per_second=spread, speedup=spread,
    )  # fmt: skip


def tables(better):
    """Rows in which the paper's order holds, or the other."""
    slow, fast = (1.0, 2.0) if better else (2.0, 1.0)
    eps = "typical, greedy root"
    return {
        "eagle3-table1": [row("medusa", "T = 0", slow), row("eagle3", "T = 0", fast)],
        "spec-bench": [row("medusa", "all kinds", slow), row("hydra", "all kinds", fast, kept=2.5)],
        "table2": [row("a", "Medusa-1", slow), row("a", "Medusa-2, two stages", fast)],
        "tokenswift": [row("tokenswift", "20,000", fast, 20000), row("tokenswift", "1,024", slow, 1024)],
        "figure5": [row(eps, "0.25", 1, 0.25, kept=slow), row(eps, "0.01", 1, 0.01, kept=fast)],
    }


@pytest.mark.parametrize("name", tables(better=True))
def test_a_reason_is_given_where_the_order_is_not_the_paper_s_and_only_there(name):
    record = store.stated_record(name)
    for better in (True, False):
        changed = record.model_copy(update={"rows": tables(better)[name]})
        assert bool(reason_against_paper(changed)) != better


def test_the_order_is_the_paper_s_only_where_its_fastest_drafter_is():
    """Whichever drafter is faster than EAGLE-3, and only those that keep more tokens count in Spec-Bench."""
    record = store.stated_record("eagle3-table1")
    rows = [row("eagle3", "T = 0", 2.0), row("medusa", "T = 0", 1.0), row("draft_model", "T = 0", 3.0)]
    assert reason_against_paper(record.model_copy(update={"rows": rows}))
    rows.append(row("eagle3, public tree", "T = 0", 4.0))
    assert not reason_against_paper(record.model_copy(update={"rows": rows}))
    record = store.stated_record("spec-bench")
    rows = [row("medusa", "all kinds", 2.0), row("hydra", "all kinds", 1.0, kept=1.5)]
    assert not reason_against_paper(record.model_copy(update={"rows": rows}))
    rows.append(row("eagle3", "all kinds", 1.0, kept=2.5))
    assert reason_against_paper(record.model_copy(update={"rows": rows}))


@pytest.mark.parametrize("name", ["eagle3-table1", "tokenswift", "table2", "figure3"])
def test_the_page_says_the_reason_in_the_place_of_the_advice_to_compare(name):
    shown = load_section(ASSETS, name)
    reason = reason_against_paper(shown.record)
    assert (COMPARE in shown.introduction) != bool(reason)
    assert reason in shown.introduction
    assert reason == "" or "gainst the paper" in reason
