"""The plain files of a run folder: settings, metrics, result. The error for a damaged one says what to do.

JSON is written beside its file and put in its place whole, so that a kill leaves the old one. Metrics are
appended; the part of a line that a kill leaves is dropped when the run goes on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from medusa_core.checkpoints.files import read_json
from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import naming, read_bytes

CONFIG, METRICS, RESULT = "config.json", "metrics.jsonl", "result.json"
_OTHER_FOLDER = "choose another --out"


def read_record(file: Path, fix: str = _OTHER_FOLDER) -> dict[str, Any]:
    """The JSON object in a file of a run. Raises MedusaError that ends in ``fix``."""
    return read_json(file, fix)


def write_record(file: Path, record: dict[str, Any]) -> None:
    """Write JSON; the old file stays until the new one is whole."""
    replace_file(file, (json.dumps(record, indent=2, default=str) + "\n").encode())


def settings_of(folder: Path) -> dict[str, Any]:
    """The settings that the folder's run began with. Raises MedusaError for a missing or damaged file."""
    file = folder / CONFIG
    settings = read_record(file, f"put back the one that the run wrote, or {_OTHER_FOLDER}")
    if "tokens" not in settings or "batch_tokens" not in settings:
        raise MedusaError(f"{file} holds no settings of a run: put back its own, or {_OTHER_FOLDER}")
    return settings


def refuse_model(folder: Path) -> None:
    """Raise MedusaError for the folder of a model, whose config.json a run would replace by its own."""
    file = folder / CONFIG
    if not file.is_file():
        return
    try:
        found = read_record(file)
    except MedusaError:  # cut off when a run was killed at its start
        return
    if "model_type" in found or "architectures" in found:
        raise MedusaError(f"{folder} holds a model, whose {CONFIG} a run would replace: choose another --out")


def result_of(folder: Path) -> dict[str, Any] | None:
    """The result of a run, None where there is none that can be read."""
    try:
        result = read_record(folder / RESULT)
    except MedusaError:
        return None
    whole = type(result.get("step")) is int and type(result.get("tokens")) is int
    return result if whole and all(map(_is_number, result.values())) else None


def heldout_mean(record: Mapping[str, float], end: str) -> float:
    """The mean over the kinds of held-out text of a score whose name ends so."""
    return mean(v for name, v in record.items() if name.startswith("heldout/") and name.endswith(end))


def append_metrics(folder: Path, record: dict[str, float]) -> None:
    """Add a line."""
    with naming(folder / METRICS), open(folder / METRICS, "a", encoding="utf-8") as file:
        file.write(json.dumps({name: round(value, 6) for name, value in record.items()}) + "\n")


def cut_metrics(folder: Path, step: int) -> None:
    """Drop the lines after ``step``, which will be logged again. Raises MedusaError for a damaged file."""
    file = folder / METRICS
    if file.exists():
        replace_file(file, cut_lines(file, "step", step, f"take the line out, or {_OTHER_FOLDER}"))


def cut_lines(file: Path, count: str, last: int, way_out: str) -> bytes:
    """The JSON lines of a file whose field ``count`` is at most ``last``; a half line at its end is dropped.

    Raises MedusaError that names a damaged line and ends in the way out.
    """
    try:
        *lines, _ = read_bytes(file).split(b"\n")
    except OSError as error:
        raise MedusaError(
            f"cannot read {file} ({reason_of(error)}): move it away, or {_OTHER_FOLDER}"
        ) from error
    kept: list[bytes] = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise MedusaError(
                f"line {number} of {file} is damaged ({reason_of(error)}): {way_out}"
            ) from error
        at = record.get(count) if isinstance(record, dict) else None
        if type(at) is not int:
            raise MedusaError(f"line {number} of {file} has no number under {count!r}: {way_out}")
        if at <= last:
            kept.append(line + b"\n")
    return b"".join(kept)


def replace_file(file: Path, content: bytes) -> None:
    """Write a file; the old one stays until the new one is whole."""
    partial = file.with_name(f"{file.name}.partial")
    partial.unlink(missing_ok=True)  # a link or a pipe in its place is not written through
    with naming(file), open(partial, "xb") as new:
        new.write(content)
    partial.replace(file)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isinf(value)
