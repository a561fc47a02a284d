"""The recipes of Hydra and TokenSwift: losses fall, heads draft, and each learns from the right row."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import tiny
import torch
from hydra_heads import random_hydra
from paths import ROOT
from tokenswift_heads import hidden_before_norm, random_tokenswift
from training_corpus import losses_of
from training_runs import settings_for

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters import draft_size
from medusa_core.drafters.hydra.heads import HydraHeads
from medusa_core.errors import MedusaError
from medusa_core.evaluation.head_check import check_heads
from medusa_core.loading.load import load_engine
from medusa_core.loading.model_size import model_size
from medusa_core.training import tokenswift
from medusa_core.training.config import HydraConfig, TokenSwiftConfig
from medusa_core.training.hydra import head_losses, predictions, start_heads
from medusa_core.training.recipes import train

RECIPES = {"hydra": HydraConfig, "tokenswift": TokenSwiftConfig}
STEPS = {"hydra": 100, "tokenswift": 60}


@pytest.fixture
def config(trained_base, tmp_path):
    """Settings of a short run on the base that has learned the small corpus."""

    def of(name, **changes):
        own = {"head_layers": 2} if name == "hydra" else {}
        settings = settings_for(trained_base, tmp_path / "run", tokens=STEPS[name] * 512, **own)
        return RECIPES[name](**settings | changes)

    return of


@pytest.mark.parametrize(
    ("name", "changes", "run", "gain"),
    [
        ("hydra", {"prefix": False}, {"tree": "cartesian-3x2x1"}, 1.5),
        pytest.param("hydra", {"prefix": True}, {"tree": "cartesian-3x2x1"}, 1.5, marks=pytest.mark.slow),
        ("tokenswift", {}, {"draft_ngrams": 0}, 2.5),  # the model's own guess makes 2; the rest is the heads'
    ],
)
def test_the_loss_falls_and_the_heads_draft(config, name, changes, run, gain):
    config = config(name, **changes)
    *_, last = train(config)
    losses = losses_of(last.folder.parent)
    assert losses[STEPS[name]] < 0.6 * losses[10]
    loaded = LoadConfig(model=config.model, heads=str(last.folder), dtype="float32", device="cpu")
    engine = load_engine(loaded)
    assert engine.drafts[name].label == f"3 {'Hydra' if name == 'hydra' else 'TokenSwift'} heads"
    if name == "hydra":
        assert (engine.drafts[name].heads.prefix is not None) == changes["prefix"]
    assert len(check_heads(engine).heads) == 3
    prompt = engine.encode("The cat saw a")
    config = GenerationConfig.of(method=name, max_new_tokens=60, **run)
    steps = list(engine.stream(prompt, config))
    plain = list(engine.stream(prompt, config.changed(method="none")))
    assert tiny.emitted(steps) == tiny.emitted(plain)
    assert len(plain) > gain * len(steps)


def test_the_seed_decides_the_fresh_prefix_layer(model):
    """Whatever was drawn before; another seed gives another layer."""
    settings = HydraConfig(prefix=True, heads=1)
    first, again = (start_heads(settings, model).prefix.state_dict() for _ in range(2))
    other = start_heads(replace(settings, seed=1), model).prefix.state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("prefix", [False, True], ids=["mlp", "prefix-mlp"])
def test_each_hydra_head_is_trained_on_what_the_engine_asks_of_it(model, prefix):
    """Logits of every head at every position are those of the path that the text spells there."""
    heads = random_hydra(model, prefix=prefix)
    tokens = torch.tensor([tiny.random_tokens(9, seed=4), tiny.random_tokens(9, seed=5)])
    output = model(tokens, output_hidden_states=True)
    hidden, embedded = output.hidden_states[-1], model.get_input_embeddings()(tokens)
    everything = torch.ones_like(tokens, dtype=torch.bool)
    found = list(predictions(heads, hidden, embedded, tokens, everything))
    for head, (logits, targets) in enumerate(found):
        rows = [(text, at) for text in range(2) for at in range(9 - head - 2)]
        assert targets.tolist() == [int(tokens[text, at + head + 2]) for text, at in rows]
        for (text, at), ours in zip(rows, logits, strict=True):
            before = hidden[text : text + 1, : at + 1]
            state = (before if heads.prefix is None else heads.prefix(before))[0, -1]
            path = embedded[text, at + 1 : at + head + 2].flatten()
            wanted = heads(head, torch.cat([state, path])[None])[0]
            torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)


def test_the_teacher_is_the_base_at_the_row_before_the_guessed_token(model):
    """Heads that say what the base says there have loss 0 from it, and the text's loss is another."""

    class Knowing(torch.nn.Module):
        """Heads that hand back given logits."""

        count, prefix, inputs = 2, None, HydraHeads.inputs

        def __init__(self, rows):
            super().__init__()
            self.rows = rows

        def forward(self, head, inputs):
            return self.rows[:, head + 1 : -1].flatten(0, 1)

    tokens = torch.tensor([tiny.random_tokens(9, seed=6)])
    output = model(tokens, output_hidden_states=True)
    hidden, embedded = output.hidden_states[-1], model.get_input_embeddings()(tokens)
    everything = torch.ones_like(tokens, dtype=torch.bool)
    losses = partial(head_losses, Knowing(output.logits))
    taught = losses(hidden, embedded, tokens, everything, output.logits)
    assert taught.tolist() == pytest.approx([0, 0], abs=1e-5)
    assert losses(hidden, embedded, tokens, everything, None).min() > 0.1


@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [
        ("hydra", {"prefix": True}, r"has 3 heads of 2 layers and the kind mlp, .* ask for 3 of 2 and pre"),
        ("tokenswift", {"heads": 2}, "has 3 heads, the settings ask for 2: set --heads"),
    ],
)
def test_a_run_goes_on_from_heads_of_the_same_kind_only(config, tmp_path, name, wrong, words):
    short = config(name, tokens=2 * 512, warmup_steps=1)
    *_, last = train(short)
    again = replace(short, start=str(last.folder), out=str(tmp_path / "again"))
    *_, gone_on = train(again)
    assert (gone_on.folder / "config.json").is_file()
    with pytest.raises(MedusaError, match=words):
        list(train(replace(again, out=str(tmp_path / "other"), **wrong)))


def test_hydra_heads_may_say_their_guesses_by_the_bases_lm_head(config, tmp_path):
    config = config("hydra")
    *_, last = train(replace(config, tokens=20 * 512, lm_head="base"))
    loaded = load_engine(LoadConfig(config.model, heads=str(last.folder), dtype="float32", device="cpu"))
    heads = loaded.drafts["hydra"].heads
    lasts = [heads.head(number).last for number in range(heads.count)]
    base = loaded.target.held.weights.get_output_embeddings().weight
    for one in lasts:
        torch.testing.assert_close(one.weight, base.to(torch.bfloat16).float())
        assert not one.bias.any()
    assert heads.head(0).linear.weight.any()  # the blocks learned
    assert all(one is lasts[0] for one in lasts)  # held once, in memory and in the file
    files = sum(file.stat().st_size for file in last.folder.glob("*.safetensors"))
    count = sum(tensor.numel() for tensor in loaded.drafts["hydra"].tensors())
    assert files < 2 * (count + 1.1 * base.numel()) + 20_000
    assert draft_size(last.folder, model_size(Path(config.model))).weights >= count
    own = replace(config, tokens=2 * 512, warmup_steps=1, out=str(tmp_path / "own"))
    *_, last = train(own)
    again = replace(own, start=str(last.folder), lm_head="base", out=str(tmp_path / "again"))
    with pytest.raises(MedusaError, match=r"head 1 of .* has an LM head of its own: use --lm-head own"):
        list(train(again))


def test_each_tokenswift_head_is_trained_on_what_the_engine_asks_of_it(model):
    """Logits at every position are those of a chain that starts from the state in front of the final norm."""
    heads = random_tokenswift(model)
    tokens = torch.tensor([tiny.random_tokens(9, seed=4), tiny.random_tokens(9, seed=5)])
    hidden = hidden_before_norm(model, tokens)
    found = list(tokenswift.predictions(heads, hidden, tokens, torch.ones_like(tokens, dtype=torch.bool)))
    for head, (logits, targets) in enumerate(found):
        assert targets.tolist() == tokens[:, head + 2 :].flatten().tolist()
        wanted = heads(hidden)[head, :, : 9 - head - 2].flatten(0, 1)
        torch.testing.assert_close(logits, wanted, rtol=1e-4, atol=1e-4)


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
