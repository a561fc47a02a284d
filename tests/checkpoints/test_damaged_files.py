"""Files damaged at random: they load, or they end in an error of ours; nothing else comes out.

The damage is a function of a seed, so a red run can be repeated. Four seeds each, twelve with
``-m slow``.
"""

from __future__ import annotations

import copy
import json
import random
import shutil

import pytest
import torch
from bad_input import ADAPTER, ADAPTER_CONFIG, CONFIG, HEADS, WEIGHTS, adapted, cut
from head_files import public_state, write
from tiny import random_heads

from medusa_core import MedusaError, generate, load
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import one_line

SEEDS = [pytest.param(seed, marks=() if seed < 4 else pytest.mark.slow) for seed in range(12)]
ODD = (None, -1, 0, 10**6, 0.5, "x", [], {}, True, ["x"], {"x": 1})


def survives(model, heads=""):
    """Load and decode; a MedusaError of one line is as good, and what it says is returned."""
    said = ""
    try:
        engine = load(str(model), heads=str(heads), dtype="float32", device="cpu")
        method = "medusa" if medusa_draft(engine).heads else "none"
        generate(engine, "abc", max_new_tokens=2, method=method)
    except MedusaError as error:
        said = str(error)
    assert said == one_line(said)
    return said


def flip(file, rng, size):
    """Change up to three of the first ``size`` bytes."""
    content = bytearray(file.read_bytes())
    for _ in range(rng.randint(1, 3)):
        content[rng.randrange(min(size, len(content)))] = rng.randrange(256)
    file.write_bytes(bytes(content))


def scramble(value, rng):
    """A JSON value with something deep in it deleted or replaced."""
    inside = [key for key, part in _parts(value) if isinstance(part, dict | list) and part]
    key = rng.choice([key for key, _ in _parts(value)])
    if inside and rng.random() < 0.6:
        key = rng.choice(inside)
        value[key] = scramble(value[key], rng)
    elif rng.random() < 0.5:
        del value[key]
    else:
        value[key] = copy.deepcopy(rng.choice(ODD))
    return value


def _parts(value):
    return list(value.items() if isinstance(value, dict) else enumerate(value))


def header_size(file):
    return 8 + int.from_bytes(file.read_bytes()[:8], "little")


@pytest.fixture
def folder(shop_engine, tmp_path):
    """A copy to be damaged."""
    return shutil.copytree(shop_engine, tmp_path / "model")


@pytest.mark.sample
@pytest.mark.parametrize("name", [WEIGHTS, f"heads/{HEADS}"])
@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, "header", "header + 1", "all but one"])
def test_files_cut_off_anywhere_are_refused(folder, name, keep):
    file = folder / name
    size, header = file.stat().st_size, header_size(file)
    kept = {"header": header, "header + 1": header + 1, "all but one": size - 1}.get(keep, keep)
    cut(file, kept / size)
    assert f"{file.name} is damaged or cut off" in survives(folder)


@pytest.mark.sample
@pytest.mark.parametrize("name", [WEIGHTS, f"heads/{HEADS}"])
@pytest.mark.parametrize("seed", SEEDS)
def test_flipped_bytes_in_a_header(folder, name, seed):
    flip(folder / name, random.Random(seed), header_size(folder / name))
    survives(folder)


@pytest.mark.parametrize("seed", SEEDS)
def test_flipped_bytes_in_a_pickle(folder, model, tmp_path, seed):
    heads = write(tmp_path / "heads", public_state(random_heads(model)), "pt")
    file, rng = heads / "medusa_lm_head.pt", random.Random(seed)
    if seed % 2:
        torch.save(torch.load(file), file, _use_new_zipfile_serialization=False)
    flip(file, rng, 2000)
    if seed % 3 == 0:
        cut(file, rng.random())
    survives(folder, heads)


@pytest.mark.sample
@pytest.mark.parametrize(
    "name", [CONFIG, "tokenizer.json", "tokenizer_config.json", "generation_config.json", "heads/config.json"]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_scrambled_json(folder, name, seed):
    file, rng = folder / name, random.Random(seed)
    data = json.loads(file.read_text(encoding="utf-8"))
    for _ in range(rng.randint(1, 3)):
        data = scramble(data, rng) if data else data
    file.write_text(json.dumps(data), encoding="utf-8")
    survives(folder)


@pytest.mark.parametrize("seed", SEEDS)
def test_scrambled_adapters(shop, seed):
    rng = random.Random(seed)

    def damage(heads):
        if seed % 2:
            flip(heads / ADAPTER, rng, header_size(heads / ADAPTER))
            return
        data = scramble(json.loads((heads / ADAPTER_CONFIG).read_text(encoding="utf-8")), rng)
        (heads / ADAPTER_CONFIG).write_text(json.dumps(data), encoding="utf-8")

    named = adapted(damage)(shop)
    survives(named.model, named.heads)
