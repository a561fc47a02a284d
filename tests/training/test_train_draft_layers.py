"""Training an MTP layer and a block drafter: the loss falls, and the result drafts and goes on."""

from __future__ import annotations

import block_files
import mtp_files
import pytest
import tiny
from training_corpus import losses_of
from training_runs import finish, settings_for

from medusa_core.config import GenerationConfig
from medusa_core.drafters import owner_of
from medusa_core.errors import MedusaError
from medusa_core.loading.load import load_engine
from medusa_core.training.recipes import RECIPES, result_of

NAMES = ("mtp", "block")


def config_for(name, base, out, **changes):
    settings = {k: v for k, v in settings_for(base, out).items() if k != "heads"}
    return RECIPES[name][0](**settings | {"unrolled_steps": 3} | changes)


def tokens_per_step(name, config, folder):
    engine = load_engine(result_of(config, folder))
    settings = {"draft_top_k": 3, "draft_depth": 3, "draft_nodes": 8, "max_new_tokens": 60}
    prompt = engine.encode("The cat saw a")
    steps = list(engine.stream(prompt, GenerationConfig.of(method=name, **settings)))
    plain = engine.stream(prompt, GenerationConfig.of(method="none", max_new_tokens=60))
    assert tiny.emitted(steps) == tiny.emitted(plain)
    return len(tiny.emitted(steps)) / len(steps)


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_falls_and_the_result_drafts_better_than_it_began(trained_base, tmp_path, name):
    fresh = config_for(name, trained_base, tmp_path / "fresh", tokens=512, learning_rate=0.0)
    begun = tokens_per_step(name, fresh, finish(fresh))
    config = config_for(name, trained_base, tmp_path / "run", tokens=60 * 512)
    folder = finish(config)
    assert owner_of(folder) == name
    for loss in ("loss", "loss/1", "loss/3"):
        assert losses_of(tmp_path / "run", loss)[60] < 0.6 * losses_of(tmp_path / "fresh", loss)[1]
    assert tokens_per_step(name, config, folder) > max(1.2, 1.1 * begun)
    again = config_for(name, trained_base, tmp_path / "again", tokens=512, start=str(folder))
    finish(again)
    assert losses_of(tmp_path / "again")[1] < losses_of(tmp_path / "fresh")[1]


def test_a_start_that_does_not_fit_is_refused(engine, trained_base, tmp_path):
    other = mtp_files.write(tmp_path / "mtp", mtp_files.state(engine.target.model))
    with pytest.raises(MedusaError, match="it belongs to another model"):
        finish(config_for("mtp", trained_base, tmp_path / "a", start=str(other)))
    other = block_files.write(tmp_path / "block", engine.target.model)
    with pytest.raises(MedusaError, match="is 32 wide with 24 tokens, the model 48 with 295"):
        finish(config_for("block", trained_base, tmp_path / "b", start=str(other)))


def test_a_block_drafter_goes_on_with_its_own_block(trained_base, tmp_path):
    small = {"tokens": 512, "block_layers": 1}
    folder = finish(config_for("block", trained_base, tmp_path / "one", **small))
    with pytest.raises(MedusaError, match="drafts 3 tokens with 1 layers, the settings ask for 3 and 2"):
        finish(config_for("block", trained_base, tmp_path / "two", tokens=512, start=str(folder)))
