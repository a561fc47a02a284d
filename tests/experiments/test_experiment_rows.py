"""From measurements and formulas to the rows of an experiment, and what the page remarks on them."""

from __future__ import annotations

import html
import json
import math
import re
import statistics
from dataclasses import replace

import pytest
import tiny
import torch
from tiny_experiments import SIMULATED, headline

from medusa_core.cli.main import main
from medusa_core.errors import MedusaError
from medusa_core.evaluation.turns import Measurement, MethodLog
from medusa_core.experiments import quality, rows, store
from medusa_core.experiments.record import Mean, Row, Spread, read_record
from medusa_core.experiments.remarks import further_remarks, reason_against_paper, shipped_weights
from medusa_core.experiments.spec_bench import of_all_kinds
from ui.figures.experiments import charts
from ui.records.examples import ASSETS
from ui.tabs.experiments import COMPARE, _note, load_section


def log_of(*rounds):
    """A log from (tokens, seconds, steps) of each prompt in each round."""
    phases = {"propose": 1.0, "verify": 2.0, "accept": 0.5, "commit": 0.5, "total": 4.0}

    def measured(tokens, seconds, steps):
        return Measurement([1] * tokens, seconds, steps, {name: ms * steps for name, ms in phases.items()})

    return MethodLog([[measured(*entry) for entry in r] for r in rounds])


# ---- from measurements to rows


def test_a_row_says_what_was_measured():
    fast = log_of([(10, 1.0, 4), (20, 1.0, 8)], [(10, 2.0, 4), (20, 1.0, 8)])
    plain = log_of([(10, 2.0, 10), (20, 4.0, 20)], [(10, 2.0, 10), (20, 4.0, 20)])
    row = rows.make_row(fast, plain, series="a", label="b", tree_nodes=7)
    assert (row.prompts, row.new_tokens, row.tree_nodes) == (2, 60, 7)
    assert row.tokens_per_step.mean == 30 / 12
    assert row.tokens_per_second.median == pytest.approx(statistics.median([15, 10]))
    assert row.tokens_per_second.low == 10
    assert row.speedup.high == pytest.approx(15 / 5)
    assert row.overhead == 1.0
    assert row.phase_ms == {"propose": 1.0, "verify": 2.0, "accept": 0.5, "commit": 0.5}


def test_the_error_of_a_ratio_is_that_of_a_mean_when_all_parts_weigh_alike():
    values = [3.0, 5.0, 4.0, 8.0]
    found = rows.ratio(values, [1.0] * 4)
    assert found.mean == statistics.mean(values)
    assert found.standard_error == pytest.approx(statistics.stdev(values) / 2, abs=1e-5)
    assert rows.ratio([6.0], [2.0]).standard_error is None


def test_the_error_of_a_ratio_agrees_with_leaving_out_one_prompt_at_a_time():
    generator = torch.Generator().manual_seed(0)
    below = (10 + torch.rand(200, generator=generator) * 5).tolist()
    above = [b * (2 + float(torch.randn(1, generator=generator)) * 0.2) for b in below]
    left_out = [(sum(above) - a) / (sum(below) - b) for a, b in zip(above, below, strict=True)]
    slow = math.sqrt(199 / 200 * sum((value - statistics.mean(left_out)) ** 2 for value in left_out))
    assert rows.ratio(above, below).standard_error == pytest.approx(slow, rel=0.02)


def test_parts_and_unions_of_logs():
    log = log_of([(1, 1, 1), (2, 1, 1), (3, 1, 1)])
    assert rows.by_prompt(log.only([0, 2]), lambda m: len(m.tokens)) == [1, 3]
    assert rows.by_prompt(MethodLog(log.rounds * 2), lambda m: len(m.tokens)) == [2, 4, 6]


def test_repeated_pieces_are_counted_within_a_text():
    def text(*tokens):
        return Measurement(list(tokens), 1.0, 1, {})

    assert rows.distinct_share([text(1, 2, 3, 1, 2, 3)]) == pytest.approx(3 / 4)
    assert rows.distinct_share([text(1, 2, 3), text(1, 2, 3)]) == 1.0
    assert rows.distinct_share([text(1, 2)]) is None


# ---- quality


def test_the_judges_likelihood_equals_a_token_by_token_count(setup):
    target, before, tokens = setup.engine.target, [1, 2, 0], [3, 0, 7, 7]
    slow = 0.0
    for place, token in enumerate(tokens):
        with torch.inference_mode():
            logits = target.model(torch.tensor([before + tokens[:place]])).logits[0, -1]
        slow += float(torch.log_softmax(logits, dim=-1)[token])
    assert quality.log_likelihood(target, quality.Text(before, tokens)) == pytest.approx(slow, rel=1e-5)


def test_heldout_loss_equals_the_library_s_own(setup, tmp_path):
    file = tmp_path / "heldout.txt"
    file.write_text("abcabdaccadb\n<|endoftext|>\nfghfg\n", encoding="utf-8")
    texts = quality.read_heldout(file, setup.engine, window=5, most=10)
    assert [len(text.tokens) for text in texts] == [4, 4, 1, 4]
    heldout = quality.Heldout.of(setup.engine.target, texts)
    total = 0.0
    for text in texts:
        ids = torch.tensor([text.before + text.tokens])
        with torch.inference_mode():
            total += float(setup.engine.target.model(ids, labels=ids).loss) * len(text.tokens)
    assert heldout.mean().mean == pytest.approx(total / 13, rel=1e-4)
    assert heldout.change(heldout).mean == heldout.change(heldout).standard_error == 0
    assert len(quality.read_heldout(file, setup.engine, window=5, most=2)) == 2


def test_a_judge_of_another_vocabulary_is_refused(setup):
    other = replace(setup.engine, tokenizer=tiny.tiny_tokenizer(end_token=3))
    other.tokenizer.add_tokens(["new"])
    with pytest.raises(MedusaError, match="same vocabulary"):
        quality.require_same_tokens(other, setup.engine)


# --- Where an experiment comes out against the paper the page says why, first, and not to compare the order.


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
        "figure3": [row("Medusa", "Story", 0.6 * fast), row("Medusa", "all kinds", 1.3)],
        "figure5": [row(eps, "0.25", 1, 0.25, kept=slow), row(eps, "0.01", 1, 0.01, kept=fast)],
        "figure7": [
            row("plain decoding", "plain decoding", 1.0), row("1 M", "γ = 1", 0.9, 1),
            row("1 M", "γ = 2", 0.6 * fast, 2), row("1 M, by the formula", "γ = 1", 1.2, 1),
        ],
    }  # fmt: skip


def test_a_record_of_the_embedded_model_s_older_weights_says_so():
    model = headline().model
    of_now = model.model_copy(update={"weights": shipped_weights(model.base)})
    assert further_remarks(headline(model=of_now)) == []
    of_old = model.model_copy(update={"weights": ""})
    assert "the old weights" in further_remarks(headline(model=of_old))[-1]
    assert further_remarks(headline(model=model.model_copy(update={"base": "other", "weights": ""}))) == []


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
    rows.append(row("eagle3, 60 nodes", "T = 0", 4.0))
    assert not reason_against_paper(record.model_copy(update={"rows": rows}))
    record = store.stated_record("spec-bench")
    rows = [row("medusa", "all kinds", 2.0), row("hydra", "all kinds", 1.0, kept=1.5)]
    assert not reason_against_paper(record.model_copy(update={"rows": rows}))
    rows.append(row("eagle3", "all kinds", 1.0, kept=2.5))
    assert reason_against_paper(record.model_copy(update={"rows": rows}))


@pytest.mark.parametrize("name", ["eagle3-table1", "tokenswift", "table2", "figure3", "figure7"])
def test_the_page_says_the_reason_in_the_place_of_the_advice_to_compare(name):
    shown = load_section(ASSETS, name)
    reason = reason_against_paper(shown.record)
    assert (COMPARE in shown.introduction) != bool(reason)
    assert reason in shown.introduction
    assert reason == "" or "nlike in the paper" in reason
    if reason and name == "figure7":  # the note states the same time
        (share,) = re.findall(r"drafting a token takes (\S+) of a plain step", shown.record.notes[0])
        assert f"drafting a token takes {share} of the time of a plain step" in reason


# --- Figures 21 to 23 are computed by formulas: the command writes them, the page reads and draws them.


@pytest.mark.parametrize("name", SIMULATED)
def test_the_command_computes_what_is_shipped_and_the_page_draws_it(name, tmp_path, capsys):
    assert (
        main(["reproduce", name, "--out", str(tmp_path / "measured" / "formulas" / f"{name}.json"), "--json"])
        == 0
    )
    record = read_record(tmp_path / "measured" / "formulas" / f"{name}.json")
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["simulated"] is True
    shipped = read_record(ASSETS / "measured" / "formulas" / f"{name}.json")
    assert record.rows == shipped.rows
    section = load_section(tmp_path, name)
    assert "nothing was run" in section.introduction
    assert f"reproduce {name}" in section.details
    assert 1 <= len(charts(record, dark=False)) <= 2


def test_settings_are_read_and_refused(tmp_path, capsys):
    out = tmp_path / "record.json"
    assert (
        main(["reproduce", "figure22", "--batches", "2,64", "--model", "llama-13b", "--out", str(out)]) == 0
    )
    record = read_record(out)
    assert {row.series for row in record.rows} == {"batch 2", "batch 64"}
    assert record.command.endswith("--model llama-13b --batches 2,64")
    assert any("batch 64: no number of candidates" in note for note in record.notes)
    capsys.readouterr()
    for words, said in (
        (["--batches", "two"], "--batches is 'two'"),
        (["--batches", "0"], "--batches is '0'"),
    ):
        assert main(["reproduce", "figure22", *words]) == 2
        assert said in capsys.readouterr().err


# --- The notes of a stored experiment as the page says them.


START = "Texts identical to plain decoding's, of 12: "


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("none 12, medusa 12", "12 with each of 2 methods"),
        ("medusa 12, lookup 11, none 12", "Prompt lookup 11, 12 with each of 2 methods"),
        ("tokenswift 12, tokenswift, penalty 12", "12 with each of 2 methods"),  # a name with a comma
        ("medusa 12, lookup 11", "Medusa heads 12, Prompt lookup 11"),  # one alone is named
    ],
)
def test_methods_whose_texts_are_all_identical_are_counted(listed, said):
    text = html.unescape(re.sub("<[^>]+>", "", _note(f"{START}{listed}.")))
    assert text == f"{START}{said}."


def test_the_identical_texts_are_stated_of_transformers_own_ways_too():
    shown = load_section(ASSETS, "spec-bench")
    (own,) = [row for row in of_all_kinds(shown.record.rows) if row.series == "hf"]
    note = next(line for line in shown.details.split("<li>") if "Texts identical" in line)
    text = html.unescape(re.sub("<[^>]+>", "", note))
    assert (f"transformers' generate {own.same_texts}" in text) == (own.same_texts < own.prompts)
    assert "methods" in text


def test_figure_4_names_the_nodes_of_the_tree_that_is_fastest():
    ring = charts(store.stated_record("figure4"), dark=False)[1][1].data[-1]
    assert re.fullmatch(rf"fastest: \w+, {ring.x[0]:g} nodes", ring.name)
