"""Phases of a pretraining run: which text comes when, in which windows, with which dropout."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from training_corpus import losses_of

from medusa_core.errors import MedusaError
from medusa_core.training.corpus import load_recipe
from medusa_core.training.data import PackedMixture
from medusa_core.training.encoding import TokenArrays
from tools.make_model.phases import PhasedText, load_phases
from tools.make_model.pretrain import pretrain
from tools.make_model.settings import PretrainConfig

SMALL = PretrainConfig(
    tokens=40 * 256, vocab_size=300, hidden_size=32, intermediate_size=64, layers=1, attention_heads=2,
    kv_heads=1, context=64, sequence_length=32, batch_tokens=256, max_tokens=100_000, warmup_steps=4,
    checkpoint_every=1000, evaluate_every=1000,
)  # fmt: skip


def phased(corpus, *phases):
    """Settings whose recipe has these phases; the corpus' kinds beside them."""
    recipe = json.loads((corpus / "recipe.json").read_text(encoding="utf-8"))
    (corpus / "phased.json").write_text(json.dumps(recipe | {"phases": list(phases)}), encoding="utf-8")
    kinds = [source["kind"] for source in recipe["sources"]]
    settings = {"out": str(corpus / "run"), "recipe": str(corpus / "phased.json"), "data_root": str(corpus)}
    return replace(SMALL, **settings), kinds


def arrays_of(value, count=2000):
    return TokenArrays(np.full(count, value, np.uint16), np.ones(count, bool))


def text_of(corpus, *phases, **changes):
    config, kinds = phased(corpus, *phases)
    config = replace(config, **changes)
    loaded = load_phases(config, load_recipe(corpus / "phased.json", corpus))
    return PhasedText(loaded, {kind: arrays_of(i + 1) for i, kind in enumerate(kinds)}, config, 0), kinds


def test_each_phase_has_its_text_its_windows_and_its_dropout(corpus):
    text, kinds = text_of(
        corpus,
        {"share": 3, "window": 32, "weights": {"story": 1}},
        {"share": 1, "window": 64, "weights": {"story": 1}, "dropout": 0.25},
    )
    assert text.batch(29, 0).tokens.shape == (8, 33)
    assert text.batch(30, 0).tokens.shape == (4, 65)
    assert [text.phase(step).dropout for step in (0, 29, 30, 39, 40)] == [0, 0, 0.25, 0.25, 0.25]
    assert set(text.batch(0, 0).tokens.flatten().tolist()) == {kinds.index("story") + 1}


def test_passes_of_a_step_share_its_batch(corpus):
    phase = {"share": 1, "window": 32, "weights": {"story": 1}}
    config, _ = phased(corpus, phase)
    loaded = load_phases(config, load_recipe(corpus / "phased.json", corpus))
    counted = TokenArrays(np.arange(1, 5001, dtype=np.uint16), np.ones(5000, bool))
    whole = PhasedText(loaded, {"story": counted}, config, 0)
    halves = PhasedText(loaded, {"story": counted}, replace(config, accumulate=2), 0)
    parts = [halves.batch(3, number).tokens for number in (0, 1)]
    assert torch.equal(torch.cat(parts), whole.batch(3, 0).tokens)


def test_the_order_of_text_does_not_depend_on_the_length_of_the_run(corpus):
    phases = (
        {"share": 1, "window": 32, "weights": {"story": 1}},
        {"share": 1, "window": 64, "weights": {"story": 1}},
    )
    config, _ = phased(corpus, *phases)
    loaded = load_phases(config, load_recipe(corpus / "phased.json", corpus))
    counted = {"story": TokenArrays(np.arange(1, 5001, dtype=np.uint16), np.ones(5000, bool))}
    short, long = (PhasedText(loaded, counted, replace(config, tokens=n * 256), 0) for n in (40, 80))
    for step in (0, 19, 45):  # in the first phase of both, then in the second of both
        assert torch.equal(short.batch(step, 0).tokens, long.batch(step, 0).tokens)


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ({"share": 1, "window": 32, "weights": {"novel": 1}}, "is not a source"),
        ({"share": 1, "window": 32, "weights": {}}, "weights .* at least 1 item"),
        ({"share": 0, "window": 32}, "share .* greater than 0"),
        ({"share": 1, "window": 128}, "raise --context"),
        ({"share": 1, "window": 32, "dropout": 1.5}, "dropout"),
        ({"share": 1, "window": 32, "length": 5}, "length"),
        ({"window": 32}, "share"),
    ],
)
def test_bad_phases_are_refused_with_one_line(corpus, phase, words):
    config, _ = phased(corpus, {"weights": {"story": 1}} | phase)
    with pytest.raises(MedusaError, match=words) as caught:
        load_phases(config, load_recipe(corpus / "phased.json", corpus))
    assert "\n" not in str(caught.value)


def test_a_window_longer_than_a_pass_is_refused(corpus):
    config, _ = phased(corpus, {"share": 1, "window": 64, "weights": {"story": 1}})
    with pytest.raises(MedusaError, match="--accumulate"):
        load_phases(replace(config, accumulate=8), load_recipe(corpus / "phased.json", corpus))


def test_epochs_follow_each_other_however_far_the_order_is_laid_out():
    counted = TokenArrays(np.arange(1001, dtype=np.uint16), np.ones(1001, bool))
    mixture = PackedMixture([counted, arrays_of(5000)], [0.5, 0.5], 10, 20_000, seed=1, pad=0)
    rows = mixture.batch(0, 2000).tokens[:, :-1].flatten()
    seen = torch.bincount(rows[rows < 5000], minlength=1001)[10:990]  # the offsets leave out the very ends
    epochs = float(seen.float().mean())
    assert epochs > 8
    assert int(seen.min()) >= epochs - 2
    assert int(seen.max()) <= epochs + 2


def test_a_run_through_phases_resumes_with_the_same_losses(corpus):
    phases = (
        {"share": 1, "window": 32, "weights": {"story": 1}, "dropout": 0.1},
        {"share": 1, "window": 64, "weights": {"story": 1}, "dropout": 0.2},
    )
    config, _ = phased(corpus, *phases)
    *_, _ = pretrain(replace(config, accumulate=2))
    broken = replace(config, accumulate=2, out=str(corpus / "broken"))
    for stop in (8, 25):
        records = pretrain(broken)
        while next(records).step < stop:
            pass
        records.close()
    *_, _ = pretrain(broken)
    assert losses_of(corpus / "broken") == losses_of(corpus / "run")
