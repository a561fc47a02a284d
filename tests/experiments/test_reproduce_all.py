"""``reproduce all``: measures in turn, keeps what is there, leaves what is done, and names what is old."""

from __future__ import annotations

import json

import pytest
from tiny_experiments import headline

from medusa_core.cli.commands import reproduce_all
from medusa_core.cli.main import main
from medusa_core.config import ENGINE_VERSION, LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.evaluation.prompts import HELD_OUT, OF_THE_PAGE, shipped_kinds
from medusa_core.experiments import experiment_names, store
from medusa_core.loading.load import load_engine
from ui.records.examples import ASSETS


@pytest.fixture
def reproduce(engine_folder, tmp_path, monkeypatch):
    """Runs the command for two experiments into a folder; more flags may be given."""
    monkeypatch.setattr(reproduce_all, "chosen_names", lambda *, train: ["figure3", "figure21"])
    flags = [
        "--quick",
        "--model",
        str(engine_folder),
        "--dtype",
        "float32",
        "--device",
        "cpu",
        "--context",
        "400",
    ]
    return lambda *more: main(["reproduce", "all", "--into", str(tmp_path), *flags, *more])


def test_what_is_kept_is_not_measured_again_unless_asked(reproduce, tmp_path, capsys, monkeypatch):
    assert reproduce() == 0
    assert "1 of 2: figure3: Speedup by kind of text" in capsys.readouterr().out
    (kind,) = store.kinds(tmp_path)
    record = store.record("figure3", kind.slug, tmp_path)
    assert (kind.engine, record.engine) == (ENGINE_VERSION, ENGINE_VERSION)
    assert record.machine.other_cores_busy is not None
    assert record.command.startswith("python -m medusa_core reproduce figure3 --quick --model ")
    assert record.settings["prompts"] == "Story 1, Booking 1, Maths 1, Chat 1"
    made = []
    monkeypatch.setattr(reproduce_all, "_made", lambda name, args, engine: made.append(name) or record)
    assert reproduce() == 0
    assert (made, capsys.readouterr().out.count("kept from")) == ([], 2)
    store.keep(record.model_copy(update={"engine": ENGINE_VERSION - 1}), tmp_path)
    assert reproduce() == 0
    assert made == ["figure3"]
    assert reproduce("--again") == 0
    assert made == ["figure3", "figure3", "figure21"]


def test_one_that_fails_is_said_and_the_others_go_on(reproduce, tmp_path, capsys, monkeypatch):
    made = reproduce_all._made

    def fails(name, args, engine):
        if name == "figure3":
            raise MedusaError("no")
        return made(name, args, engine)

    monkeypatch.setattr(reproduce_all, "_made", fails)
    assert reproduce() == 2
    errors = capsys.readouterr().err
    assert "1 of 2: figure3 failed: no" in errors
    assert "error: figure3 could not be measured" in errors
    assert store.record("figure21", folder=tmp_path).simulated


def test_an_interrupt_leaves_what_is_done(reproduce, tmp_path, monkeypatch):
    made = reproduce_all._made

    def stopped(name, args, engine):
        if name == "figure21":
            raise KeyboardInterrupt
        return made(name, args, engine)

    monkeypatch.setattr(reproduce_all, "_made", stopped)
    assert reproduce() == 130
    assert [file.name for file in tmp_path.glob("*/*.json")] == ["figure3.json"]


def test_records_of_an_older_engine_are_named_for_all_kinds(tmp_path):
    store.keep(headline(name="figure3", engine=ENGINE_VERSION), tmp_path)
    assert list(store.older_records(tmp_path)) == []
    store.keep(headline(name="table3", engine=ENGINE_VERSION - 1), tmp_path)
    (line,) = store.older_records(tmp_path)
    assert "intel-xeon-amx-2" in line
    assert "table3" in line
    assert "figure3" not in line


def test_all_is_everything_the_headline_first_and_training_only_if_asked():
    names = reproduce_all.chosen_names(train=True)
    assert (names[0], sorted(names)) == ("spec-bench", experiment_names())
    without = reproduce_all.chosen_names(train=False)
    assert set(names) - set(without) == {"table2", "table3"}


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
def test_bad_input_ends_in_one_line(capsys, flags, cause):
    try:
        code = main(["reproduce", "all", *flags])
    except SystemExit as stop:
        code = stop.code
    errors = capsys.readouterr().err.splitlines()
    assert (code, len(errors)) == (2, 1)
    assert cause in errors[0]


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
