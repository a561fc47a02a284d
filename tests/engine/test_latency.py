"""The time of a step by tree size: measured with the real loop, read back, and turned into a budget."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import tiny

from medusa_core.drafters.medusa import medusa_draft, with_heads
from medusa_core.errors import MedusaError
from medusa_core.evaluation.latency import measure_latency
from medusa_core.trees.budget import (
    LatencyPoint,
    best_budget,
    budgets,
    parse_latency,
    plain_budget,
    read_latency,
    step_times,
    unsteady,
)
from medusa_core.trees.search import assumed_accuracies, read_accuracies, search_tree

PROMPTS = [[1, 2, 0, 3], [5, 0, 7]]


def curve(*pairs):
    return [LatencyPoint(nodes=nodes, step_ms=ms) for nodes, ms in pairs]


# ---- measuring ------------------------------------------------------------------------------------------


def test_every_size_is_run_once_a_round_and_all_its_phases_are_timed(engine):
    records = list(measure_latency(engine, PROMPTS, (1, 2, 6), rounds=3, new_tokens=24))
    assert [record.done for record in records] == list(range(1, 10))
    assert {record.total for record in records} == {9}
    for number in range(3):
        assert {record.nodes for record in records[3 * number : 3 * number + 3]} == {1, 2, 6}
    points = records[-1].latency
    assert [point.nodes for point in points] == [1, 2, 6]
    for point in points:
        phases = point.propose + point.verify + point.accept + point.commit
        assert 0 < point.verify < phases <= 1.5 * point.step_ms
        low, high = point.step_ms_range
        assert low <= point.step_ms <= high
        assert point.steps > 0
    plain, *trees = points
    assert plain.tokens_per_step == 1
    assert all(1 < tree.tokens_per_step <= 1 + tiny.HEADS for tree in trees)


def test_tokens_per_step_are_those_of_the_decode_loop(engine):
    tree = medusa_draft(engine).budget_tree(5)
    steps = tiny.run(with_heads(engine, default_tree=tree), PROMPTS[0], tree="default", max_new_tokens=24)
    counted = [len(step.verdict.path) for step in steps[1:] if step.tree.size == 6]
    *_, last = measure_latency(engine, PROMPTS[:1], (6,), rounds=2, new_tokens=24)
    assert last.latency[0].steps == 2 * len(counted)
    assert last.latency[0].tokens_per_step == pytest.approx(sum(counted) / len(counted), abs=1e-3)


def test_the_rounds_are_spread_over_all_prompts(engine):
    def counted(prompts, rounds):
        *_, last = measure_latency(engine, prompts, (6,), rounds=rounds, new_tokens=24)
        return last.latency[0].tokens_per_step, last.latency[0].steps

    many = [[1, 2], [0, 0], [3, 7], [5, 5], [9, 1], [2, 2]]
    assert counted(many, 3) == counted([many[0], many[2], many[4]], 3)
    assert counted(many, 3) != counted(many[:3], 3)


def test_a_text_is_not_followed_beyond_its_end(model):
    prompt = PROMPTS[0]
    free = tiny.emitted(
        tiny.run(tiny.build_engine(model, tiny.fitted_heads(model)), prompt, max_new_tokens=24)
    )
    end = free[11]
    ending = replace(
        tiny.build_engine(model, tiny.fitted_heads(model)), tokenizer=tiny.tiny_tokenizer(end_token=end)
    )
    *_, last = measure_latency(ending, [prompt], (1,), rounds=1, new_tokens=24)
    assert last.latency[0].steps == free.index(end)  # the first step is not counted


def test_a_size_beyond_what_the_heads_can_offer_is_left_out(model):
    one_head = tiny.build_engine(model, tiny.fitted_heads(model, 1))  # ten guesses, so eleven nodes at most
    *_, last = measure_latency(one_head, PROMPTS, (4, 11, 12), rounds=1, new_tokens=12)
    assert [point.nodes for point in last.latency] == [4, 11]


def test_steps_with_a_shallower_tree_do_not_count(engine):
    room = engine.target.context - len(PROMPTS[0])
    *_, last = measure_latency(engine, PROMPTS[:1], (8,), rounds=1, new_tokens=10 * room)
    whole = tiny.run(
        with_heads(engine, default_tree=medusa_draft(engine).budget_tree(7)), PROMPTS[0], tree="default",
        max_new_tokens=10 * room,
    )  # fmt: skip
    assert whole[-1].tree.size < 8  # there were such steps
    assert last.latency[0].steps == sum(step.tree.size == 8 for step in whole[1:])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sizes": ()}, "give 1 to 256"),
        ({"sizes": (0, 4)}, "give 1 to 256"),
        ({"sizes": (4, 257)}, "give 1 to 256"),
        ({"rounds": 0}, "rounds is 0: give 1 to 1000"),
        ({"rounds": 1001}, "rounds is 1001: give 1 to 1000"),
    ],
)
def test_impossible_measurements_are_named(engine, changes, words):
    with pytest.raises(MedusaError, match=words):
        next(measure_latency(engine, PROMPTS, **({"sizes": (4,), "rounds": 1, "new_tokens": 8} | changes)))


# ---- the curve ------------------------------------------------------------------------------------------


def test_between_two_sizes_the_time_lies_on_a_line_and_outside_it_stays():
    assert step_times(curve((2, 10), (4, 20)), [1, 2, 3, 4, 9]) == [10, 10, 15, 20, 20]


def test_a_larger_tree_is_never_faster():
    times = step_times(curve((1, 10), (2, 14), (4, 12), (8, 11), (16, 30)), [1, 2, 4, 8, 16])
    assert times == pytest.approx([10, 37 / 3, 37 / 3, 37 / 3, 30])
    assert step_times(curve((1, 3), (2, 2), (4, 1)), [1, 2, 4]) == [2, 2, 2]


def test_the_best_budget_against_working_it_out_size_by_size():
    accuracies, latency = assumed_accuracies(4), curve((1, 10), (2, 11), (8, 12), (32, 20), (64, 60))
    found = budgets(accuracies, latency)
    assert [budget.nodes for budget in found] == list(range(1, 65))
    rates = {}
    for nodes in range(2, 65):
        ms = step_times(latency, [nodes])[0]
        rates[nodes] = 1000 * search_tree(accuracies, nodes - 1).expected_length / ms
    best = best_budget(found)
    assert best.nodes == max(rates, key=rates.get)
    assert best.tokens_per_second == pytest.approx(rates[best.nodes])
    assert plain_budget(found).tokens_per_second == pytest.approx(100)


def test_of_equally_fast_trees_the_smaller_one_is_taken():
    # Heads that are never right: every tree keeps the root alone, and all cost the same.
    found = budgets([[0.0, 0.0], [0.0, 0.0]], curve((1, 9), (2, 10), (7, 10)))
    assert best_budget(found).nodes == 2
    assert plain_budget(found).tokens_per_second > best_budget(found).tokens_per_second


def test_a_curve_without_plain_decoding_begins_at_its_smallest_tree():
    found = budgets(assumed_accuracies(3), curve((4, 10), (8, 12)))
    assert [budget.nodes for budget in found] == [4, 5, 6, 7, 8]
    assert found[0].expected_length == pytest.approx(search_tree(assumed_accuracies(3), 3).expected_length)
    assert plain_budget(found) is None


def test_rounds_that_differ_much_are_a_warning():
    def ranged(high):
        return [LatencyPoint(nodes=n, step_ms=10, step_ms_range=(9, high)) for n in (1, 2, 4)]

    assert unsteady(ranged(11)) is None
    assert "factor of 3.0 or more in half of the sizes" in unsteady(ranged(27))
    assert unsteady(curve((1, 10))) is None


def test_no_curve_is_named():
    for latency in ([], curve((1, 10))):
        with pytest.raises(MedusaError, match="calibrate --latency"):
            budgets(assumed_accuracies(3), latency)


# ---- files ----------------------------------------------------------------------------------------------


def test_old_files_and_plain_lists_have_no_latency():
    for data in ([[0.5]], {"accuracies": [[0.5]]}, {"accuracies": [[0.5]], "latency": None}):
        assert parse_latency(data) == []


@pytest.mark.parametrize(
    ("latency", "words"),
    [
        ([{"nodes": 0, "step_ms": 1}], "greater than or equal to 1"),
        ([{"nodes": 2, "step_ms": 0}], "greater than 0"),
        ([{"nodes": 2, "step_ms": float("nan")}], "step_ms"),
        ([{"nodes": 2}], "step_ms Field required"),
        ([{"nodes": 2, "step_ms": 1}] * 2, "a size twice"),
        ("fast", "valid list"),
    ],
)
def test_a_bad_curve_is_named(latency, words):
    with pytest.raises(MedusaError, match=words):
        parse_latency({"latency": latency})


@pytest.fixture
def prompts_file(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text('{"text": "abcd"}\n{"text": "bcda"}\n', encoding="utf-8")
    return file


def test_calibrate_writes_both_and_search_takes_the_budget_from_it(
    engine_folder, prompts_file, tmp_path, command
):
    file = tmp_path / "a.json"
    common = ["--model", engine_folder, "--prompts", prompts_file, "--dtype", "float32"]
    few = ["--max-new-tokens", 40, "--sizes", "1,2,4,8", "--rounds", 2]
    assert command(["calibrate", *common, *few, "--out", file])[0] == 0
    record = json.loads(file.read_text(encoding="utf-8"))
    assert [point["nodes"] for point in record["latency"]] == [1, 2, 4, 8]
    assert record["machine"]["device"] == "cpu"
    assert record["machine"]["dtype"] == "float32"
    assert read_accuracies(file) == record["accuracies"]
    assert len(read_latency(file)) == 4
    code, out, err = command(["tree", "search", "--accuracies", file, "--nodes", "auto", "--json"])
    found = json.loads(out.splitlines()[-1])
    best = best_budget(budgets(record["accuracies"], parse_latency(record)))
    assert len(found["choices"]) == best.nodes - 1
    assert found["expected_length"] == pytest.approx(best.expected_length, abs=1e-3)
    assert (code, "best" in err) == (0, True)
    # The curve of one file for the accuracies of another.
    lone = tmp_path / "lone.json"
    lone.write_text(json.dumps(record["accuracies"]), encoding="utf-8")
    code, out, _ = command(["tree", "search", "--accuracies", lone, "--nodes", "auto", "--latency", file])
    assert (code, "best" in out) == (0, True)


def test_latency_can_be_left_out(engine_folder, prompts_file, tmp_path, command):
    file = tmp_path / "a.json"
    common = ["--model", engine_folder, "--prompts", prompts_file, "--max-new-tokens", 20]
    assert command(["calibrate", *common, "--no-latency", "--out", file])[0] == 0
    assert "latency" not in json.loads(file.read_text(encoding="utf-8"))
    code, _, err = command(["tree", "search", "--accuracies", file, "--nodes", "auto"])
    assert (code, 'run "calibrate --latency"' in err) == (2, True)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["calibrate", "--sizes", "1,x"], "write numbers with commas"),
        (["tree", "search", "--nodes", "many"], "give a number of drafted nodes, or auto"),
        (["tree", "search", "--nodes", "auto", "--latency", "/nowhere.json"], "directory): write it"),
    ],
)
def test_bad_input_is_one_line(engine_folder, prompts_file, tmp_path, command, argv, words):
    file = tmp_path / "a.json"
    file.write_text("[[0.5, 0.1]]", encoding="utf-8")
    calibrate = ["--model", engine_folder, "--prompts", prompts_file]
    code, _, err = command([*argv, *(calibrate if argv[0] == "calibrate" else ["--accuracies", file])])
    message = err.strip().splitlines()[-1]
    assert (code, message[:7]) == (2, "error: ")
    assert words in message
