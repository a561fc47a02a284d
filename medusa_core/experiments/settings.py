"""Settings that several experiments share. They become flags, so this imports nothing slow."""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.config import MOST_ROUNDS, setting
from medusa_core.hardware.devices import known_devices
from medusa_core.hardware.shapes import known_shapes

PLAIN = "plain decoding"  # the series that others are compared with
MEDUSA1, MEDUSA2, DIRECT = "medusa1", "medusa2", "direct"


@dataclass(frozen=True)
class RunSettings:
    """What all experiments share."""

    rounds: int = setting(
        3, "rounds over all prompts; figures are medians over them", low=1, high=MOST_ROUNDS
    )
    max_new_tokens: int = setting(128, "tokens a prompt", low=1, high=4096)


QUICK_RUN = {"rounds": 1, "max_new_tokens": 24, "limit": 1}


@dataclass(frozen=True)
class VariantSettings:
    """Which variants, what those that are missing are trained on, and how their trees are chosen."""

    variants: str = setting("", "trained folders, as in medusa1=FOLDER,medusa2=FOLDER; others are trained")
    tokens: int = setting(1_000_000, "training tokens of a variant that is trained", low=1)
    batch_tokens: int = setting(2048, "training tokens a step", low=8)
    data: str = setting("", "text to train on, .jsonl or .txt; default: text the model itself writes")
    runs: str = setting("runs/experiments", "folder for the runs of variants that are trained")
    nodes: int = setting(16, "nodes of the optimised trees, the root included", low=2, high=256)
    calibration: str = setting("", "comma-separated JSONL files of prompts; default: the shipped prompts")
    calibration_skip: int = setting(0, "prompts left out at the start of each calibration file", low=0)


QUICK_VARIANTS: dict[str, object] = {"tokens": 8192, "nodes": 8}


@dataclass(frozen=True)
class SimulatedSettings:
    """Which model's block, on which device."""

    model: str = setting("llama-7b", "shape of the model", choices=tuple(known_shapes()))
    device: str = setting("a100", "device", choices=tuple(known_devices()))
