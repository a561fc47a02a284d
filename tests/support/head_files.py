"""Folders of heads in every public format, written by hand, not by the code under test."""

from __future__ import annotations

import json
import shutil
from functools import partial

import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

from medusa_core.checkpoints.convert import ConversionRequest, convert
from medusa_core.checkpoints.heads import read_heads
from medusa_core.config import LoadConfig
from medusa_core.drafters.medusa.files import build_heads
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.errors import MedusaError, one_line
from medusa_core.loading.load import load_engine

BASE_KEY = "base_model_name_or_path"
D = 32  # hidden size of the tiny models
HIDDEN = torch.randn(4, D, generator=torch.Generator().manual_seed(9))


def public_state(heads, *, version=1):
    """Tensors under the names the public code writes, in no particular order."""
    state = {}
    for i in reversed(range(heads.count)):
        for j in range(heads.layers):
            state[f"{i}.{j}.linear.weight"] = heads.block_weight[i, j].detach().clone()
            state[f"{i}.{j}.linear.bias"] = heads.block_bias[i, j].detach().clone()
        if version == 1:
            state[f"{i}.{heads.layers}.weight"] = heads.lm_weight[i].detach().clone()
    return state


def vllm_state(heads):
    """Tensors under vLLM's names; one LM head where the heads share it."""
    state = {}
    for i in range(heads.count):
        for j in range(heads.layers):
            state[f"blocks.{i}.layers.{j}.weight"] = heads.block_weight[i, j].detach().clone()
            state[f"blocks.{i}.layers.{j}.bias"] = heads.block_bias[i, j].detach().clone()
        if not heads.shares_lm_head:
            state[f"lm_heads.{i}.weight"] = heads.lm_weight[i].detach().clone()
    if heads.shares_lm_head:
        state["lm_head.weight"] = heads.lm_weight.detach().clone()
    return state


def write(folder, state, kind="safetensors", config=None):
    """Heads in their own files, named as by the public code and the hub's tools."""
    folder.mkdir(exist_ok=True, parents=True)
    if kind == "safetensors":
        save_file(state, folder / "medusa_lm_head.safetensors")
    elif kind == "pt":
        torch.save(state, folder / "medusa_lm_head.pt")
    else:
        names = sorted(state)
        for number, part in enumerate((names[::2], names[1::2]), start=1):
            save_file(
                {n: state[n] for n in part}, folder / f"medusa_lm_head-0000{number}-of-00002.safetensors"
            )
    return write_config(folder, config)


def write_vllm(folder, state, **config):
    """Heads in vLLM's format."""
    folder.mkdir(exist_ok=True, parents=True)
    save_file(state, folder / "model.safetensors")
    settings = {"architectures": ["MedusaModel"], "model_type": "medusa", "medusa_fc_bias": True}
    return write_config(folder, settings | config)


def write_full(folder, base, heads, shards=3):
    """A v1.0 model: the files of ``base`` with the heads among its tensors, in shards with their index."""
    shutil.copytree(base, folder, ignore=shutil.ignore_patterns("heads", "*.safetensors"))
    state = load_file(base / "model.safetensors")
    state |= {f"medusa_head.{name}": tensor for name, tensor in public_state(heads).items()}
    if shards == 1:
        save_file(state, folder / "model.safetensors", {"format": "pt"})
    else:
        save = partial(save_file, metadata={"format": "pt"})
        write_shards(
            folder, state, "model-{}-of-{}.safetensors", shards, save, "model.safetensors.index.json"
        )
    sizes = {"medusa_num_heads": heads.count, "medusa_num_layers": heads.layers}
    return write_config(folder, config_of(folder) | sizes)


def write_shards(folder, state, name, shards, save, index):
    """Tensors in shards, which ``save`` writes, with their index; neighbours lie in different shards."""
    weight_map = {}
    for number in range(shards):
        file = name.format(f"{number + 1:05}", f"{shards:05}")
        part = {tensor: state[tensor] for tensor in sorted(state)[number::shards]}
        save(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}), encoding="utf-8")
    return folder


def write_config(folder, config):
    """The folder with a config.json, if there is one to write."""
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def config_of(folder):
    """The folder's config.json."""
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def hub_repository(cache, name, source, revision="main", commit="a" * 40):
    """A repository in a hub cache, with the files of ``source``, as huggingface_hub leaves it there."""
    repository = cache / ("models--" + name.replace("/", "--"))
    snapshot = repository / "snapshots" / commit
    shutil.copytree(source, snapshot)
    ref = repository / "refs" / revision
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_text(commit, encoding="utf-8")
    return snapshot


def heads_of(model, kind, dtype=torch.float32, layers=1):
    """Heads of random blocks, then their own last layers, copies of the LM head, or the LM head itself."""
    heads = tiny.random_heads(model, 3, layers)
    lm_head = model.get_output_embeddings().weight.detach()
    last = {"own": heads.lm_weight, "copies": lm_head.expand(3, -1, -1).clone(), "shared": lm_head}[kind]
    return MedusaHeads(heads.block_weight.to(dtype), heads.block_bias.to(dtype), last.to(dtype))


def named_heads(folder, layout, heads, base):
    """Heads in a public format, naming their base."""
    config = {BASE_KEY: str(base), "medusa_num_heads": heads.count, "medusa_num_layers": heads.layers}
    if layout == "v1":
        return write(folder, public_state(heads), config=config)
    if layout == "v1 pt":
        return write(folder, public_state(heads), "pt", config)
    if layout == "v2":
        return write(folder, public_state(heads, version=2), config=config | {"version": "2"})
    if layout == "full":
        return write_full(folder, base, heads)
    return write_vllm(folder, vllm_state(heads), base_model_name_or_path=str(base))


def same(one, other):
    """Whether tensors are the same bit for bit, dtype included."""
    return set(one) == set(other) and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


def tensors_in(folder):
    """All tensors of a folder's files under their names."""
    if (file := folder / "medusa_lm_head.pt").is_file():
        return torch.load(file, weights_only=True)
    return {name: t for file in folder.glob("*.safetensors") for name, t in load_file(file).items()}


def to(where, target, kind, **settings):
    """Convert, and return the folder that was written."""
    convert(ConversionRequest(str(where), target, kind, **settings))
    return target


def load(folder, lm_head):
    return build_heads(read_heads(folder), lm_head, folder)


def settings(base, heads, **changes):
    return LoadConfig(
        **{"model": str(base), "heads": str(heads), "dtype": "float32", "device": "cpu"} | changes
    )


def refusal(base, heads):
    """The error of loading, one line."""
    with pytest.raises(MedusaError) as caught:
        load_engine(settings(base, heads))
    assert str(caught.value) == one_line(str(caught.value))
    return str(caught.value)
