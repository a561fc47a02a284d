"""``reproduce all``: measures in turn, keeps what is there, leaves what is done, and names what is old."""

from __future__ import annotations

import json

import pytest
from tiny_experiments import headline

from medusa_core.cli import reproduce, reproduce_all
from medusa_core.cli.main import main
from medusa_core.config import ENGINE_VERSION, LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.evaluation.prompts import HELD_OUT, OF_THE_PAGE, shipped_kinds
from medusa_core.experiments import experiment_names, store
from medusa_core.experiments.record import MachineRecord
from medusa_core.experiments.remarks import shipped_weights
from medusa_core.hardware import processor
from medusa_core.loading.load import load_engine
from ui.records.examples import ASSETS


@pytest.fixture
def reproduce_two(engine_folder, tmp_path, monkeypatch):
    """Runs the command for two experiments into a folder; more flags may be given."""
    monkeypatch.setattr(reproduce_all, "chosen_names", lambda *, train: ["figure3", "figure21"])
    flags = [
        "--quick", "--model", str(engine_folder), "--dtype", "float32", "--device", "cpu", "--context", "400",
    ]  # fmt: skip
    return lambda *more: main(["reproduce", "all", "--into", str(tmp_path), *flags, *more])


def test_what_is_kept_is_not_measured_again_unless_asked(reproduce_two, tmp_path, capsys, monkeypatch):
    assert reproduce_two() == 0
    assert "1 of 2: figure3: Speedup by kind of text" in capsys.readouterr().out
    (kind,) = store.kinds(tmp_path)
    record = store.record("figure3", kind.slug, tmp_path)
    assert (kind.engine, record.engine) == (ENGINE_VERSION, ENGINE_VERSION)
    assert record.machine.other_cores_busy is not None
    assert record.command.startswith("python -m medusa_core reproduce figure3 --quick --model ")
    assert record.settings["prompts"] == "Story 1, Booking 1, Maths 1, Chat 1"
    made = []
    monkeypatch.setattr(reproduce_all, "_made", lambda name, args, engine: made.append(name) or record)
    assert reproduce_two() == 0
    assert (made, capsys.readouterr().out.count("kept from")) == ([], 2)
    store.keep(record.model_copy(update={"engine": ENGINE_VERSION - 1}), tmp_path)
    assert reproduce_two() == 0
    assert made == ["figure3"]
    replaced = record.model.model_copy(update={"base": "embedded", "weights": "other"})
    store.keep(record.model_copy(update={"model": replaced}), tmp_path)
    assert reproduce_two() == 0
    assert made == ["figure3", "figure3"]
    assert reproduce_two("--again") == 0
    assert made == ["figure3", "figure3", "figure3", "figure21"]


def test_one_that_fails_is_said_and_the_others_go_on(reproduce_two, tmp_path, capsys, monkeypatch):
    made = reproduce_all._made

    def fails(name, args, engine):
        if name == "figure3":
            raise MedusaError("no")
        return made(name, args, engine)

    monkeypatch.setattr(reproduce_all, "_made", fails)
    assert reproduce_two() == 2
    errors = capsys.readouterr().err
    assert "1 of 2: figure3 failed: no" in errors
    assert "error: figure3 could not be measured" in errors
    assert store.record("figure21", folder=tmp_path).simulated


def test_an_interrupt_leaves_what_is_done(reproduce_two, tmp_path, monkeypatch):
    made = reproduce_all._made

    def stopped(name, args, engine):
        if name == "figure21":
            raise KeyboardInterrupt
        return made(name, args, engine)

    monkeypatch.setattr(reproduce_all, "_made", stopped)
    assert reproduce_two() == 130
    assert [file.name for file in tmp_path.glob("*/*.json")] == ["figure3.json"]


def test_one_record_is_made_once_by_one_command_on_one_kind(tmp_path, monkeypatch, capsys, engine):
    """So that a series of commands, on a machine held to less and less, goes on where it was stopped."""
    made = []

    def measured(name, args, engine):
        made.append(name)
        machine = MachineRecord(**reproduce.machine_of(engine))
        model = headline().model
        model = model.model_copy(update={"weights": shipped_weights(model.base)})
        return headline(name=name, machine=machine, engine=ENGINE_VERSION, command=command, model=model)

    command = "python -m medusa_core reproduce figure3 --limit 1"
    place_of, current = store.place_of, reproduce.current_record
    monkeypatch.setattr(reproduce, "measured", measured)
    monkeypatch.setattr(reproduce, "load_with_line", lambda load: engine)
    monkeypatch.setattr(store, "place_of", lambda record: place_of(record, tmp_path))
    monkeypatch.setattr(reproduce, "current_record", lambda name, kind: current(name, kind, tmp_path))
    monkeypatch.setattr(processor, "instruction_set", lambda: "amx")
    flags = ["reproduce", "figure3", "--store", "--limit", "1"]
    for limit in ("", "avx512_bf16", "avx2"):
        monkeypatch.setenv(processor.ISA_VARIABLE, limit)
        for _ in range(2):
            assert main(flags) == 0
        assert "kept from 2026-11-23" in capsys.readouterr().err
    assert len(made) == len(store.kinds(tmp_path)) == 3
    assert main([*flags, "--again"]) == 0
    command = "python -m medusa_core reproduce figure3 --limit 2"
    assert main([*flags[:-1], "2"]) == 0
    assert len(made) == 5
    titles = [kind.title.partition("limited to ")[2] for kind in store.kinds(tmp_path)]
    assert sorted(titles)[0] == ""
    assert [title.split(",")[0] for title in sorted(titles)[1:]] == ["AVX-512 and bfloat16", "AVX2"]


def test_records_of_an_older_engine_are_named_for_all_kinds(tmp_path):
    store.keep(headline(name="figure3", engine=ENGINE_VERSION), tmp_path)
    assert list(store.older_records(tmp_path)) == []
    store.keep(headline(name="table3", engine=ENGINE_VERSION - 1), tmp_path)
    (line,) = store.older_records(tmp_path)
    assert store.DEFAULT_KIND in line
    assert "table3" in line
    assert "figure3" not in line


def test_all_is_everything_the_headline_first_and_training_only_if_asked():
    names = reproduce_all.chosen_names(train=True)
    assert (names[0], sorted(names)) == ("spec-bench", experiment_names())
    without = reproduce_all.chosen_names(train=False)
    assert set(names) - set(without) == {"table2", "table3", "grouped-heads", "eagle3-training"}


@pytest.mark.parametrize(
    ("flags", "cause"),
    [
        (["--store", "--quick"], "too coarse"),
        (["--store", "--model", "x"], "figures of the embedded model"),
        (["--store", "--heads", "x"], "figures of the embedded model"),
        (["--into", "/dev/null/x"], "--into"),
        ([], "--store"),
        (["--store", "--into", "x"], "not allowed with"),
    ],
)
def test_bad_input_ends_in_one_line(command, flags, cause):
    code, _, err = command(["reproduce", "all", *flags])
    assert (code, err.count("\n")) == (2, 1)
    assert cause in err


def test_held_out_prompts_are_the_project_s_own_a_dozen_a_kind_and_not_the_page_s(engine_folder):
    kinds = json.loads((ASSETS / HELD_OUT).read_text("utf-8"))
    texts = [prompt["text"] for kind in kinds for prompt in kind["prompts"]]
    assert [len(kind["prompts"]) for kind in kinds] == [12] * 4
    assert len(set(texts)) == len(texts)
    assert all(text.isascii() for text in texts)
    engine = load_engine(LoadConfig(str(engine_folder), device="cpu"))
    page, held_out = (shipped_kinds(engine, file) for file in (OF_THE_PAGE, HELD_OUT))
    assert list(held_out) == list(page)
    for kind, prompts in held_out.items():
        assert not {tuple(prompt) for prompt in prompts} & {tuple(prompt) for prompt in page[kind]}
