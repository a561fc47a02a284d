"""What a forward of the target is given and gives back, whichever computes it.

N rows of a forward · V vocabulary · d hidden size
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from medusa_core.errors import counted
from medusa_core.model.features import NO_FEATURES, Features
from medusa_core.model.kv_cache import TreeCache
from medusa_core.trees.token_tree import TokenTree

# Logits [rows kept, V], hidden states [N, d] of each layer, and where they are asked for queries [N, H·D].
Outputs = tuple[torch.Tensor, list[torch.Tensor]]


@dataclass(frozen=True)
class Rows:
    """The rows of one forward, on the device, and what is wanted of them."""

    tokens: torch.Tensor  # [N]
    depths: torch.Tensor  # [N], positions behind the committed rows
    deepest: int  # the largest of them, which the host knows without reading the device
    allowed: torch.Tensor  # bool [N, N]: which sees which
    kept: int = 0  # rows at the end that get logits, 0: all
    features: Features = NO_FEATURES  # features to return for these rows

    @classmethod
    def of_text(
        cls, tokens: Sequence[int], device: torch.device, kept: int = 0, features: Features = NO_FEATURES
    ) -> Rows:
        """A part of a text: each row stands behind the one before and sees all up to itself."""
        count = len(tokens)
        allowed = torch.ones(count, count, dtype=torch.bool, device=device).tril()
        depths = torch.arange(count, device=device)
        return cls(torch.tensor(tokens, device=device), depths, count - 1, allowed, kept, features)

    @classmethod
    def of_tree(cls, tree: TokenTree, device: torch.device, features: Features = NO_FEATURES) -> Rows:
        """All nodes of a tree, each of which sees its ancestors and itself."""
        depths = torch.tensor(tree.depths, device=device)
        return cls(tree.tokens.to(device), depths, max(tree.depths), tree.mask.to(device), features=features)


@dataclass(frozen=True)
class Part:
    """What one sequence of a batch has in a forward: its rows, behind the committed ones of its own cache."""

    rows: Rows
    cache: TreeCache


class Forward(Protocol):
    """What computes a target's rows: transformers' model, as it is or captured, or the C."""

    def new_cache(self, slots: int) -> TreeCache:
        """A cache for one run."""

    @property
    def copied_bytes(self) -> int:
        """Bytes that it holds beside the weights of the model."""

    def cache_bytes(self, slots: int) -> int:
        """Bytes that ``new_cache`` of so many rows takes."""

    def __call__(self, parts: Sequence[Part]) -> list[Outputs]:
        """Run the rows of each sequence behind its committed ones and commit nothing.

        They share a forward where that can be done, and each gets what it gets alone. Raises MedusaError for
        a cache that ``new_cache`` has not made.
        """


BY_TRANSFORMERS, CAPTURED = "transformers' forward", "captured as CUDA graphs"  # words of a choice


@dataclass(frozen=True)
class ForwardChoice:
    """Which forward a target runs. ``why`` says what ruled others out."""

    native: bool = False  # in C
    why: str = ""
    threads: int | None = None  # where fewer than torch's own number are faster
    captured: bool = False  # its steps are replayed as graphs
    compiled: bool = False  # norms, MLPs and rotations in them

    @property
    def exact(self) -> bool:
        """Whether a node of a tree gets the bits that its token gets alone.

        Greedy Medusa then gives plain decoding's tokens in the dtype of the weights.
        """
        return self.native

    def words(self) -> str:
        """Words for a person: ``forward in C, exact``."""
        parts = ["forward in C, exact" if self.native else BY_TRANSFORMERS]
        if self.captured:
            parts.append(CAPTURED + ", in part compiled" * self.compiled)
        if self.threads is not None:
            parts.append(counted(self.threads, "thread"))
        return ", ".join(parts) + (f" ({self.why})" if self.why else "")
