"""All that is known about names and layouts of weight files, in and out.

``locate``: names to folders, on this disk or from the hub by way of ``download``. ``sources``: which base
and which heads a pair of names means. ``files``: tensors out of files, executing nothing. ``layouts``: the
public key names of heads and back. ``read`` and ``write``: heads from and to a folder. ``build``: heads that
run. ``base``: the base by way of transformers. ``lm_head``: its LM head without the rest. ``serving``: what
other engines want to find in a folder, and the commands that serve it.
"""

from __future__ import annotations

from medusa_core.checkpoints.base import (
    STRICT,
    check_weights,
    empty_base,
    load_base,
    load_tokenizer,
    model_class,
    read_base_config,
    reading_base,
    require_all_tensors,
)
from medusa_core.checkpoints.build import TruncatedHeads, build_heads
from medusa_core.checkpoints.download import Progress
from medusa_core.checkpoints.files import Layout, layout_of
from medusa_core.checkpoints.layouts import HeadTensors
from medusa_core.checkpoints.lm_head import read_lm_head
from medusa_core.checkpoints.locate import (
    Fetch,
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
from medusa_core.checkpoints.write import SHARD_SIZE, disk_errors, save_heads, tensors_of, write_heads

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
    "STRICT",
    "TREE_NAME",
    "Fetch",
    "HeadTensors",
    "Layout",
    "Progress",
    "Sources",
    "TruncatedHeads",
    "base_of_heads",
    "beside_heads",
    "build_heads",
    "check_weights",
    "disk_errors",
    "embedded_model",
    "empty_base",
    "find_sources",
    "has_adapter",
    "heads_folder",
    "layout_of",
    "load_base",
    "load_tokenizer",
    "locate",
    "locate_heads",
    "locate_model",
    "model_class",
    "read_base_config",
    "read_heads",
    "read_lm_head",
    "reading_base",
    "require_all_tensors",
    "save_heads",
    "tensors_of",
    "tree_beside",
    "write_heads",
]
