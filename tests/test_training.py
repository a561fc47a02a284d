"""Training: data order, losses against slow versions, resuming, and that the recipes really learn."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from torch.nn import functional as F

from medusa_core.checkpoints import read_heads
from medusa_core.config import Medusa1Config, PretrainConfig
from medusa_core.errors import MedusaError
from medusa_core.training.corpus import END_OF_TEXT, PackedMixture, load_recipe
from medusa_core.training.loop import Schedule
from medusa_core.training.losses import head_losses, head_scores, weighted_sum
from medusa_core.training.medusa1 import medusa1
from medusa_core.training.pretrain import pretrain
from medusa_core.training.tokenizer import build_tokenizer

SENTENCES = [f"The {animal} saw a {thing} and said hello to it." for animal in ("cat", "dog", "owl")
             for thing in ("tree", "ball", "boat", "star")]  # fmt: skip


@pytest.fixture
def corpus(tmp_path):
    """A recipe over a few repeated sentences; the second kind has a held-out file of its own."""
    text = f"\n{END_OF_TEXT}\n".join(SENTENCES * 40)
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text(text + "\n", encoding="utf-8")
    sources = [
        {"kind": "story", "files": ["a.txt"], "weight": 0.75, "heldout_every": 10},
        {"kind": "chat", "files": ["b.txt"], "weight": 0.25, "heldout": ["c.txt"]},
    ]
    (tmp_path / "recipe.json").write_text(json.dumps({"sources": sources}), encoding="utf-8")
    return tmp_path


def pretrain_config(corpus, **changes):
    config = PretrainConfig(
        out=str(corpus / "base"), recipe=str(corpus / "recipe.json"), data_root=str(corpus),
        tokens=40 * 256, vocab_size=300, hidden_size=32, intermediate_size=64, layers=1, attention_heads=2,
        kv_heads=1, context=64, sequence_length=32, batch_tokens=256, max_tokens=100_000, warmup_steps=4,
        checkpoint_every=10, evaluate_every=1000,
    )  # fmt: skip
    return replace(config, **changes)


def losses_of(folder):
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["step"]: record["loss"] for record in map(json.loads, lines)}


def test_documents_are_held_out_or_trained_on_never_both(corpus):
    for source in load_recipe(corpus / "recipe.json", corpus):
        everything = len(SENTENCES) * 40
        kept, held = list(source.documents(heldout=False)), list(source.documents(heldout=True))
        assert len(held) == (everything if source.heldout else everything // 10)
        assert len(kept) == (everything if source.heldout else everything - everything // 10)


def test_a_missing_file_is_named(corpus):
    (corpus / "b.txt").unlink()
    with pytest.raises(MedusaError, match=r"b\.txt, which does not exist: set --data-root"):
        load_recipe(corpus / "recipe.json", corpus)


def test_batches_depend_on_the_seed_alone_and_share_out_the_sources():
    arrays = [np.zeros(5000, dtype=np.uint16), np.ones(5000, dtype=np.uint16)]
    mixtures = [PackedMixture(arrays, [0.8, 0.2], 16, 500, seed=3) for _ in range(2)]
    first, second = (np.concatenate([m.batch(i, 10) for i in range(50)]) for m in mixtures)
    assert (first == second).all()
    assert first.shape == (500, 17)
    assert first[:, 0].mean() == pytest.approx(0.2, abs=0.01)


def test_no_window_comes_twice_in_an_epoch():
    mixture = PackedMixture([np.arange(1000, dtype=np.uint16)], [1.0], 10, 90, seed=0)
    starts = mixture.batch(0, 90)[:, 0]
    assert len(set(starts.tolist())) == 90


def test_schedule_warms_up_stays_and_falls_to_zero():
    schedule = Schedule(steps=100, warmup=10, decay_share=0.2)
    assert [schedule.factor(step) for step in (0, 9, 50, 79)] == [0.1, 1, 1, 1]
    assert schedule.factor(90) == pytest.approx(0.5)
    assert 0 < schedule.factor(99) < 0.06


def test_every_text_survives_the_tokenizer():
    tokenizer = build_tokenizer(SENTENCES, 300)
    for text in ("The cat", "naïve ☃ 数\n\n  x", "12 + 34 = 46", "\x00\x7f"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize("shared", [False, True])
def test_head_losses_equal_the_position_by_position_version(model, shared):
    heads = tiny.random_heads(model)
    if shared:
        heads = type(heads)(heads.block_weight.data, heads.block_bias.data, heads.lm_weight.data[0])
    tokens = torch.tensor([tiny.random_tokens(12, seed=s) for s in (1, 2)])
    hidden = torch.randn(2, 12, 32)
    scores = head_scores(heads, hidden, tokens)
    torch.testing.assert_close(head_losses(heads, hidden, tokens), scores.loss)
    for k in range(heads.count):
        losses, first, fifth = [], [], []
        for row in range(2):
            for t in range(12 - k - 2):
                wanted = tokens[row, t + k + 2]
                logits = heads(hidden[row, t][None])[k, 0]
                losses.append(F.cross_entropy(logits[None], wanted[None]))
                best = logits.topk(5).indices.tolist()
                first.append(best[0] == wanted)
                fifth.append(int(wanted) in best)
        assert float(scores.loss[k]) == pytest.approx(float(torch.stack(losses).mean().detach()), abs=1e-5)
        assert float(scores.top1[k]) == pytest.approx(sum(map(float, first)) / len(first))
        assert float(scores.top5[k]) == pytest.approx(sum(map(float, fifth)) / len(fifth))


def test_the_medusa_loss_weighs_heads_by_powers_of_lambda():
    assert float(weighted_sum(torch.tensor([1.0, 2.0]), 0.8)) == pytest.approx(0.8 * 1 + 0.64 * 2)


def test_both_recipes_learn_and_their_result_decodes(corpus):
    base = pretrain(pretrain_config(corpus))
    losses = losses_of(corpus / "base")
    assert losses[40] < losses[10] - 0.5
    config = Medusa1Config(
        model=str(base), out=str(corpus / "heads"), recipe=str(corpus / "recipe.json"), data_root=str(corpus),
        tokens=20 * 256, heads=2, sequence_length=32, batch_tokens=256, warmup_steps=2, evaluate_every=1000,
    )  # fmt: skip
    folder = medusa1(config)
    tensors = read_heads(folder)
    assert tensors.block_weight.shape == (2, 1, 32, 32)
    assert tensors.lm_weight.shape[::2] == (2, 32)
    losses = losses_of(corpus / "heads")
    assert losses[20] < losses[10]
    result = json.loads((corpus / "heads" / "result.json").read_text(encoding="utf-8"))
    assert 0 <= result["heldout/chat/top1/1"] <= result["heldout/chat/top5/1"] <= 1


def test_a_killed_run_goes_on_with_the_same_losses(corpus, monkeypatch):
    straight = pretrain_config(corpus, out=str(corpus / "straight"))
    pretrain(straight)
    broken = pretrain_config(corpus, out=str(corpus / "broken"))
    forward = F.cross_entropy
    calls = iter(range(10**6))

    def killed(*args, **kwargs):
        if next(calls) == 25:
            raise KeyboardInterrupt
        return forward(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(F, "cross_entropy", killed)
        with pytest.raises(KeyboardInterrupt):
            pretrain(broken)
    pretrain(broken)
    resumed, whole = losses_of(corpus / "broken"), losses_of(corpus / "straight")
    assert resumed[40] == pytest.approx(whole[40], abs=1e-3)


def test_divergence_stops_with_its_cause(corpus):
    with pytest.raises(MedusaError, match=r"loss is nan at step .*: lower the learning rate"):
        pretrain(pretrain_config(corpus, learning_rate=1e30, matrix_learning_rate=1e30))
