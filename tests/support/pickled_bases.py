"""The tiny model with its weights in PyTorch's pickles, as in repositories older than safetensors."""

from __future__ import annotations

import json
import shutil

import torch
from safetensors.torch import load_file

WEIGHTS, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


def pickled(engine_folder, folder, shards=1, **format_):
    """The tiny model with its weights as pickles, in shards with their index."""
    shutil.copytree(engine_folder, folder, ignore=shutil.ignore_patterns("heads", "*.safetensors"))
    state = load_file(engine_folder / "model.safetensors")
    if shards == 1:
        torch.save(state, folder / WEIGHTS, **format_)
        return folder
    weight_map = {}
    for number in range(shards):
        part = {name: state[name] for name in sorted(state)[number::shards]}
        file = f"pytorch_model-{number + 1:05}-of-{shards:05}.bin"
        torch.save(part, folder / file, **format_)
        weight_map |= dict.fromkeys(part, file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}), encoding="utf-8")
    return folder
