"""All that is known about names and layouts of weight files, in and out.

``locate``: names to folders, on this disk or from the hub. ``sources``: which base and which heads a
pair of names means. ``files``: tensors out of files, executing nothing. ``layouts``: the public key
names of heads and back. ``read`` and ``write``: heads from and to a folder. ``build``: heads that run.
``lm_head``: the base's LM head without the base. ``serving``: what other engines want to find in a
folder, and the commands that serve it.
"""

from __future__ import annotations

from medusa_core.checkpoints.build import TruncatedHeads, build_heads
from medusa_core.checkpoints.files import Layout, layout_of
from medusa_core.checkpoints.layouts import HeadTensors
from medusa_core.checkpoints.lm_head import read_lm_head
from medusa_core.checkpoints.locate import (
    beside_heads,
    embedded_model,
    has_adapter,
    locate,
    locate_model,
    tree_beside,
)
from medusa_core.checkpoints.names import (
    ACCURACIES_NAME,
    ADAPTER_CONFIG,
    ADAPTER_NAME,
    BASE_KEY,
    EMBEDDED,
    GPU_TREE_NAME,
    HEAD_FILES,
    HEADS_FOLDER,
    HEADS_NAME,
    MODEL_FILES,
    TREE_NAME,
)
from medusa_core.checkpoints.read import read_heads
from medusa_core.checkpoints.sources import Sources, base_of_heads, find_sources, heads_folder, locate_heads
from medusa_core.checkpoints.write import SHARD_SIZE, save_heads, tensors_of, write_heads

__all__ = [
    "ACCURACIES_NAME",
    "ADAPTER_CONFIG",
    "ADAPTER_NAME",
    "BASE_KEY",
    "EMBEDDED",
    "GPU_TREE_NAME",
    "HEADS_FOLDER",
    "HEADS_NAME",
    "HEAD_FILES",
    "MODEL_FILES",
    "SHARD_SIZE",
    "TREE_NAME",
    "HeadTensors",
    "Layout",
    "Sources",
    "TruncatedHeads",
    "base_of_heads",
    "beside_heads",
    "build_heads",
    "embedded_model",
    "find_sources",
    "has_adapter",
    "heads_folder",
    "layout_of",
    "locate",
    "locate_heads",
    "locate_model",
    "read_heads",
    "read_lm_head",
    "save_heads",
    "tensors_of",
    "tree_beside",
    "write_heads",
]
