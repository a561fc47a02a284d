"""Settings that weights bring for their drafter: what pays on a kind of device depends on them.

``draft.json`` beside the weights has them by kind of device, ``{"cpu": {"draft_nodes": 10}}``. They count
where a run does not give its own; devices and settings that are not named keep the drafter's defaults. The
leading underscore keeps this module out of the list of drafters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa_core.checkpoints.locate import beside_heads
from medusa_core.checkpoints.names import SETTINGS_NAME
from medusa_core.config import pick_settings
from medusa_core.errors import MedusaError

if TYPE_CHECKING:
    import torch


def read_own_settings(folder: Path, kind: type, device: torch.device) -> Mapping[str, Any]:
    """What the weights in ``folder`` bring for ``device``, by name; ``kind`` is the drafter's record.

    Raises MedusaError for a file that is damaged, an unknown setting or a value out of its range.
    """
    file = beside_heads(folder, SETTINGS_NAME)
    if file is None:
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise MedusaError(f"{file} is damaged: mend it, or remove it to draft with the defaults") from error
    if not isinstance(found, dict) or not all(isinstance(own, dict) for own in found.values()):
        raise MedusaError(f'{file} has no settings by device, as {{"cpu": {{"draft_nodes": 10}}}} does')
    names = [item.name for item in fields(kind) if isinstance(item.default, int)]  # a tree is a file
    for own in found.values():
        if unknown := [name for name in own if name not in names]:
            raise MedusaError(f"{file}: no setting is called {unknown[0]!r}, use {', '.join(names)}")
        try:
            pick_settings(kind, own)
        except MedusaError as error:
            raise MedusaError(f"{file}: {error}") from error
    settings: Mapping[str, Any] = found.get(device.type, {})
    return settings
