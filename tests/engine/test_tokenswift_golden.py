"""TokenSwift against a recording of its public code (tests/golden).

Heads, counts of n-grams and chosen rows agree. Of runs, the output is plain greedy decoding's and each draft
is the recorded one until rows are chosen anew for the first time: the public code then drafts once over the
first and the newest rows, and chooses with the query of the last node of a tree, where this project chooses
at once with that of the last accepted token. With the public way put in its place, whole runs agree.
"""

from __future__ import annotations

import functools
from collections import Counter
from statistics import mean

import pytest
import tiny
import torch
from golden import golden_rows

from medusa_core.config import GenerationConfig
from medusa_core.drafters._ngram_table import NgramTable
from medusa_core.drafters.tokenswift import drafter as drafter_module
from medusa_core.model.partial_cache import PartialCache, most_important
from medusa_core.model.target import Target

BUDGET, SINKS = 32, 16
GUESSES = 41  # nodes of the paper's tree

both = pytest.mark.parametrize("golden", golden_rows("tokenswift"))


@functools.cache
def golden_engine(golden):
    """The whole model of the recording, which holds its heads."""
    folder = golden.models() / "model"
    return tiny.load_from(folder, folder)


def runs(golden, mode):
    return [run for run in golden.recorded()["runs"] if run["mode"] == mode]


def numbers(golden):
    return [(number,) for number in range(len(golden.recorded()["prompts"]))]


def golden_steps(golden, run, new_tokens=64):
    config = GenerationConfig.of(
        method="tokenswift", draft_budget=BUDGET, draft_sinks=SINKS, max_new_tokens=new_tokens,
        draft_ngrams=20 if run["mode"] == "plain" else 0, ignore_eos=True,
    )  # fmt: skip
    return list(golden_engine(golden).stream(golden.recorded()["prompts"][run["prompt"]], config))


@both
def test_heads_say_what_was_recorded(golden):
    within = {"rtol": 0, "atol": golden.within(1e-5, 5e-3)}
    heads = golden_engine(golden).drafts["tokenswift"].heads
    for case in golden.recorded()["unit"]["heads"]:
        hidden = torch.tensor(case["hidden_pre_norm"])
        for ours, wanted in zip(heads.states(hidden), case["hidden_after"], strict=True):
            torch.testing.assert_close(ours, torch.tensor(wanted), **within)
        torch.testing.assert_close(heads(hidden), torch.tensor(case["logits"][1:]), **within)


def counts_of(table: NgramTable, first: int) -> dict[tuple[int, ...], int]:
    """How often each complete n-gram after ``first`` stands in the text."""
    return {following: len(places) for following, places in table._places.get(first, {}).items()}


@both
def test_n_grams_are_counted_as_they_truly_stand(golden):
    """The public table loses entries; these are the counts kept beside it."""
    for case in golden.recorded()["unit"]["ngram"]:
        following = case["n"] - 1
        table = NgramTable(following)
        table.extend(case["preload"])
        for first, said in case["after_preload"].items():
            wanted = {tuple(gram[1:]): count for gram, count in said["true_counts"]}
            assert counts_of(table, int(first)) == wanted
        # Updates come one by one; as texts of their own, since nothing of the recording stands between them.
        counts = Counter()
        for update in case["updates"]:
            one = NgramTable(following)
            one.extend(update["gram"])
            counts.update(
                {(update["gram"][0], *gram): n for gram, n in counts_of(one, update["gram"][0]).items()}
            )
        for first, said in case["after_updates"].items():
            total = Counter({tuple(gram): count for gram, count in said["true_counts"]})
            before = {(int(first), *gram): n for gram, n in counts_of(table, int(first)).items()}
            mine = Counter({gram: n for gram, n in counts.items() if gram[0] == int(first)})
            mine.update(before)
            assert mine == total


@both
def test_the_rows_that_count_are_the_recorded_ones(golden):
    for case in golden.recorded()["unit"]["kv_selection"]:
        rows = most_important(
            torch.tensor(case["q_last"]), torch.tensor(case["k"]), case["budget"], case["start_size"]
        )
        wanted = case["kept_in_cache_order_per_kv_head"]
        assert [set(row) for row in rows.tolist()] == [set(row) for row in wanted]
        if case["budget"] < case["kv_len"]:
            assert rows.tolist() == wanted  # the least important at the end, where new rows go


@pytest.mark.sample
@pytest.mark.parametrize(("golden", "number"), golden_rows("tokenswift", numbers))
@pytest.mark.parametrize("mode", ["plain", "plain_no_ngram"])
def test_drafts_are_the_recorded_ones_until_rows_are_chosen_anew(golden, number, mode):
    run = runs(golden, mode)[number]
    steps = golden_steps(golden, run)
    assert tiny.emitted(steps) == golden.recorded()["plain_greedy"][number] == run["output_ids"]
    same, ahead = 0, 0
    for ours, wanted in zip(steps, run["steps"], strict=False):
        # N-grams that the public table leaves out or loses lead further: then the texts stand elsewhere.
        if ahead or wanted["kv_prefill_len"] != 48:
            break
        ahead = len(ours.verdict.path) - len(wanted["accept_tokens"])
        tokens = ours.tree.tokens.tolist()
        assert tokens[:GUESSES] == wanted["tree_tokens"]
        first_of_depth = [1, 2, 5, 14]
        tops = [tokens[node : node + (3 if node > 1 else 1)] for node in first_of_depth]
        assert tops == [top[: len(own)] for top, own in zip(wanted["heads_top3"], tops, strict=True)]
        same += 1
    assert same >= 5


class PublicRows(PartialCache):
    """The public code's way to choose rows anew, which is a step late and by another query."""

    last_node: torch.Tensor  # queries of the last row of the last verification
    due = 0  # rows of the text to choose among, once that step is over

    def over(self, full, queries):
        if not self._taken:
            return super().over(full, queries)
        rows = range(self._taken, full.length)
        if self.due:
            self._choose(full, self.last_node.view(len(full.tree_layers), -1, 12), self.due)
            self._selected, rows, self.due = self.due, range(self.due, full.length), 0
        if full.length - self._selected > self.budget - self.sinks:
            self.due, rows = full.length, range(full.length - (self.budget - self.sinks), full.length)
        elif rows:
            rows = range(self._selected, full.length)
        for own, its in zip(self._cache.tree_layers, full.tree_layers, strict=True):
            own.take(its, torch.tensor(rows, dtype=torch.long).expand(2, -1), self.budget - len(rows))
        self._taken, self._cache.left_out = full.length, full.length - self.budget
        return self._cache

    def _choose(self, full, queries, length):
        for own, its, query in zip(self._cache.tree_layers, full.tree_layers, queries, strict=True):
            own.take(its, most_important(query, its.keys[0, :, :length], self.budget, self.sinks), 0)


@pytest.mark.parametrize(("golden", "number"), golden_rows("tokenswift", numbers))
def test_whole_runs_are_the_recorded_ones_when_rows_are_chosen_in_the_public_way(golden, number, monkeypatch):
    real = Target.verify_all

    def verify_all(self, trees, caches, features):
        results = real(self, trees, caches, features)
        for tree, (_, read) in zip(trees, results, strict=True):
            if tree.size > 1:
                PublicRows.last_node = read[-1]
        return results

    monkeypatch.setattr(Target, "verify_all", verify_all)
    monkeypatch.setattr(drafter_module, "PartialCache", PublicRows)
    run = runs(golden, "plain_no_ngram")[number]
    steps = golden_steps(golden, run)
    # The recording counts the next root as said, so it may end a step sooner.
    assert 0 <= len(steps) - len(run["steps"]) <= 1
    for ours, wanted in zip(steps, run["steps"], strict=False):
        assert ours.tree.tokens.tolist() == wanted["tree_tokens"]
        assert len(ours.verdict.path) - 1 == wanted["accepted"]


@pytest.mark.slow
@pytest.mark.parametrize("golden", [row for row in golden_rows("tokenswift") if row.values[0].full])
def test_about_as_much_is_accepted_as_was_recorded(golden):
    """Over all prompts; which rows are chosen moves each prompt's number either way."""
    for mode in ("plain", "plain_no_ngram"):
        ours = [
            mean(len(step.verdict.path) - 1 for step in golden_steps(golden, run))
            for run in runs(golden, mode)
        ]
        assert mean(ours) > 0.95 * mean(run["mean_accepted"] for run in runs(golden, mode))
