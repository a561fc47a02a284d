"""The checkpoint of a run: written whole, checked before it is used, and the one before it kept.

torch writes a CRC-32 of every record into the file but does not check it when reading, so training would go
on with a flipped bit unnoticed; here it is checked. A file that passes may still belong to something else:
names, shapes and numbers are compared with what is to be trained before anything is changed.
"""

from __future__ import annotations

import logging
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from medusa_core.checkpoints.files import pickle_fault
from medusa_core.checkpoints.heads import disk_errors
from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import naming, special_kind
from medusa_core.training.divergence import LossTracker

NEWEST, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"
_PARTIAL, _DAMAGED = "checkpoint.partial", "checkpoint.damaged"
# What torch's own optimizers keep of a parameter; of others it is not known.
_STATE = {"AdamW": {"step", "exp_avg", "exp_avg_sq"}, "Muon": {"momentum_buffer"}}


@dataclass(frozen=True)
class _Optimizer:
    """What is read of an optimizer; rates and the like come from the settings."""

    state: dict[int, dict[str, Any]]  # by number of the parameter


@dataclass(frozen=True)
class Checkpoint:
    """Where a run was: the step, the trained weights, the optimizers and the course of the watched loss."""

    __pydantic_config__ = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)

    step: Annotated[int, Field(strict=True, ge=0)]
    module: dict[str, torch.Tensor]
    optimizers: list[_Optimizer]
    course: LossTracker | None = None


class _UnusableError(Exception):
    """Why a run cannot go on from a file; the words stand in a sentence after the file's name."""


def trainable(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The weights that a run changes, by name."""
    return {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}


def exists(folder: Path) -> bool:
    """Whether a run has left a checkpoint, good or bad."""
    return any((folder / name).exists() for name in (NEWEST, PREVIOUS))


def save(
    folder: Path,
    step: int,
    course: LossTracker | None,
    module: torch.nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
) -> None:
    """Write the newest checkpoint; the old one stays until it is whole, and then as the one before."""
    state = {
        "step": step,
        "course": asdict(course) if course else None,
        "module": trainable(module),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
    }
    with naming(folder / NEWEST), disk_errors():
        torch.save(state, folder / _PARTIAL)
    if (folder / NEWEST).exists():
        (folder / NEWEST).replace(folder / PREVIOUS)
    (folder / _PARTIAL).replace(folder / NEWEST)


def load(
    folder: Path, module: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], *, main: bool = True
) -> Checkpoint | None:
    """The newest checkpoint that fits, put into module and optimizers; None when there is none at all.

    Where the newest is bad, the one before is taken, and a warning says so; of several processes the ``main``
    one warns. Raises MedusaError when neither can be used.
    """
    faults: list[str] = []
    for name in (NEWEST, PREVIOUS):
        if not (folder / name).exists():
            continue
        try:
            found = _read(folder / name)
            _require_fit(found, module, optimizers)
        except _UnusableError as why:
            faults.append(f"{folder / name} {why}")
            continue
        if faults and main:
            # Moved away, so that the next checkpoint does not make it the one before.
            (folder / NEWEST).replace(folder / _DAMAGED)
            words = f"{faults[0]}: the run goes on from the checkpoint before it, at step {found.step}"
            logging.getLogger(__name__).warning("warning: %s; the bad one is now %s", words, _DAMAGED)
        module.load_state_dict(found.module, strict=False)
        for optimizer, own in zip(optimizers, found.optimizers, strict=True):
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": own.state, "param_groups": groups})
        return found
    if faults:
        also = f", and {PREVIOUS} cannot be used either" if len(faults) > 1 else ""
        raise MedusaError(f"{faults[0]}{also}: delete the folder to start anew, or choose another --out")
    return None


def _read(file: Path) -> Checkpoint:
    if kind := special_kind(file):
        raise _UnusableError(f"is {kind} and no file")
    try:
        with zipfile.ZipFile(file) as records:
            bad = records.testzip()
    except OSError as error:
        raise _UnusableError(f"cannot be read ({reason_of(error)})") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise _UnusableError("is cut off, damaged or not a checkpoint") from error
    if bad is not None:
        raise _UnusableError(f"is damaged, the checksum of {bad} does not match")
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a foreign pickle makes its reader stumble over anything
        words = pickle_fault(file, error).removeprefix(f"{file.name} ").partition(":")[0]
        raise _UnusableError(words) from error
    try:
        return TypeAdapter(Checkpoint).validate_python(state)
    except ValidationError as error:
        raise _UnusableError(f"is not the checkpoint of a run ({reason_of(error)})") from error


def _require_fit(
    found: Checkpoint, module: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """Raise _UnusableError unless names, shapes and numbers are those of what is to be trained."""
    wanted = trainable(module)
    if strange := sorted(map(str, wanted.keys() ^ found.module.keys())):
        raise _UnusableError(f"belongs to another model or recipe ({strange[0]:.80})")
    for name, tensor in wanted.items():
        saved = found.module[name]
        if saved.shape != tensor.shape:
            raise _UnusableError(
                f"belongs to another model: {name} is {[*saved.shape]}, not {[*tensor.shape]}"
            )
        if not saved.is_floating_point() or not bool(saved.isfinite().all()):
            raise _UnusableError(f"has no finite numbers in {name}")
    if len(found.optimizers) != len(optimizers):
        raise _UnusableError(f"has {len(found.optimizers)} optimizers, the recipe {len(optimizers)}")
    for optimizer, own in zip(optimizers, found.optimizers, strict=True):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        _require_state(type(optimizer).__name__, own.state, parameters, begun=found.step > 0)


def _require_state(kind: str, state: dict, parameters: list[torch.Tensor], *, begun: bool) -> None:
    """The same check of one optimizer: it has what its kind keeps of each parameter, in its shape."""
    if begun and state.keys() != set(range(len(parameters))):
        raise _UnusableError(f"has the {kind} state of {len(state)} weights, not of {len(parameters)}")
    for number, own in state.items():
        if kind in _STATE and own.keys() != _STATE[kind]:
            raise _UnusableError(f"has the state of another optimizer than {kind}")
        for name, value in own.items():
            if isinstance(value, torch.Tensor):
                wanted = torch.Size() if name == "step" else parameters[number].shape
                fits = kind not in _STATE or value.shape == wanted
                if not fits or (value.is_floating_point() and not bool(value.isfinite().all())):
                    raise _UnusableError(f"has a {kind} state ({name}) that does not fit the weights")
            elif kind in _STATE:
                raise _UnusableError(f"has a {kind} state ({name}) that is not a tensor")
