"""Settings and a tree that lie beside a drafter's weights; the best settings depend on the device.

``draft.json`` beside the weights has them by kind of device, ``{"cpu": {"draft_nodes": 10}}``. They are
used where a run does not give its own; devices and settings that are not named keep the drafter's defaults.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa_core.checkpoints.files import read_json
from medusa_core.checkpoints.locate import beside_heads, tree_beside
from medusa_core.checkpoints.names import ACCURACIES_NAME, SETTINGS_NAME
from medusa_core.config import pick_settings
from medusa_core.errors import MedusaError
from medusa_core.trees.search import read_accuracies
from medusa_core.trees.tree import Topology, load_tree

if TYPE_CHECKING:
    import torch

_DEVICES = ("cpu", "cuda", "mps")
_FIX = "correct it, or remove it to draft with the defaults"


def read_own_settings(folder: Path, kind: type, device: torch.device) -> Mapping[str, Any]:
    """The settings that the weights in ``folder`` bring for ``device``; ``kind`` is the drafter's record.

    Raises MedusaError for a file that is damaged, an unknown setting or a value out of its range.
    """
    file = folder / SETTINGS_NAME
    if not os.path.lexists(file):
        return {}
    found = read_json(file, _FIX)
    if not all(isinstance(own, dict) for own in found.values()):
        raise MedusaError(f'{file} has no settings by device, as {{"cpu": {{"draft_nodes": 10}}}} does')
    if strange := [name for name in found if name not in _DEVICES]:
        raise MedusaError(f"{file} names a device {strange[0]!r:.40}: use {', '.join(_DEVICES)}")
    names = [item.name for item in fields(kind) if isinstance(item.default, int)]  # a tree is a file
    for own in found.values():
        if unknown := [name for name in own if name not in names]:
            known = ", ".join(names) or "none"
            raise MedusaError(f"{file}: no setting is called {unknown[0]!r}, use {known}")
        try:
            pick_settings(kind, own)
        except MedusaError as error:
            raise MedusaError(f"{file}: {error}") from error
    return found.get(device.type, {})


def tree_and_accuracies(
    folder: Path, heads: int, device: torch.device
) -> tuple[Topology | None, list[list[float]] | None]:
    """Tree and accuracies beside heads, None where missing. Raises MedusaError for a damaged file."""
    tree, accuracies = tree_beside(folder, device), beside_heads(folder, ACCURACIES_NAME)
    return load_tree(str(tree)) if tree else None, read_accuracies(accuracies, heads) if accuracies else None
