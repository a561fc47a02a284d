"""What to expect here, and comparisons that the papers make: equal sizes, dense trees, errors."""

from __future__ import annotations

import json

import pytest

from medusa_core.drafters.medusa import medusa_draft
from medusa_core.experiments import eagle3_table1 as eagle3
from medusa_core.experiments import figure4
from medusa_core.experiments.record import Mean, Row, Spread, paper_facts
from medusa_core.experiments.spec_bench import ALL, STEP, Settings, of_all_kinds, step_times
from medusa_core.experiments.spec_bench import measurement as spec_bench
from medusa_core.trees.budget import parse_latency


@pytest.fixture(scope="module")
def found(setup):
    return spec_bench.measure(setup, Settings(nodes="2,6"))


def test_methods_are_compared_with_plain_decoding_and_with_generate(found):
    rows = {row.series: row for row in of_all_kinds(found.rows)}
    assert {"none", "medusa", "lookup", "hf", "hf-lookup"} <= set(rows)
    assert {row.label for row in found.rows if row.series != STEP} == {"Story", "Chat", ALL}
    assert {row.prompts for row in rows.values()} == {3}
    assert (rows["none"].speedup.median, rows["hf"].over_generate.median) == (1, 1)
    medusa, hf = rows["medusa"], rows["hf"]
    assert medusa.over_generate.low > 0
    assert medusa.tokens_per_step.mean > 1
    assert set(medusa.phase_ms) == {"propose", "verify", "accept", "commit"}
    assert (hf.phase_ms, hf.tree_nodes, hf.tokens_per_step.mean) == ({}, None, 1)
    # The step of a method that is not ours is its whole time over its steps.
    rates = hf.tokens_per_second
    assert 0.999 * 1000 / rates.high <= hf.step_ms <= 1.001 * 1000 / rates.low
    assert {row.same_texts for row in rows.values()} == {3}  # in float32


def test_a_step_by_its_nodes_is_of_the_same_run_as_plain_decoding_s(found):
    steps = [row for row in found.rows if row.series == STEP]
    assert [row.tree_nodes for row in steps] == [1, 2, 6]
    plain = next(row for row in of_all_kinds(found.rows) if row.series == "none")
    assert (steps[0].step_ms, steps[0].tokens_per_step.mean) == (plain.step_ms, 1)
    assert (steps[0].overhead, steps[0].label, steps[1].label) == (1, "1 node", "2 nodes")
    medusa = next(row for row in of_all_kinds(found.rows) if row.series == "medusa")
    times = {point.nodes: point.step_ms for point in parse_latency({"latency": step_times(found.rows)})}
    assert set(times) == {1, 2, 6, medusa.tree_nodes}
    assert times[medusa.tree_nodes] == medusa.step_ms  # the figure that is stated of Medusa
    assert any(f"tree auto: {medusa.tree_nodes} nodes" in note for note in found.notes)


def is_dense(tree):
    """Whether all nodes of a depth have as many children."""
    nodes = [(), *tree.choices]
    children = {node: sum(other[:-1] == node for other in tree.choices) for node in nodes}
    by_depth = {depth: {children[node] for node in nodes if len(node) == depth} for depth in map(len, nodes)}
    return all(len(counts) == 1 for counts in by_depth.values())


def test_figure4_draws_random_dense_trees_between_two_sizes(setup):
    accuracies = medusa_draft(setup.engine).require_accuracies()
    sizes = [2, 8, 32]
    drawn = figure4.candidate_trees(accuracies, sizes, figure4.Settings(random_trees=3, seed=1))
    dense = [one.tree for one in drawn if one.series in (figure4.RANDOM, figure4.CARTESIAN)]
    assert all(map(is_dense, dense))
    random = [one.tree.size for one in drawn if one.series == figure4.RANDOM]
    assert len([size for size in random if 8 < size <= 32]) == 3
    assert len([size for size in random if 2 < size <= 8]) == 3
    sparse = next(one.tree for one in drawn if one.label == f"{figure4.OPTIMISED} 32")
    assert not is_dense(sparse)


def row(series, nodes, kept, error, label="a tree"):
    rate = Spread(median=1.0, low=1.0, high=1.0)
    return Row(
        series=series, label=label, x=nodes, prompts=2, new_tokens=9, tree_nodes=nodes, step_ms=1.0,
        phase_ms={}, tokens_per_step=Mean(mean=kept, standard_error=error), tokens_per_second=rate,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kept", "error", "words"),
    [(4.13, 0.27, "no more, within the errors, than"), (4.13, 0.02, "more than"), (3.5, 0.02, "fewer than")],
)
def test_figure4_claims_nothing_inside_its_errors(kept, error, words):
    rows = [
        row(figure4.OPTIMISED, 32, 3.9, error),
        row(figure4.OPTIMISED, 64, kept, error, "optimised 64"),
        row(figure4.OPTIMISED, 128, 4.3, error),
        row(figure4.CARTESIAN, 256, 4.06, error, "cartesian 4×4"),
    ]
    assert figure4.comparison(rows) == [f"The optimised 64 keeps {words} the cartesian 4×4 of 256 nodes."]
    assert figure4.comparison(rows[:2]) == []


def test_eagle3_is_compared_with_each_drafter_at_each_size():
    kept = {
        "medusa": 3.0, "eagle3": 3.3, "medusa, 16 nodes": 2.0, "hydra, 16 nodes": 4.0,
        "eagle3, 16 nodes": 5.0,
    }  # fmt: skip
    rows = [
        row(series, 16, mean * factor, 0.1, label)
        for label, factor in (("T = 0", 1.0), ("T = 1", 0.5))
        for series, mean in kept.items()
    ]
    rows.append(row("medusa, 60 nodes", 60, 4.0, 0.1, "T = 0"))
    (words,) = eagle3.ratios(rows)
    assert words.endswith(
        "others' with 16 nodes: T = 0: medusa 2.50, hydra 1.25; T = 1: medusa 2.50, hydra 1.25."
    )


def test_what_the_papers_say_is_quoted_as_they_say_it():
    claims = json.dumps(paper_facts("eagle3-table1").claims)
    assert "20 to 40 %" in claims
    assert "1.4 times" not in claims
