"""Where a training run begins and ends: heads to go on from, an early end, and the card of the result."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import tiny
import torch
from head_files import (
    heads_of,
    hub_repository,
    named_heads,
    public_state,
    same,
    tensors_in,
    vllm_state,
    write,
    write_vllm,
)
from huggingface_hub import constants
from training_runs import finish, medusa2_config, settings_for
from transformers import AutoModelForCausalLM

from medusa_core.checkpoints.heads import read_heads
from medusa_core.checkpoints.locate import has_adapter
from medusa_core.errors import MedusaError
from medusa_core.training.config import Medusa1Config, SelfDistillConfig
from medusa_core.training.fit.report import Card, tree_line, use_commands
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


# --- Heads that a training run goes on from: in any format, from the hub, and what cannot be gone on from.


def test_heads_to_go_on_from_must_be_as_many(trained_base, tmp_path):
    folder = finish(Medusa1Config(**settings_for(trained_base, tmp_path / "three", tokens=512)))
    config = Medusa1Config(**settings_for(trained_base, tmp_path / "two", start=str(folder), heads=2))
    with pytest.raises(MedusaError, match="has 3 heads of 1 layers, the settings ask for 2 of 1"):
        finish(config)


@pytest.mark.sample(2)
@pytest.mark.parametrize("layout", ["v1", "v1 pt", "v2", "vllm", "full"])
def test_heads_to_go_on_from_come_in_any_format_and_from_the_hub(trained_base, tmp_path, monkeypatch, layout):
    """A run of no learning writes what it started from."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    model = AutoModelForCausalLM.from_pretrained(trained_base, dtype=torch.float32)
    heads = heads_of(model, "shared" if layout == "v2" else "own")
    source = named_heads(tmp_path / "source", layout, heads, trained_base)
    hub_repository(tmp_path / "hub", "a/heads", source)
    config = settings_for(trained_base, tmp_path / "run", start="a/heads", tokens=512, learning_rate=0.0)
    folder = finish(Medusa1Config(**config))
    wanted = {name: tensor.bfloat16() for name, tensor in public_state(heads, version=2).items()}
    written = tensors_in(folder)
    assert same({name: written[name] for name in wanted}, wanted)
    assert (read_heads(folder).lm_weight is None) == (layout == "v2")


def test_heads_that_share_an_lm_head_get_their_own_where_it_will_change(trained_base, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(trained_base, dtype=torch.float32)
    start = write(tmp_path / "start", public_state(heads_of(model, "shared"), version=2))
    settings = {"start": str(start), "tokens": 512, "head_warmup": "none"}
    moved = finish(medusa2_config(trained_base, tmp_path / "moved", **settings))
    assert read_heads(moved).lm_weight is not None
    kept = finish(medusa2_config(trained_base, tmp_path / "kept", lora_lm_head=False, **settings))
    assert read_heads(kept).lm_weight is None


def test_heads_to_go_on_from_that_know_few_tokens_are_refused(trained_base, tmp_path):
    heads = tiny.random_heads(AutoModelForCausalLM.from_pretrained(trained_base, dtype=torch.float32))
    known = torch.arange(7)
    state = vllm_state(heads) | {f"lm_heads.{i}.weight": heads.lm_weight[i, known].clone() for i in range(3)}
    start = write_vllm(tmp_path / "start", state | {"token_map": known}, truncated_vocab_size=7)
    with pytest.raises(MedusaError, match=r"knows 7 of the base's \d+ tokens, and training needs all"):
        finish(Medusa1Config(**settings_for(trained_base, tmp_path / "run", start=str(start))))


def test_an_adapter_that_is_left_behind_is_said(trained_base, tmp_path, caplog):
    start = finish(medusa2_config(trained_base, tmp_path / "joint", head_warmup="none", tokens=512))
    config = settings_for(trained_base, tmp_path / "run", start=str(start), tokens=512)
    finish(Medusa1Config(**config))
    assert f"warning: {start} comes with an adapter of its base, which this run starts without" in caplog.text


# --- The card of finished heads: its parts in order, and none for what is not known.


CARD = Card(
    title="Heads", summary=["Fast."], commands=use_commands("--heads here"), training=["On text."],
    accuracy="over 7 positions", accuracies=[[0.5, 0.25, 0.125, 0.1], [0.2, 0.1, 0.1, 0.0]],
    tree=tree_line(5, 2, 1.456), speed=["Twice."],
)  # fmt: skip


def test_a_card_has_its_parts_in_order():
    lines = CARD.text().split("\n")
    assert [line for line in lines if line.startswith("#")] == [
        "# Heads", "## Use", "## Training", "## Accuracy", "## Speed",
    ]  # fmt: skip
    assert lines[2] == "Fast."
    assert "python app.py --heads here" in lines
    assert "| 1 | 0.500 | 0.250 | 0.125 |" in lines
    assert lines[-2:] == ["Twice.", ""]


def test_what_is_not_known_has_no_part():
    text = replace(CARD, training=(), speed=(), summary=()).text()
    assert "Training" not in text
    assert "Speed" not in text
    assert text.startswith("# Heads\n\n## Use\n")


def test_a_tree_that_nobody_timed_is_not_called_the_best():
    assert tree_line(5, 2, 1.456).endswith("the best size for the step times measured on this machine.")
    assert tree_line(1, 0, 1, timed=False) == (
        "Tree: 1 node with the root, depth 0, 1.00 tokens per step expected; no size was timed."
    )
