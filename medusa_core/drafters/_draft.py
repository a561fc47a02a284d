"""Weights of drafters as they are loaded for one target, and the memory and time that they take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class DraftSize:
    """Numbers in a drafter's weights, and in its own key-value cache for each row of the text.

    ``model`` is a folder with a whole model that the drafter runs, which is counted as a base is.
    """

    weights: int
    cache_per_row: int = 0
    model: Path | None = None


@dataclass(frozen=True)
class Reading:
    """The least cost of a part of a step: bytes that are read and operations on them."""

    bytes: float
    flops: float


@dataclass(frozen=True, kw_only=True)
class Draft(ABC):
    """Weights of a drafter, loaded for one target and shared by all runs on it."""

    notes: tuple[str, ...] = ()  # sentences on contradictions in its files
    # Settings for its drafter that lie beside the weights, by name; they count where a run gives none.
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    @abstractmethod
    def label(self) -> str:
        """The words of the badge, such as "5 Medusa heads"."""

    @abstractmethod
    def tensors(self) -> Iterable[torch.Tensor]:
        """Everything that takes memory."""

    def reading(self, depth: int, runs: int) -> Reading:
        """The least cost in a step of ``runs`` texts, with trees that are ``depth`` deep.

        Every number counts once, unless a kind of weights knows better which part of them a step reads.
        """
        tensors = list(self.tensors())
        return Reading(
            sum(tensor.nbytes for tensor in tensors), 2 * runs * sum(tensor.numel() for tensor in tensors)
        )
