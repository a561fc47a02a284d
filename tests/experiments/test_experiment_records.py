"""Records of experiments: made by the command, read back, drawn, and shown on the page."""

from __future__ import annotations

import json

import eagle3_files
import pytest
from tiny_experiments import NAMES, SIMULATED, write_draft_model, write_text

from medusa_core.cli.main import main
from medusa_core.cli.reproduce import print_table
from medusa_core.errors import MedusaError
from medusa_core.experiments import eagle3_training, experiment_names, load_experiment, store, table2
from medusa_core.experiments.record import PaperRow, paper_facts, read_record, write_record
from medusa_core.experiments.settings import PLAIN
from ui.figures import experiments as figures
from ui.tabs.experiments import load_section

PLAIN_TYPES = {"bar", "heatmap", "scatter"}


@pytest.fixture(scope="module")
def records(engine_folder, trained, prompt_file, tmp_path_factory):
    """A stored record of every experiment, made by the command itself on the tiny engine."""
    folder = tmp_path_factory.mktemp("assets") / "measured" / "tiny"
    for name in NAMES:
        common = ["--model", engine_folder, "--dtype", "float32", "--device", "cpu", "--quick"]
        common += ["--prompts", f"Letters={prompt_file}", "--limit", 2, "--out", folder / f"{name}.json"]
        if name.startswith("table"):
            known = trained if name == "table2" else trained.rpartition(",")[0]
            common += ["--variants", known, "--calibration", prompt_file]
        if name == "figure7":
            draft = write_draft_model(engine_folder, folder.parents[1] / "draft")
            common += ["--draft-models", f"small={draft}"]
        if name == "eagle3-training":
            layer = folder.parents[1] / "layer"
            eagle3_files.write(layer, eagle3_files.state(), eagle3_files.config())
            common += ["--layers", ",".join(f"{name}={layer}" for name in eagle3_training.variants_of(2))]
        if name == "grouped-heads":
            text = write_text(folder.parents[1])
            common += ["--data", text, "--runs", folder.parents[1] / "runs"]
        assert main([str(part) for part in ("reproduce", name, *common)]) == 0
    return folder.parents[1]


# ---- records and the command


def test_every_experiment_is_found_and_has_the_paper_s_figures():
    assert experiment_names() == sorted([*NAMES, *SIMULATED])
    for name in experiment_names():
        module = load_experiment(name)
        assert module.TITLE
        assert set(getattr(module, "QUICK", ())) <= set(vars(module.Settings()))
        facts = paper_facts(name)
        assert facts.claims
        # A figure of the paper belongs to a row of ours, or the chart could not set them side by side.
        if name == "table2":
            assert {row.label for row in facts.rows} == {PLAIN, *table2.LABELS.values()}
    assert PaperRow(series="paper", label="+ Medusa-2 training", speedup=2.8) in paper_facts("table3").rows


def test_records_are_read_back_as_written(records, tmp_path):
    for name in NAMES:
        record = read_record(records / "measured" / "tiny" / f"{name}.json")
        assert (record.name, record.schema_version) == (name, 1)
        assert record.command.startswith(f"python -m medusa_core reproduce {name} ")
        assert str(records.parent) not in (records / "measured" / "tiny" / f"{name}.json").read_text("utf-8")
        assert record.model.parameters > 0
        assert record.machine.threads >= 1
        write_record(record, tmp_path / "again.json")
        assert read_record(tmp_path / "again.json") == record


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"rows": []}, "no rows"),
        ({"surprise": 1}, "surprise"),
        ({"quality": None}, "does not say what it means"),
    ],
)
def test_a_bad_record_is_refused_with_the_place(records, tmp_path, change, cause):
    data = json.loads((records / "measured" / "tiny" / "figure5.json").read_text("utf-8"))
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(data | change), encoding="utf-8")
    with pytest.raises(MedusaError, match=cause):
        read_record(file)


def test_the_tables_of_every_stored_record_fit_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    for kind in store.kinds():
        for name in experiment_names():
            if (record := store.record(name, kind.slug)) is not None:
                print_table(record)
    out = capsys.readouterr().out
    assert "Medusa-2, two stages" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out


def test_the_command_prints_a_table_and_the_record(engine_folder, prompt_file, capsys):
    code = main(
        ["reproduce", "figure3", "--quick", "--json", "--model", str(engine_folder), "--dtype", "float32",
         "--prompts", f"Letters={prompt_file}", "--max-new-tokens", "8"]
    )  # fmt: skip
    out = capsys.readouterr().out
    assert code == 0
    record = json.loads(out.splitlines()[-1])
    assert record["settings"] == {"rounds": 1, "max_new_tokens": 8, "prompts": "Letters 1"}
    for words in ("--max-new-tokens 8", "--quick", f"Letters={prompt_file.name}"):
        assert words in record["command"]
    assert str(prompt_file) not in record["command"]
    assert "all kinds" in out


@pytest.mark.parametrize(
    ("flags", "cause"),
    [
        (["figure3", "--quick", "--store"], "too coarse"),
        (["figure3", "--again"], "add --store"),
        (["figure3", "--prompts", "Nothing=shipped"], "no shipped prompts"),
        (["figure3", "--limit", "0"], "--limit"),
        (["figure3", "--rounds", "0"], "rounds is 0"),
        (["figure3", "--prompts", "A=missing.jsonl"], "cannot read"),
        (["figure4", "--nodes", "0"], "--nodes"),
        (["figure5", "--epsilons", "7"], "epsilon is 7"),
        (["figure9"], "invalid choice"),
    ],
)
def test_bad_input_ends_in_one_line(engine_folder, prompt_file, command, flags, cause):
    if "--prompts" not in flags:
        flags = [*flags, "--prompts", f"Letters={prompt_file}"]
    if flags[0] != "figure9":
        flags = [*flags, "--model", str(engine_folder)]
    code, _, err = command(["reproduce", *flags])
    errors = [line for line in err.splitlines() if "error:" in line]
    assert (code, len(errors)) == (2, 1)
    assert cause in errors[0]


# ---- the page


@pytest.mark.sample
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_charts_draw_with_types_the_old_plotly_js_knows(records, name, dark):
    record = read_record(records / "measured" / "tiny" / f"{name}.json")
    found = figures.charts(record, dark)
    assert 1 <= len(found) <= 2
    for title, figure in found:
        assert title
        assert not figure.layout.title.text
        assert figure.data
        assert {trace.type for trace in figure.data} <= PLAIN_TYPES
        figure.to_json()


def test_bars_and_points_carry_the_record_s_numbers(records):
    table = read_record(records / "measured" / "tiny" / "table3.json")
    here, paper = figures.charts(table, dark=False)[0][1].data
    assert list(here.x) == [row.speedup.median for row in table.rows[1:]]
    assert list(paper.x) == [1.5, 1.9, 2.2, 2.8]
    trees = read_record(records / "measured" / "tiny" / "figure4.json")
    optimised = figures.charts(trees, dark=False)[0][1].data[0]
    assert list(optimised.y) == [r.tokens_per_step.mean for r in trees.rows if r.series == "optimised"]
    unknown = trees.model_copy(update={"name": "figure99"})
    assert figures.charts(unknown, dark=False) == []


def test_the_page_says_how_a_result_was_made(records):
    for name in NAMES:
        shown = load_section(records, name)
        assert "compare the direction" in shown.introduction
        assert shown.details.count("<table>") >= 1
        assert f"medusa_core reproduce {name}" in shown.details
        assert shown.record.date in shown.details
        for claim in shown.record.paper.claims:
            assert claim.split(";")[0].split("'")[0] in shown.details


def test_a_result_that_is_not_stored_names_the_command(tmp_path):
    shown = load_section(tmp_path, "figure4")
    assert shown.record is None
    assert "python -m medusa_core reproduce figure4 --store" in shown.introduction
    assert "64 nodes" in shown.details  # the paper's side is there all the same
    bad = tmp_path / "measured" / store.DEFAULT_KIND
    bad.mkdir(parents=True)
    (bad / "figure4.json").write_text("<b>{", encoding="utf-8")
    assert "cannot read the experiment record" in load_section(tmp_path, "figure4").introduction


def test_text_of_a_record_is_never_markup(records, tmp_path):
    record = read_record(records / "measured" / "tiny" / "figure3.json")
    hostile = "<img src=x onerror=alert(1)>"
    row = record.rows[0].model_copy(update={"label": hostile})
    changed = record.model_copy(
        update={"notes": [hostile], "command": hostile, "rows": [row], "date": hostile}
    )
    write_record(changed, tmp_path / "measured" / "tiny" / "figure3.json")
    shown = load_section(tmp_path, "figure3")
    assert "<img" not in shown.introduction + shown.details
    assert shown.details.count("&lt;img") == 4
