"""The order of trainings that makes the embedded family: commands that exist, each run once."""

import subprocess
import threading

import pytest

from medusa_core.cli.flags import add_settings, read_settings
from medusa_core.cli.main import OneLineParser, build_parser
from medusa_core.training.recipes import RECIPES
from tools.make_model.family import _CPU, _GPU, main, stages_of
from tools.make_model.repeats import build_parser as build_repeats_parser
from tools.make_model.settings import PretrainConfig


@pytest.mark.parametrize("sizes", [_CPU, _GPU])
def test_every_stage_is_a_command_whose_settings_are_accepted(tmp_path, sizes):
    budgets = {}
    for stage in stages_of(tmp_path / "out", tmp_path / "data", 1.0, sizes):
        if stage.module == "medusa_core":
            args = build_parser().parse_args(stage.arguments)
            config = read_settings(RECIPES[args.recipe_name][0], args)
        elif stage.module == "tools.make_model":
            parser = OneLineParser()
            add_settings(parser, PretrainConfig)
            config = read_settings(PretrainConfig, parser.parse_args(stage.arguments))
        else:
            if stage.module == "tools.make_model.repeats":
                build_repeats_parser().parse_args(stage.arguments)
            continue
        budgets[stage.name] = config.tokens
    drafters = {"medusa", "hydra", "hydra-prefix", "eagle3", "mtp", "block", "tokenswift", "draft_model"}
    assert drafters < set(budgets)
    assert len({budgets[name] for name in drafters}) == 1, "all drafters learn from as many tokens"


def test_what_has_finished_is_left_out_and_a_failure_ends_the_order(tmp_path, monkeypatch, capsys):
    ran = []

    def call(command, cwd):
        ran.append(command[2])
        return 1 if "self-distill" in command else 0

    monkeypatch.setattr(subprocess, "call", call)
    arguments = ["--data-root", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(arguments) == 2
    assert "the stage own ended with code 1" in capsys.readouterr().err
    assert main(arguments) == 2
    assert ran == ["tools.make_model.made_texts", *["tools.make_model"] * 2, *["medusa_core"] * 2]


def test_on_a_gpu_the_drafters_are_trained_side_by_side(tmp_path, monkeypatch):
    """Each call waits for the others of its group, so one after the other they would not end."""
    names = "medusa,hydra,tokenswift,draft_model"
    together = threading.Barrier(names.count(",") + 1, timeout=20)
    monkeypatch.setattr(subprocess, "call", lambda command, cwd: together.wait() and 0)
    arguments = ["--data-root", str(tmp_path), "--out", str(tmp_path / "out"), "--only", names]
    assert main([*arguments, "--gpu"]) == 0
    assert {file.name for file in (tmp_path / "out" / "done").iterdir()} == set(names.split(","))


def test_the_texts_of_all_temperatures_are_put_together(tmp_path):
    for name in ("cold", "warm"):
        (tmp_path / name / "answers").mkdir(parents=True)
        (tmp_path / name / "answers" / "story.jsonl").write_text(f"{name}\n", encoding="utf-8")
    assert main(["--data-root", str(tmp_path), "--out", str(tmp_path), "--only", "answers"]) == 0
    assert (tmp_path / "answers" / "story.jsonl").read_text(encoding="utf-8") == "cold\nwarm\n"


def test_an_unknown_stage_is_named(tmp_path, capsys):
    assert main(["--data-root", str(tmp_path), "--only", "medusa,nothing"]) == 2
    assert "there is no stage 'nothing'" in capsys.readouterr().err
