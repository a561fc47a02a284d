"""Training EAGLE-3: unrolled steps are what drafting computes, the loss falls, the result drafts."""

from __future__ import annotations

import json
from itertools import product

import eagle3_files
import pytest
import tiny
import torch
from eagle3_slow import SlowDraft
from torch.nn.functional import cross_entropy, smooth_l1_loss
from training_corpus import losses_of
from training_runs import finish, settings_for

from medusa_core.checkpoints.files import read_config
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters import make_drafter
from medusa_core.drafters.eagle3.unrolled import unrolled_outputs
from medusa_core.errors import MedusaError
from medusa_core.loading.load import load_engine
from medusa_core.training.base_model import load_frozen
from medusa_core.training.config import Eagle3Config
from medusa_core.training.unrolled_losses import Reading, UnrolledLosses

PROMPT = "The cat saw a"
DRAFT = {"method": "eagle3", "draft_top_k": 3, "draft_depth": 4, "draft_nodes": 8, "max_new_tokens": 60}


def config_for(base, out, **changes):
    settings = {k: v for k, v in settings_for(base, out).items() if k != "heads"}
    return Eagle3Config(**settings | {"unrolled_steps": 4} | changes)


def tokens_per_step(base, folder):
    engine = load_engine(LoadConfig(str(base), str(folder), dtype="float32", device="cpu"))
    steps = list(engine.stream(engine.encode(PROMPT), GenerationConfig.of(**DRAFT)))
    return len(tiny.emitted(steps)) / len(steps)


def test_each_unrolled_step_is_what_drafting_a_chain_computes(engine):
    """Row t of step i has read the text up to token t and drafted i tokens, here those of the text."""
    draft = eagle3_files.draft_for(engine.target)
    tokens = [tiny.random_tokens(9, seed) for seed in (1, 2)]
    features = torch.randn(2, 9, 96, generator=torch.Generator().manual_seed(3))
    embedded = draft.embedding[torch.tensor(tokens)]
    outputs = unrolled_outputs(draft.model, draft.rotary, embedded, features, 4)
    found = [draft.model.logits(output) for output in outputs]
    assert [logits.shape[1] for logits in found] == [7, 6, 5, 4]
    slow = SlowDraft(eagle3_files.state(), draft.embedding)
    for window, text in enumerate(tokens):
        for step, logits in enumerate(found):
            for row in range(logits.shape[1]):
                drafted = text[row + 2 : row + 2 + step]
                guesses = slow.guesses(features[window, : row + 1], text[: row + 2], drafted, 5)
                best = logits[window, row].log_softmax(0).topk(5)
                targets = draft.model.target_tokens(best.indices).tolist()
                assert targets == [token for token, _ in guesses]
                assert best.values.tolist() == pytest.approx([logp for _, logp in guesses], abs=1e-4)


def test_the_loss_falls_and_the_result_drafts_better_than_it_began(trained_base, tmp_path):
    fresh = finish(config_for(trained_base, tmp_path / "fresh", tokens=512, learning_rate=0.0))
    folder = finish(config_for(trained_base, tmp_path / "run", tokens=60 * 512))
    for name in ("loss", "loss/1", "loss/4"):
        losses = losses_of(tmp_path / "run", name)
        assert losses[60] < 0.8 * losses[10]
    assert tokens_per_step(trained_base, folder) > 1.3 * tokens_per_step(trained_base, fresh)
    result = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert f"| chat | {result['heldout/chat/base']:.3f} | {result['heldout/chat/top1/1']:.2f} / " in card
    assert "step 4" in card
    assert f"| {60 * 512:,} | {losses_of(tmp_path / 'run')[60]:.3f} | " in card  # the course's last row
    assert (folder / "README.md").read_text(encoding="utf-8") == card
    recipe = (trained_base.parent.parent / "recipe.json").read_bytes()
    assert (folder / "recipe.json").read_bytes() == recipe
    again = finish(config_for(trained_base, tmp_path / "again", tokens=512, start=str(folder)))
    assert losses_of(tmp_path / "again")[1] < losses_of(tmp_path / "fresh")[1]
    assert read_config(again) == read_config(folder)


def test_the_layer_has_the_vocabulary_and_the_width_that_are_asked_for(trained_base, tmp_path):
    """The most frequent tokens are in it; with more than the text has, others fill it up."""
    folder = finish(
        config_for(trained_base, tmp_path / "run", draft_vocab=250, draft_mlp=40, tokens=20 * 512)
    )
    engine = load_engine(LoadConfig(str(trained_base), str(folder), dtype="float32", device="cpu"))
    model = engine.drafts["eagle3"].model
    assert int(model.t2d.sum()) == len(model.d2t) == 250
    assert model.shape.intermediate == 40
    assert all(model.t2d[token] for token in engine.encode(PROMPT)[1:])
    steps = list(engine.stream(engine.encode(PROMPT), GenerationConfig.of(**DRAFT)))
    assert all(model.t2d[step.tree.tokens[1:]].all() for step in steps)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("known", "weight"), [(eagle3_files.KNOWN, 0.0), (list(range(tiny.VOCABULARY)), 0.5)]
)
def test_the_losses_and_their_gradients_are_those_of_the_definition(engine, known, weight, compiled):
    """Row by row: cross-entropy against the base's distribution, where token and best token count.

    With a weight, the distance from the features that the row's place has is added.
    """
    draft = eagle3_files.draft_for(engine.target, known)
    model = draft.model.requires_grad_(True)
    tokens = torch.tensor([tiny.random_tokens(9, seed) for seed in (1, 2)])
    trained = torch.rand(2, 9, generator=torch.Generator().manual_seed(5)) > 0.3
    reading = Reading(engine.target.model, tokens, (0, 1, 2))
    made = UnrolledLosses(model, 4, torch.device("cpu"), feature_weight=weight, compiled=compiled)
    found = made(reading, trained)
    wanted = []
    features = model.fuse(reading.features).detach()
    outputs = unrolled_outputs(model, draft.rotary, reading.embedded, reading.features, 4)
    for step, output in enumerate(outputs):
        guesses = model.logits(output)
        losses = []
        for window, row in product(range(2), range(guesses.shape[1])):
            base = reading.logits[window, row + 1 + step]
            if trained[window, row + 2 + step] and int(base.argmax()) in known:
                apart = smooth_l1_loss(output[window, row], features[window, row + 1 + step])
                losses.append(cross_entropy(guesses[window, row], base[known].softmax(0)) + weight * apart)
        wanted.append(torch.stack(losses).mean())
    torch.testing.assert_close(found, torch.stack(wanted))
    weights = list(model.parameters())
    own, by_definition = (torch.autograd.grad(sum(losses), weights) for losses in (found, wanted))
    torch.testing.assert_close(own, by_definition, atol=1e-5, rtol=1e-4)
    nothing = UnrolledLosses(model, 4, torch.device("cpu"))(reading, torch.zeros_like(trained))
    assert nothing.tolist() == [0, 0, 0, 0]


def test_the_layers_that_are_asked_for_are_read_in_training_and_by_the_drafter(trained_base, tmp_path):
    """Number 2 of 2 is the output of the last layer in front of the final norm, for both."""
    config = config_for(trained_base, tmp_path / "run", feature_layers="0,0,2", tokens=512)
    folder = finish(config)
    assert read_config(folder)["eagle_aux_hidden_state_layer_ids"] == [0, 0, 2]
    engine = load_engine(LoadConfig(str(trained_base), str(folder), dtype="float32", device="cpu"))
    tokens = engine.encode(PROMPT)
    wanted = make_drafter(engine.target, engine.drafts, GenerationConfig(method="eagle3")).features
    _, features = engine.target.prefill(tokens, engine.target.new_cache(64), wanted)
    base = load_frozen(config, torch.device("cpu"))
    reading = Reading(base, torch.tensor([tokens]), (0, 0, 2))
    torch.testing.assert_close(features, reading.features[0], atol=1e-4, rtol=1e-4)
    again = config_for(trained_base, tmp_path / "again", start=str(folder), feature_layers="0,1,2")
    with pytest.raises(MedusaError, match="reads layers 0, 0, 2, the settings ask for 0,1,2"):
        finish(again)


def test_normed_states_are_added_where_that_is_asked_for(trained_base, tmp_path):
    config = config_for(trained_base, tmp_path / "run", norm_before_residual=True, tokens=512)
    folder = finish(config)
    assert read_config(folder)["norm_before_residual"] is True
    public = finish(config_for(trained_base, tmp_path / "public", tokens=512))
    assert "norm_before_residual" not in read_config(public)
    again = config_for(trained_base, tmp_path / "again", start=str(public), norm_before_residual=True)
    with pytest.raises(MedusaError, match="leave out --norm-before-residual"):
        finish(again)


@pytest.mark.parametrize("layers", ["1,2", "0,1,x", "0,1,3"])
def test_layers_that_the_base_has_not_are_refused(trained_base, tmp_path, layers):
    with pytest.raises(MedusaError, match="give 3 numbers from 0 to 2, as in 2,4,6"):
        finish(config_for(trained_base, tmp_path / "run", feature_layers=layers))


def test_what_cannot_be_trained_is_refused(trained_base, tmp_path):
    with pytest.raises(MedusaError, match="draft_vocab is 5000, the base has 295 tokens: lower it"):
        finish(config_for(trained_base, tmp_path / "a", draft_vocab=5000))
    other = eagle3_files.write(tmp_path / "draft", eagle3_files.state(), eagle3_files.config())
    with pytest.raises(MedusaError, match="is 32 wide with 24 tokens, the base 48 with 295"):
        finish(config_for(trained_base, tmp_path / "b", start=str(other)))
