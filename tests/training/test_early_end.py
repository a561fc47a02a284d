"""A run that is told to end: its result is what was learned by then, and it can still go on."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from training_runs import finish, medusa2_config, settings_for

from medusa_core.checkpoints.locate import has_adapter
from medusa_core.checkpoints.read import read_heads
from medusa_core.training.config import Medusa1Config, SelfDistillConfig
from medusa_core.training.recipes import train


def after(steps: int) -> Callable[[], bool]:
    """An end that says no so many times."""
    answers = iter([False] * steps)
    return lambda: next(answers, True)


def test_the_result_is_what_was_learned_by_then(trained_base, tmp_path):
    config = Medusa1Config(**settings_for(trained_base, tmp_path))
    *steps, last = train(config, after(7))
    assert [record.step for record in steps] == list(range(1, 8))
    assert any(name.startswith("heldout/") for name in steps[-1].metrics)
    assert (last.step, last.folder) == (7, tmp_path / "heads")
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["step"] == 7
    assert "3,584 training tokens in 7 steps" in (tmp_path / "README.md").read_text(encoding="utf-8")
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["module"]
    blocks = next(tensor for name, tensor in saved.items() if name.endswith("block_weight"))
    assert torch.equal(read_heads(last.folder).block_weight, blocks.bfloat16())
    assert blocks.any()


def test_the_same_command_goes_on_to_the_whole_run(trained_base, tmp_path):
    config = Medusa1Config(**settings_for(trained_base, tmp_path / "early", tokens=20 * 512))
    *_, _ = train(config, after(7))
    assert next(train(config)).step == 8
    finish(config)
    finish(Medusa1Config(**settings_for(trained_base, tmp_path / "whole", tokens=20 * 512)))
    early, whole = (read_heads(tmp_path / name / "heads").block_weight for name in ("early", "whole"))
    torch.testing.assert_close(early.float(), whole.float(), atol=2e-3, rtol=2e-2)


def test_an_end_before_the_first_step_leaves_fresh_heads(trained_base, tmp_path):
    (last,) = train(Medusa1Config(**settings_for(trained_base, tmp_path)), after(0))
    assert last.step == 0
    assert not read_heads(last.folder).block_weight.any()


def test_an_end_in_the_first_stage_of_two_ends_both(trained_base, tmp_path):
    records = list(train(medusa2_config(trained_base, tmp_path), after(3)))
    assert [(record.stage, record.step) for record in records[:3]] == [("first stage", n) for n in (1, 2, 3)]
    assert records[-1].step == 0
    assert has_adapter(records[-1].folder)
    assert read_heads(records[-1].folder).block_weight.any()


@pytest.mark.parametrize("what", ["medusa1", "nothing"])
def test_an_end_while_answers_are_written(trained_base, tmp_path, what):
    settings = settings_for(trained_base, tmp_path, answers=24, answer_batch=8, answer_tokens=20, train=what)
    *_, last = train(SelfDistillConfig(**settings), after(0))
    files = (tmp_path / "answers").glob("*.jsonl")
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) == 8
    assert last.folder == (tmp_path / "answers" if what == "nothing" else tmp_path / "medusa1" / "heads")
