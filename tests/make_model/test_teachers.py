"""Teachers of a base that goes on: what is kept is learned from them, what is new from its text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_pretrain_phases import phased
from tiny import build_model, tiny_config

from medusa_core.errors import MedusaError
from tools.make_model.pretrain import pretrain
from tools.make_model.teachers import Teachers, read_llama

KEEPS = {"share": 1, "window": 32, "weights": {"story": 1}, "keeps": {"story": 1}}


@pytest.fixture
def two(tmp_path):
    """Folders of two models, and the models."""
    models = [build_model(tiny_config(), seed=seed) for seed in (1, 2)]
    for number, model in enumerate(models):
        model.save_pretrained(tmp_path / str(number))
    return [str(tmp_path / str(number)) for number in range(2)], models


def test_the_loss_is_the_divergence_from_the_mean_and_the_distance_from_the_first(two):
    folders, models = two
    student = build_model(tiny_config(), seed=3)
    tokens = torch.randint(1, 24, (3, 11))
    trained = torch.rand(3, 11) < 0.7
    inputs, counted = tokens[:, :-1], trained[:, 1:]
    mean = sum(model(inputs).logits.softmax(-1) for model in models) / 2
    got = student(inputs).logits.log_softmax(-1)
    rows = [
        float((mean[place] * (mean[place].log() - got[place])).sum())
        for place in map(tuple, counted.nonzero())
    ]
    states = [model(inputs, output_hidden_states=True).hidden_states[1:] for model in (student, models[0])]
    apart = [float((a - b).norm() ** 2 / b.norm() ** 2) for a, b in zip(*states, strict=True)]
    wanted = sum(rows) / len(rows) + 0.5 * sum(apart) / len(apart)
    assert float(Teachers(folders, 0.5, student).loss(student, tokens, trained)) == pytest.approx(
        wanted, rel=1e-4
    )


def test_a_model_is_its_own_teacher_without_a_loss(two):
    folders, models = two
    tokens = torch.randint(1, 24, (2, 9))
    loss = Teachers(folders[:1], 1.0, models[0]).loss(
        models[0], tokens, torch.ones_like(tokens, dtype=torch.bool)
    )
    assert float(loss) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("tied", [False, True])
def test_a_start_is_the_weighted_mean_of_several_models(tmp_path, tied):
    models = [build_model(tiny_config(tie_word_embeddings=tied), seed=seed) for seed in (1, 2)]
    for number, model in enumerate(models):
        model.save_pretrained(tmp_path / f"rate=0.{number}")
    folders = [str(tmp_path / f"rate=0.{number}") for number in range(2)]
    mean = read_llama(f"{folders[0]}=1,{folders[1]}=3").state_dict()
    for name, weight in models[0].state_dict().items():
        torch.testing.assert_close(mean[name], 0.25 * weight + 0.75 * models[1].state_dict()[name])
    alone = read_llama(folders[1])
    assert torch.equal(alone.lm_head.weight, models[1].lm_head.weight)


def test_models_that_have_no_mean_are_refused(two, tmp_path):
    folders, _ = two
    build_model(tiny_config(intermediate_size=40)).save_pretrained(tmp_path / "other")
    with pytest.raises(MedusaError, match="differ in shape"):
        read_llama(f"{folders[0]}=1,{tmp_path / 'other'}=1")
    for share in ("half", "-1", "nan"):
        with pytest.raises(MedusaError, match="cannot read shares"):
            read_llama(f"{folders[0]}={share},{folders[1]}=1")


@pytest.mark.parametrize("changes", [{"vocab_size": 30}, {"num_hidden_layers": 1}, {"hidden_size": 16}])
def test_a_teacher_that_does_not_fit_is_named(tmp_path, changes):
    build_model(tiny_config(**changes)).save_pretrained(tmp_path)
    with pytest.raises(MedusaError, match=next(iter(changes))):
        Teachers([str(tmp_path)], 1.0, build_model(tiny_config()))
    if "vocab_size" not in changes:  # of its predictions alone it can be one
        Teachers([str(tmp_path)], 0.0, build_model(tiny_config()))


def test_what_is_kept_stays_nearer_to_the_teacher_than_without_one(corpus):
    """The same text in both runs: once it is learned, once what a model before any training says of it."""
    config, _ = phased(corpus, KEEPS)
    fresh = replace(config, tokens=256, matrix_learning_rate=0.0, learning_rate=0.0)
    *_, start = pretrain(replace(fresh, recipe=str(corpus / "recipe.json")))
    teacher = Teachers([str(start.folder)], 0.0, read_llama(str(start.folder)))
    apart = {}
    for name, phase in (("kept", KEEPS), ("free", {key: KEEPS[key] for key in KEEPS if key != "keeps"})):
        config, _ = phased(corpus, phase)
        places = {"out": str(corpus / name), "tokenizer": f"{start.folder}/tokenizer.json"}
        taught = {"teachers": str(start.folder) if name == "kept" else ""}
        *_, end = pretrain(replace(config, accumulate=2, start=str(start.folder), **places, **taught))
        model = read_llama(str(end.folder))
        text = np.load(next((corpus / name / "tokens").glob("story-*.heldout.npy")))
        tokens = torch.from_numpy(text[:33].astype(np.int64))[None]
        apart[name] = teacher.loss(model, tokens, torch.ones_like(tokens, dtype=torch.bool)).item()
    assert 0 < apart["kept"] < 0.7 * apart["free"]


@pytest.mark.parametrize(
    ("phase", "changes", "words"),
    [
        (KEEPS, {"accumulate": 2}, "name both"),
        (KEEPS | {"keeps": {}}, {"teachers": "x", "accumulate": 2}, "name both"),
        (KEEPS, {"teachers": "x", "accumulate": 1}, "make --accumulate even"),
        (KEEPS | {"keeps": {"novel": 1}}, {"teachers": "x", "accumulate": 2}, "is not a source"),
        (KEEPS | {"keeps": {"story": 0}}, {"teachers": "x", "accumulate": 2}, r"keeps\.story .* greater"),
    ],
)
def test_half_of_a_setting_is_refused(corpus, phase, changes, words):
    config, _ = phased(corpus, phase)
    with pytest.raises(MedusaError, match=words):
        next(pretrain(replace(config, **changes)))
