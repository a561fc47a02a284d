"""Long texts by their length: rows are sums over the very steps of a long run, beside plain decoding's."""

from __future__ import annotations

import itertools

import pytest
import tiny
from tiny_experiments import build_setup

from medusa_core.errors import MedusaError
from medusa_core.experiments.settings import PLAIN, RunSettings
from medusa_core.experiments.setup import Setup
from medusa_core.experiments.tokenswift import PENALTY, Settings, measurement
from medusa_core.experiments.tokenswift.measurement import measure, series_of
from medusa_core.longrun.segments import decode_segments

LENGTHS = (40, 300)  # the second one needs a longer context, and a second segment


@pytest.fixture(scope="module")
def setup(engine_folder):
    built = build_setup(engine_folder)
    return Setup(built.engine, built.load, {"Story": [[1, 2, 0, 3]]}, RunSettings(rounds=1))


@pytest.fixture(scope="module")
def found(setup):
    return measure(setup, Settings(lengths=",".join(map(str, LENGTHS))))


def rows_of(found, series):
    return [row for row in found.rows if row.series == series]


def test_each_series_has_a_row_for_each_length(found):
    names = list(dict.fromkeys(row.series for row in found.rows))
    assert names == [PLAIN, "medusa", f"{PLAIN}, {PENALTY}", f"medusa, {PENALTY}"]
    for name in names:
        assert [row.x for row in rows_of(found, name)] == list(LENGTHS)
        assert all(row.tokens_per_second.median > 0 and row.step_ms > 0 for row in rows_of(found, name))
    with_penalty = rows_of(found, f"medusa, {PENALTY}")[-1]
    assert with_penalty.distinct_n[0] > rows_of(found, "medusa")[-1].distinct_n[0]
    for row in rows_of(found, PLAIN):
        assert (row.speedup.median, row.overhead, row.tokens_per_step.mean, row.alpha) == (1, 1, 1, None)


def test_the_figures_are_those_of_the_long_run(setup, found):
    """Tokens, steps and α of the whole text, counted again by hand on the engine with the longer context."""
    engine = measurement._with_room(setup, 4 + LENGTHS[-1] + 64)
    assert engine.target.context == 368
    config = series_of("medusa", LENGTHS[-1], 0.0)["medusa"].config
    state = engine.new_state(4, config)
    steps = list(decode_segments(engine, [1, 2, 0, 3], config, state))
    row = rows_of(found, "medusa")[-1]
    assert row.new_tokens == sum(len(step.emitted) for step in steps) == LENGTHS[-1]
    assert row.tokens_per_step.mean == pytest.approx(LENGTHS[-1] / len(steps), abs=1e-4)
    drafted = sum(max(step.tree.depths) for step in steps)
    kept = sum(len(step.verdict.path) - 1 for step in steps)
    assert row.alpha == pytest.approx(kept / drafted, abs=1e-4)
    text = tiny.emitted(steps)
    pairs = list(itertools.pairwise(text))
    assert row.distinct_n[:2] == pytest.approx([len(set(text)) / 300, len(set(pairs)) / 299], abs=1e-4)
    assert row.cache_bytes == engine.target.cache_bytes(4 + LENGTHS[-1])
    assert "Texts identical to plain decoding's, of 1: medusa 1" in " ".join(found.notes)
    assert "context 368 by YaRN" in found.notes[0]
    assert found.info.context == 368


def test_an_ablation_changes_one_setting_and_plain_decoding_where_it_is_of_the_run(setup):
    vary = "tree=cartesian-2x2, penalty=1.1, prefill=9"
    found = measure(setup, Settings(lengths="20", method="medusa", vary=vary))
    rows = {row.series: row for row in found.rows}
    added = [f"{who}, {what}" for what in ("penalty 1.1", "prefill 9") for who in (PLAIN, "medusa")]
    assert list(rows)[4:] == ["medusa, tree cartesian-2x2", *added]
    assert rows["medusa, prefill 9"].cache_bytes == setup.engine.target.cache_bytes(9 + 20)
    assert "medusa, prefill 9 1" in " ".join(found.notes)  # its text is plain decoding's behind that prompt
    for what in ("penalty 1.1", "prefill 9"):
        assert rows[f"{PLAIN}, {what}"].speedup.median == 1
    series = measurement.varied("medusa", series_of("medusa", 20, 0.0)["medusa"].config, vary)
    text = measurement._begun(setup.engine, [1, 2, 0, 3], series["medusa, prefill 9"].prefill)
    assert len(text) == 9
    assert text[:4] == [1, 2, 0, 3]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(lengths="a"), "lengths is 'a'"),
        (Settings(lengths="0,5"), "lengths is '0,5'"),
        (Settings(lengths="5", method="eagle3"), "--method is 'eagle3', which cannot be run here"),
        (Settings(lengths="5", vary="draft_budget=32"), "--vary has 'draft_budget=32': write NAME=VALUE"),
        (Settings(lengths="5", vary="penalty=much"), "'much' is not a value of penalty"),
        (Settings(lengths="5", vary="penalty=0.5"), "penalty is 0.5, the smallest is 1"),
    ],
)
def test_bad_settings_are_refused(setup, settings, words):
    with pytest.raises(MedusaError, match=words):
        measure(setup, settings)
