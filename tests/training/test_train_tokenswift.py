"""The TokenSwift recipe: its loss falls, its heads draft, and each learns from the right row."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny
import torch
from paths import ROOT
from tokenswift_heads import hidden_before_norm, random_tokenswift
from training_corpus import losses_of
from training_runs import settings_for

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.evaluation.head_check import check_heads
from medusa_core.loading.load import load_engine
from medusa_core.training.config import TokenSwiftConfig
from medusa_core.training.recipes import train
from medusa_core.training.tokenswift import predictions


@pytest.fixture
def config(trained_base, tmp_path):
    """A short run on the base that has learned the small corpus."""
    return TokenSwiftConfig(**settings_for(trained_base, tmp_path / "run", tokens=60 * 512))


def test_the_loss_falls_and_the_heads_draft(config):
    *_, last = train(config)
    losses = losses_of(last.folder.parent)
    assert losses[60] < 0.6 * losses[10]
    loaded = LoadConfig(model=config.model, heads=str(last.folder), dtype="float32", device="cpu")
    engine = load_engine(loaded)
    assert engine.drafts["tokenswift"].label == "3 TokenSwift heads"
    assert len(check_heads(engine).heads) == 3
    prompt = engine.encode("The cat saw a")
    run = GenerationConfig.of(method="tokenswift", max_new_tokens=60, draft_ngrams=0)
    steps = list(engine.stream(prompt, run))
    plain = list(engine.stream(prompt, run.changed(method="none")))
    assert tiny.emitted(steps) == tiny.emitted(plain)
    assert len(plain) > 2.5 * len(steps)  # the model's own guess makes two; the rest is the heads'


def test_each_head_is_trained_on_what_the_engine_asks_of_it(model):
    """Logits at every position are those of a chain that starts from the state in front of the final norm."""
    heads = random_tokenswift(model)
    tokens = torch.tensor([tiny.random_tokens(9, seed=4), tiny.random_tokens(9, seed=5)])
    hidden = hidden_before_norm(model, tokens)
    found = list(predictions(heads, hidden, tokens, torch.ones_like(tokens, dtype=torch.bool)))
    for head, (logits, targets) in enumerate(found):
        assert targets.tolist() == tokens[:, head + 2 :].flatten().tolist()
        wanted = heads(hidden)[head, :, : 9 - head - 2].flatten(0, 1)
        torch.testing.assert_close(logits, wanted, rtol=1e-4, atol=1e-4)


def test_a_run_goes_on_from_as_many_heads_only(config, tmp_path):
    short = replace(config, tokens=2 * 512, warmup_steps=1)
    *_, last = train(short)
    again = replace(short, start=str(last.folder), out=str(tmp_path / "again"))
    *_, gone_on = train(again)
    assert (gone_on.folder / "config.json").is_file()
    with pytest.raises(MedusaError, match="has 3 heads, the settings ask for 2: set --heads"):
        list(train(replace(again, heads=2, out=str(tmp_path / "other"))))


@pytest.mark.slow
def test_some_tens_of_steps_teach_heads_of_the_embedded_model(tmp_path):
    """On this project's own pages, at the paper's rate."""
    pages = tmp_path / "pages.txt"
    pages.write_text(
        "\n\n".join(page.read_text("utf-8") for page in sorted((ROOT / "docs").glob("*.md"))), "utf-8"
    )
    config = TokenSwiftConfig(
        data=str(pages), out=str(tmp_path / "run"), tokens=40 * 512, batch_tokens=512, sequence_length=128,
        warmup_steps=4, heldout_windows=4,
    )  # fmt: skip
    *_, last = train(config)
    losses = losses_of(last.folder.parent)
    assert (losses[30] + losses[40]) / 2 < 0.9 * losses[10]  # of few windows each
    engine = load_engine(LoadConfig(heads=str(last.folder), device="cpu"))
    assert engine.drafts["tokenswift"].count == 3
