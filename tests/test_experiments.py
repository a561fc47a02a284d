"""The experiments: numbers from measurements, measurements of tiny models, records, charts and text."""

from __future__ import annotations

import json
import math
import shutil
import statistics
from dataclasses import replace

import pytest
import tiny
import torch

from medusa_core import checkpoints
from medusa_core.bench import Measurement, MethodLog, interleave
from medusa_core.cli import main
from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.experiments import (
    experiment_names,
    figure3,
    figure4,
    figure5,
    load_experiment,
    measure,
    quality,
    table2,
    table3,
    variants,
)
from medusa_core.experiments.record import PaperRow, paper_facts, read_record, write_record
from medusa_core.experiments.setup import RunSettings, Setup
from medusa_core.experiments.train_variants import variant_config
from medusa_core.loading import load_engine
from medusa_core.tree import Topology
from medusa_core.tree_search import expected_lengths
from ui.figures import experiments as figures
from ui.tabs.experiments import load_section

PROMPTS = {"Story": [[1, 2, 0, 3], [5, 0, 7]], "Chat": [[9, 4, 0]]}
NAMES = ["figure3", "figure4", "figure5", "table2", "table3"]
PLAIN_TYPES = {"bar", "scatter"}


@pytest.fixture(scope="module")
def setup(engine_folder):
    """Two short rounds on the tiny engine with accuracies of its own."""
    load = LoadConfig(str(engine_folder), dtype="float32", device="cpu")
    engine = variants.calibrated(load_engine(load), PROMPTS["Story"])
    return Setup(engine=engine, load=load, prompts=PROMPTS, run=RunSettings(rounds=2, max_new_tokens=16))


@pytest.fixture(scope="module")
def trained(engine_folder, tmp_path_factory):
    """Folders of variants: poor heads, good heads, and a whole model whose base was harmed."""
    root = tmp_path_factory.mktemp("variants")
    engine = load_engine(LoadConfig(str(engine_folder), dtype="float32", device="cpu"))
    model = engine.target.model
    checkpoints.save_heads(tiny.random_heads(model), root / "medusa1", "tiny", torch.float32)
    checkpoints.save_heads(engine.heads, root / "medusa2", "tiny", torch.float32)
    torch.manual_seed(0)
    for weight in model.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    model.save_pretrained(root / "direct")
    engine.tokenizer.save_pretrained(root / "direct")
    checkpoints.save_heads(engine.heads, root / "direct" / checkpoints.HEADS_FOLDER, "tiny", torch.float32)
    return ",".join(f"{name}={root / name}" for name in ("medusa1", "medusa2", "direct"))


@pytest.fixture(scope="module")
def prompt_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("prompts") / "letters.jsonl"
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("abc", "fgh", "ka")), "utf-8")
    return file


@pytest.fixture(scope="module")
def records(engine_folder, trained, prompt_file, tmp_path_factory):
    """A stored record of every experiment, made by the command itself on the tiny engine."""
    folder = tmp_path_factory.mktemp("assets") / "experiments"
    for name in NAMES:
        common = ["--model", engine_folder, "--dtype", "float32", "--device", "cpu", "--quick"]
        common += ["--prompts", f"Letters={prompt_file}", "--limit", 2, "--out", folder / f"{name}.json"]
        if name.startswith("table"):
            known = trained if name == "table2" else trained.rpartition(",")[0]
            common += ["--variants", known, "--calibration", prompt_file]
        assert main([str(part) for part in ("reproduce", name, *common)]) == 0
    return folder.parent


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
    row = measure.make_row(fast, plain, series="a", label="b", tree_nodes=7)
    assert (row.prompts, row.new_tokens, row.tree_nodes) == (2, 60, 7)
    assert row.tokens_per_step.mean == 30 / 12
    assert row.tokens_per_second.median == pytest.approx(statistics.median([15, 10]))
    assert row.tokens_per_second.low == 10
    assert row.speedup.high == pytest.approx(15 / 5)
    assert row.overhead == 1.0
    assert row.phase_ms == {"propose": 1.0, "verify": 2.0, "accept": 0.5, "commit": 0.5}


def test_the_error_of_a_ratio_is_that_of_a_mean_when_all_parts_weigh_alike():
    values = [3.0, 5.0, 4.0, 8.0]
    found = measure.ratio(values, [1.0] * 4)
    assert found.mean == statistics.mean(values)
    assert found.standard_error == pytest.approx(statistics.stdev(values) / 2, abs=1e-5)
    assert measure.ratio([6.0], [2.0]).standard_error is None


def test_the_error_of_a_ratio_agrees_with_leaving_out_one_prompt_at_a_time():
    generator = torch.Generator().manual_seed(0)
    below = (10 + torch.rand(200, generator=generator) * 5).tolist()
    above = [b * (2 + float(torch.randn(1, generator=generator)) * 0.2) for b in below]
    left_out = [(sum(above) - a) / (sum(below) - b) for a, b in zip(above, below, strict=True)]
    slow = math.sqrt(199 / 200 * sum((value - statistics.mean(left_out)) ** 2 for value in left_out))
    assert measure.ratio(above, below).standard_error == pytest.approx(slow, rel=0.02)


def test_parts_and_unions_of_logs():
    log = log_of([(1, 1, 1), (2, 1, 1), (3, 1, 1)])
    assert measure.by_prompt(measure.only(log, [0, 2]), lambda m: len(m.tokens)) == [1, 3]
    assert measure.by_prompt(measure.merged([log, log]), lambda m: len(m.tokens)) == [2, 4, 6]


def test_repeated_pieces_are_counted_within_a_text():
    def text(*tokens):
        return Measurement(list(tokens), 1.0, 1, {})

    assert measure.distinct_share([text(1, 2, 3, 1, 2, 3)]) == pytest.approx(3 / 4)
    assert measure.distinct_share([text(1, 2, 3), text(1, 2, 3)]) == 1.0
    assert measure.distinct_share([text(1, 2)]) is None


def test_runners_take_turns_and_the_order_rotates():
    calls = []

    def runner(name):
        return lambda prompt: calls.append((name, prompt[0])) or Measurement([0], 1.0, 1, {})

    logs = interleave({name: runner(name) for name in "abc"}, [[1], [2]], rounds=2)
    assert calls[:3] == [("a", 1), ("b", 1), ("c", 1)]  # warming up
    assert calls[3:] == [
        ("a", 1), ("b", 1), ("c", 1), ("b", 2), ("c", 2), ("a", 2),
        ("b", 1), ("c", 1), ("a", 1), ("c", 2), ("a", 2), ("b", 2),
    ]  # fmt: skip
    assert all([len(r) for r in log.rounds] == [2, 2] for log in logs.values())


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


# ---- the experiments on a real tiny engine


def test_figure3_measures_every_kind_and_all(setup):
    found = figure3.measure(setup, figure3.Settings())
    ours = {row.label: row for row in found.rows if row.series == figure3.MEDUSA}
    assert list(ours) == ["Story", "Chat", figure3.ALL]
    assert [row.prompts for row in ours.values()] == [2, 1, 3]
    assert found.notes == ["3 of 3 texts are identical to plain decoding's."]
    assert ours[figure3.ALL].tokens_per_step.mean > 1.2
    for row in found.rows:
        if row.series == figure3.PLAIN:
            assert (row.tokens_per_step.mean, row.speedup.median, row.overhead) == (1, 1, 1)


def test_figure4_measures_each_tree_by_the_engine_itself(setup):
    settings = figure4.Settings(nodes="2,9", random_trees=1)
    found = figure4.measure(setup, settings)
    assert {row.series for row in found.rows} == {"plain decoding", "optimised", "cartesian", "random"}
    assert [row.x for row in found.rows if row.series == "optimised"] == [2, 9]
    candidates = figure4.candidate_trees(setup.engine.accuracies, [2, 9], settings)
    for candidate in candidates:
        row = next(row for row in found.rows if row.label == candidate.label)
        engine = replace(setup.engine, default_tree=candidate.tree)
        steps = [step for prompt in setup.all_prompts for step in engine.stream(prompt, setup.config())]
        assert row.tokens_per_step.mean == pytest.approx(len(tiny.emitted(steps)) / len(steps), abs=1e-4)
        assert row.tree_nodes == row.x == candidate.tree.size
        expected = expected_lengths(setup.engine.accuracies, candidate.tree.choices)[-1]
        assert row.expected_tokens_per_step == pytest.approx(expected, abs=1e-3)


def test_of_trees_of_one_size_the_optimised_has_the_highest_estimate(setup):
    settings = figure4.Settings(random_trees=5)
    for size in (4, 9, 30):
        candidates = figure4.candidate_trees(setup.engine.accuracies, [size], settings)
        best = max(candidates, key=lambda c: expected_lengths(setup.engine.accuracies, c.tree.choices)[-1])
        assert best.series == figure4.OPTIMISED
        assert all(c.tree.size <= size for c in candidates)


def test_figure5_sweeps_epsilon_between_the_references(setup):
    found = figure5.measure(setup, figure5.Settings(epsilons="0.01,0.25"))
    rows = {row.label: row for row in found.rows}
    assert list(rows)[:2] == ["greedy", "random sampling"]
    assert [row.x for row in found.rows[2:]] == [0.01, 0.25, 0.01, 0.25]
    assert rows["greedy"].new_tokens == 3 * 16
    assert rows["random sampling"].new_tokens == 2 * 3 * 16  # two seeds
    assert rows["greedy"].quality.mean > rows["random sampling"].quality.mean
    loose, strict = found.rows[2:4]
    assert loose.tokens_per_step.mean >= strict.tokens_per_step.mean
    assert all(row.quality.mean < 0 and 0 < row.distinct <= 1 for row in found.rows)
    assert "itself" in found.quality


def test_the_threshold_delta_is_the_root_of_epsilon():
    points = figure5.sweep([0.01, 0.09], 0.7)
    assert [(p.changes["epsilon"], p.changes["delta"]) for p in points[2:4]] == [(0.01, 0.1), (0.09, 0.3)]
    assert {p.changes["temperature"] for p in points[1:]} == {0.7}


def test_table2_sees_that_a_changed_base_is_worse(setup, trained, prompt_file):
    found = table2.measure(setup, table2.Settings(variants=trained, calibration=str(prompt_file), nodes=6))
    rows = {row.label: row for row in found.rows}
    assert rows["Medusa-1"].quality_change.mean == 0
    assert rows["Medusa-2, two stages"].quality_change.mean == 0  # the same base in this test
    assert rows["direct fine-tuning"].quality_change.mean > 0
    assert rows["plain decoding"].quality == rows["Medusa-1"].quality
    assert rows["Medusa-2, two stages"].tokens_per_step.mean > rows["Medusa-1"].tokens_per_step.mean
    assert found.info.heads is None


def test_table3_climbs_from_a_chain_to_better_heads(setup, trained, prompt_file):
    known = trained.rpartition(",")[0]
    found = table3.measure(setup, table3.Settings(variants=known, calibration=str(prompt_file), nodes=9))
    rows = {row.label: row for row in found.rows}
    assert list(rows)[1:] == ["heads only", "+ tree attention", "+ optimised tree", "+ Medusa-2 training"]
    assert [row.tree_nodes for row in found.rows[:2]] == [1, tiny.HEADS + 1]
    assert rows["+ Medusa-2 training"].tokens_per_step.mean > rows["heads only"].tokens_per_step.mean
    assert (
        rows["+ optimised tree"].expected_tokens_per_step >= rows["+ tree attention"].expected_tokens_per_step
    )
    assert table3.chain(3) == Topology(((0,), (0, 0), (0, 0, 0)))


def test_missing_variants_are_trained(setup, engine_folder, prompt_file, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(engine_folder, base)
    tiny.tiny_tokenizer(end_token=tiny.VOCABULARY - 1).save_pretrained(base)
    load = replace(setup.load, model=str(base))
    setup = replace(setup, load=load, engine=load_engine(load))
    text = tmp_path / "text.txt"
    text.write_text("\n<|endoftext|>\n".join(["abcabdaccadbfghkab" * 3] * 20), encoding="utf-8")
    settings = table3.Settings(
        data=str(text),
        runs=str(tmp_path / "runs"),
        tokens=2048,
        batch_tokens=1024,
        nodes=4,
        calibration=str(prompt_file),
    )
    found = table3.measure(setup, settings)
    assert len(found.rows) == 5
    assert any("trained by this command on the text text.txt, 2,048 tokens" in note for note in found.notes)
    assert (tmp_path / "runs" / "medusa2" / "metrics.jsonl").is_file()


def test_every_variant_sees_as_many_tokens():
    settings = table2.Settings(tokens=1001)
    of = {name: variant_config(name, settings, model="m", data="d", own_text=True) for name in table2.LABELS}
    assert of["medusa1"].tokens == of["direct"].tokens == 1001
    assert of["medusa2"].tokens + of["medusa2"].stage1_tokens == 1001
    assert of["medusa2"].teacher == "self"
    assert of["direct"].head_warmup == "none"
    given = variant_config("medusa2", settings, model="m", data="d", own_text=False)
    assert given.teacher == "text"


@pytest.mark.parametrize(
    ("text", "cause"),
    [("medusa1", "NAME=FOLDER"), ("other=/tmp", "one of medusa1"), ("medusa1=/no/such", "no folder")],
)
def test_variants_that_are_none_are_refused(text, cause):
    with pytest.raises(MedusaError, match=cause):
        variants.read_folders(text, ["medusa1"])


@pytest.mark.parametrize("text", ["", "1,2", "2,x", "2,300"])
def test_sizes_that_are_none_are_refused(text):
    with pytest.raises(MedusaError, match="--nodes"):
        figure4.read_sizes(text)


# ---- records and the command


def test_every_experiment_is_found_and_has_the_paper_s_figures():
    assert experiment_names() == NAMES
    for name in NAMES:
        module = load_experiment(name)
        assert module.TITLE
        assert set(module.QUICK) <= set(vars(module.Settings()))
        facts = paper_facts(name)
        assert facts.claims
        # A figure of the paper belongs to a row of ours, or the chart could not set them side by side.
        if name == "table2":
            assert {row.label for row in facts.rows} == {table2.PLAIN, *table2.LABELS.values()}
    assert PaperRow(series="paper", label="+ Medusa-2 training", speedup=2.8) in paper_facts("table3").rows


def test_records_are_read_back_as_written(records, tmp_path):
    for name in NAMES:
        record = read_record(records / "experiments" / f"{name}.json")
        assert (record.name, record.schema_version) == (name, 1)
        assert record.command.startswith(f"python -m medusa_core reproduce {name} ")
        assert str(records.parent) not in (records / "experiments" / f"{name}.json").read_text("utf-8")
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
    data = json.loads((records / "experiments" / "figure5.json").read_text("utf-8"))
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(data | change), encoding="utf-8")
    with pytest.raises(MedusaError, match=cause):
        read_record(file)


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
        (["figure3", "--prompts", "Nothing=shipped"], "no shipped prompts"),
        (["figure3", "--limit", "0"], "--limit"),
        (["figure3", "--prompts", "A=missing.jsonl"], "cannot read"),
        (["figure4", "--nodes", "0"], "--nodes"),
        (["figure5", "--epsilons", "7"], "epsilon is 7"),
        (["figure9"], "invalid choice"),
    ],
)
def test_bad_input_ends_in_one_line(engine_folder, prompt_file, capsys, flags, cause):
    if "--prompts" not in flags:
        flags = [*flags, "--prompts", f"Letters={prompt_file}"]
    if flags[0] != "figure9":
        flags = [*flags, "--model", str(engine_folder)]
    try:
        code = main(["reproduce", *flags])
    except SystemExit as stop:
        code = stop.code
    errors = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert code == 2
    assert len(errors) == 1
    assert cause in errors[0]


# ---- the page


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_charts_draw_with_types_the_old_plotly_js_knows(records, name, dark):
    record = read_record(records / "experiments" / f"{name}.json")
    found = figures.charts(record, dark)
    assert 1 <= len(found) <= 2
    for chart in found:
        assert chart.title
        assert not chart.figure.layout.title.text
        assert chart.figure.data
        assert {trace.type for trace in chart.figure.data} <= PLAIN_TYPES
        chart.figure.to_json()


def test_bars_and_points_carry_the_record_s_numbers(records):
    table = read_record(records / "experiments" / "table3.json")
    here, paper = figures.charts(table)[0].figure.data
    assert list(here.x) == [row.speedup.median for row in table.rows[1:]]
    assert list(paper.x) == [1.5, 1.9, 2.2, 2.8]
    trees = read_record(records / "experiments" / "figure4.json")
    optimised = figures.charts(trees)[0].figure.data[0]
    assert list(optimised.y) == [r.tokens_per_step.mean for r in trees.rows if r.series == "optimised"]
    unknown = trees.model_copy(update={"name": "figure99"})
    assert figures.charts(unknown) == []


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
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "figure4.json").write_text("<b>{", encoding="utf-8")
    assert "no experiment record" in load_section(tmp_path, "figure4").introduction


def test_text_of_a_record_is_never_markup(records, tmp_path):
    record = read_record(records / "experiments" / "figure3.json")
    hostile = "<img src=x onerror=alert(1)>"
    row = record.rows[0].model_copy(update={"label": hostile})
    changed = record.model_copy(
        update={"notes": [hostile], "command": hostile, "rows": [row], "date": hostile}
    )
    write_record(changed, tmp_path / "experiments" / "figure3.json")
    shown = load_section(tmp_path, "figure3")
    assert "<img" not in shown.introduction + shown.details
    assert shown.details.count("&lt;img") == 4
