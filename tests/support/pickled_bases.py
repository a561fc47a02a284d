"""The tiny model with its weights in PyTorch's pickles, as in repositories older than safetensors."""

from __future__ import annotations

import shutil
from functools import partial

import torch
from head_files import write_shards
from safetensors.torch import load_file

WEIGHTS, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


def pickled(engine_folder, folder, shards=1, **format_):
    """The tiny model with its weights as pickles, in shards with their index."""
    shutil.copytree(engine_folder, folder, ignore=shutil.ignore_patterns("heads", "*.safetensors"))
    state = load_file(engine_folder / "model.safetensors")
    if shards == 1:
        torch.save(state, folder / WEIGHTS, **format_)
        return folder
    save = partial(torch.save, **format_)
    return write_shards(folder, state, "pytorch_model-{}-of-{}.bin", shards, save, INDEX)
