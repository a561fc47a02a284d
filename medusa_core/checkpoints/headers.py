"""Names, shapes and kinds of the tensors in a safetensors file, from its header alone.

safetensors refuses a file that was cut short; huggingface_hub's parser of local headers does not see it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path

from safetensors import SafetensorError, safe_open

from medusa_core.checkpoints.files import file_fault
from medusa_core.errors import MedusaError

_FLOATS = ("F64", "F32", "F16", "BF16")  # as safetensors names what is turned into the model's dtype


@dataclass(frozen=True)
class TensorHeader:
    """A tensor of a file: how many numbers of which kind it has."""

    name: str
    count: int
    kind: str

    @property
    def is_plain(self) -> bool:
        """Whether its numbers are turned into the model's dtype when it is read."""
        return self.kind in _FLOATS

    @property
    def width(self) -> float:
        """Bytes of a number, by the digits that safetensors' names of kinds have."""
        digits = re.search(r"\d+", self.kind)
        return int(digits[0]) / 8 if digits else 1


def tensor_headers(file: Path) -> list[TensorHeader]:
    """The tensors of a file. Raises MedusaError when it is damaged."""
    try:
        with safe_open(file, framework="pt") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return [
                TensorHeader(name, prod(part.get_shape()), part.get_dtype()) for name, part in slices.items()
            ]
    except (SafetensorError, OSError) as error:
        raise MedusaError(f"cannot read {file.parent}: {file_fault(file, error)}") from error
