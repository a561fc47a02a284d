"""What was measured on this machine, kept for the next start: one small JSON file a measurement.

The files lie in the user's cache folder and may be deleted at any time. One that cannot be read or written
counts as absent: measuring again costs a second or two, and no run fails for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from medusa_core.files import read_text
from medusa_core.hardware.processor import cpu_name, instruction_limit, instruction_set

FOLDER_VARIABLE = "MEDUSA_CACHE"
MEASURE_VARIABLE = "MEDUSA_MEASURE"  # 0: nothing is measured and nothing that was is used


def may_measure() -> bool:
    """Whether this process may choose by measurement."""
    return os.environ.get(MEASURE_VARIABLE, "") != "0"


def cache_folder() -> Path:
    """Where measurements are kept: MEDUSA_CACHE, or ``medusa`` in the user's cache folder."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "medusa"


def machine_key(device: torch.device | None = None) -> dict[str, Any]:
    """What a measurement holds for: the processor, the device, and the libraries that compute."""
    gpu = torch.cuda.get_device_name(device) if device is not None and device.type == "cuda" else ""
    return {
        "processor": cpu_name(),
        "cores": os.cpu_count(),
        "instructions": instruction_limit() or instruction_set(),
        "gpu": gpu,
        "torch": torch.__version__,
    }


def recall(key: Mapping[str, Any]) -> Any:
    """What was kept under ``key``, None where there is nothing."""
    try:
        found = json.loads(read_text(_file_of(key)))
        return found["value"] if found["key"] == dict(key) else None
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None


def keep(key: Mapping[str, Any], value: Any) -> None:
    """Keep ``value``, which JSON can hold, under ``key``."""
    file = _file_of(key)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=file.parent, suffix=".new", delete=False
        ) as new:
            json.dump({"key": dict(key), "value": value}, new)
        os.replace(new.name, file)  # whole or not at all, also with two processes
    except OSError:
        return


def forget(key: Mapping[str, Any]) -> None:
    """Delete what was kept under ``key``, if anything was."""
    with suppress(OSError):
        _file_of(key).unlink()


def _file_of(key: Mapping[str, Any]) -> Path:
    name = hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()[:24]
    return cache_folder() / f"{name}.json"
