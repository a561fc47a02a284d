"""Adapters merged into the weights by peft: against the formula, of every kind, and damaged ones."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import tiny
import torch
from paths import ROOT
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from medusa_core.checkpoints.adapters import apply_adapter
from medusa_core.checkpoints.names import ADAPTER_NAME
from medusa_core.errors import MedusaError

ALL_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SHAPES = {
    "all layers": {"target_modules": ALL_LINEAR},
    "some layers": {"target_modules": ["q_proj", "model.layers.1.mlp.up_proj"], "r": 3, "lora_alpha": 5},
    "scaled by the root of the rank": {"target_modules": ALL_LINEAR, "use_rslora": True},
    "the LM head": {"target_modules": ["o_proj", "lm_head"]},
}
FOREIGN = {
    "DoRA": {"target_modules": ALL_LINEAR, "use_dora": True},
    "a rank a layer": {"target_modules": ALL_LINEAR, "rank_pattern": {"q_proj": 3}},
    "a scale a layer": {"target_modules": ALL_LINEAR, "alpha_pattern": {"q_proj": 3}},
    "some of the layers": {"target_modules": ALL_LINEAR, "layers_to_transform": [1]},
    "a pattern": {"target_modules": r".*\.(q|v)_proj"},
    "layers left out": {"target_modules": ALL_LINEAR, "exclude_modules": ["k_proj"]},
    "an embedding": {"target_modules": ["q_proj", "embed_tokens"]},
    "biases": {"target_modules": ALL_LINEAR, "bias": "lora_only"},
}


def base(dtype=torch.float32, **changes):
    return tiny.build_model(tiny.tiny_config(**changes), dtype=dtype)


def write_adapter(folder, settings, **changes):
    """An adapter as peft saves it, with random numbers in both matrices."""
    torch.manual_seed(3)
    config = LoraConfig(**({"r": 4, "lora_alpha": 7, "task_type": "CAUSAL_LM"} | settings))
    config.init_lora_weights = False
    get_peft_model(base(**changes), config).save_pretrained(folder, save_embedding_layers=False)
    return folder


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("held", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("settings", SHAPES.values(), ids=SHAPES)
def test_plain_adapters_add_their_product_to_the_weights(settings, held, tied, tmp_path):
    folder = write_adapter(tmp_path, settings, tie_word_embeddings=tied)
    state = load_file(folder / ADAPTER_NAME)
    rank, alpha = settings.get("r", 4), settings.get("lora_alpha", 7)
    scale = alpha / (rank**0.5 if settings.get("use_rslora") else rank)
    model = base(held, tie_word_embeddings=tied)
    expected = weights(model)
    for name in [name for name in state if name.endswith("lora_A.weight")]:
        layer = name.removeprefix("base_model.model.").replace("lora_A.weight", "weight")
        product = state[name.replace("lora_A", "lora_B")] @ state[name] * scale
        expected[layer] = expected[layer] + product.to(held)
    found = weights(apply_adapter(model, folder))
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name])


@pytest.mark.parametrize("settings", FOREIGN.values(), ids=FOREIGN)
def test_adapters_of_other_kinds_are_merged_too(settings, tmp_path):
    folder = write_adapter(tmp_path, settings)
    before = base()
    changed = weights(apply_adapter(copy.deepcopy(before), folder))
    assert any(not torch.equal(tensor, changed[name]) for name, tensor in weights(before).items())


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_an_adapter_with_no_numbers_is_refused(value, tmp_path):
    folder = write_adapter(tmp_path, SHAPES["all layers"])
    state = load_file(folder / ADAPTER_NAME)
    state[max(state)][0, 0] = value
    save_file(state, folder / ADAPTER_NAME)
    with pytest.raises(MedusaError, match="does not fit the base model"):
        apply_adapter(base(), folder)


APPLY = """
import sys
from pathlib import Path
from transformers import LlamaForCausalLM
from medusa_core.checkpoints.adapters import apply_adapter
apply_adapter(LlamaForCausalLM.from_pretrained(sys.argv[1]), Path(sys.argv[2]))
print("peft" in sys.modules, "bitsandbytes" in sys.modules)
"""
TRAIN = """
import sys
from medusa_core.errors import MedusaError
from medusa_core.training.config import Medusa1Config
from medusa_core.training.recipes import train
try:
    next(train(Medusa1Config(data=sys.argv[1], out=sys.argv[2])))
except MedusaError:
    print("peft" in sys.modules, "bitsandbytes" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(APPLY, id="an adapter for peft"),
        pytest.param(TRAIN, id="training", marks=pytest.mark.slow),
    ],
)
def test_where_peft_imports_bitsandbytes_nothing_is_said_of_kernels(script, tmp_path):
    base().save_pretrained(tmp_path / "base")
    folder = write_adapter(tmp_path / "heads", FOREIGN["DoRA"])
    first = tmp_path / ("base" if script is APPLY else "no such text")
    done = subprocess.run(
        [sys.executable, "-c", script, first, folder], capture_output=True, text=True, timeout=300,
        cwd=ROOT, env=os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["True", "True"]
    assert "kernel" not in done.stderr
