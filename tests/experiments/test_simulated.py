"""Figures 21 to 23 are computed by formulas: the command writes them, the page reads and draws them."""

from __future__ import annotations

import json

import pytest
from tiny_experiments import SIMULATED

from medusa_core.cli.main import main
from medusa_core.experiments.record import read_record
from ui.figures.experiments import charts
from ui.records.examples import ASSETS
from ui.tabs.experiments import load_section


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
    assert 1 <= len(charts(record)) <= 2


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
    for words, said in ((["--batches", "two"], "--batches is 'two'"), (["--batches", "0"], "batch is 0")):
        assert main(["reproduce", "figure22", *words]) == 2
        assert said in capsys.readouterr().err
