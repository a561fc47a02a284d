"""What the decode loop asks of a drafter, and what some of them can do besides.

The leading underscore keeps this module out of the list of drafters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

    from medusa_core.acceptance.sampling import Sampling
    from medusa_core.llama.greedy import Guessing
    from medusa_core.model.kv_cache import TreeCache
    from medusa_core.model.target import Features
    from medusa_core.trees.token_tree import TokenTree


class Drafter(Protocol):
    """What the decode loop asks of a drafter. One belongs to one run or one conversation.

    A accepted nodes · F hidden states a row (``features.layers``) · d hidden size
    """

    largest_tree: int  # nodes with the root
    features: Features  # hidden states that it reads

    def begin(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """``tokens`` are the whole prompt, ``features`` [T, F·d] belong to its last T, read just now.

        A conversation keeps its drafter: for the next run ``truncate`` is told first how much of the text
        stays, and ``tokens`` then begin with what was read already.
        """
        ...

    def propose(self, root: int, depth: int) -> TokenTree:
        """A tree with ``root`` at its top and no node deeper than ``depth``; its shape may always differ.

        ``root`` is not yet among the tokens that were observed. Near the end of the context ``depth`` gets
        smaller; at 0 the tree is the root alone.
        """
        ...

    def observe(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """``tokens`` [A] were committed, the root first; ``features`` [A, F·d] are their hidden states.

        Without ``features.all_rows`` they are those [1, F·d] of the last token alone.
        """
        ...

    def truncate(self, length: int) -> None:
        """The text goes on differently after ``length`` tokens: forget what came after them."""
        ...


@runtime_checkable
class SamplingDrafter(Drafter, Protocol):
    """A drafter that can draw its guesses from a distribution, and hands that out in ``draft_probs``."""

    def sample_by(self, sampling: Sampling | None) -> None:
        """Draw the guesses of the coming run by ``sampling``; None, as at first, takes the likeliest instead.

        Called at the beginning of each run, since a conversation keeps its drafter while the temperature and
        the rule may change, and since a run's random numbers are its own.
        """
        ...


@runtime_checkable
class CacheDrafter(Drafter, Protocol):
    """A drafter that reads the key-value cache of its run, or drafts over it."""

    def read_cache(self, cache: TreeCache) -> None:
        """Read this cache. Called at the beginning of each run, before anything of the prompt is read."""
        ...


@runtime_checkable
class RowsDrafter(Drafter, Protocol):
    """A drafter that keeps something of each row of the text, such as a key-value cache of its own."""

    @property
    def cache_bytes(self) -> int:
        """Bytes that it keeps now."""
        ...

    @property
    def length(self) -> int:
        """Tokens of the text it has read. Asked only where its ``features`` are of ``all_rows``."""
        ...

    def reserve(self, rows: int) -> None:
        """Make room for a text of so many rows. Called before ``begin``, for the whole of a run."""
        ...

    def cache_bytes_for(self, rows: int) -> int:
        """The value of ``cache_bytes`` after a text of so many rows."""
        ...


@runtime_checkable
class BatchDrafter(Drafter, Protocol):
    """A drafter whose weights can be read once for several runs."""

    def propose_all(
        self, drafters: Sequence[Drafter], roots: Sequence[int], depths: Sequence[int]
    ) -> list[TokenTree]:
        """What each of ``drafters``, all of this kind and with the same weights, would propose."""
        ...


@runtime_checkable
class NativeDrafter(Drafter, Protocol):
    """A drafter whose tree has one shape, filled from one row's features; C may know how.

    N nodes · F hidden states a row · d hidden size
    """

    @property
    def shape(self) -> TokenTree:
        """The tree at its full depth; its tokens and their log-probabilities mean nothing."""
        ...

    def guess(self, root: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and log-probabilities [N] of the tree below ``root`` [1], behind ``features`` [1, F·d]."""
        ...

    @property
    def guessing(self) -> Guessing | None:
        """How C makes the guesses; None where only ``guess`` can."""
        ...


def propose_all(drafters: Sequence[Drafter], roots: Sequence[int], depths: Sequence[int]) -> list[TokenTree]:
    """The trees of the runs of a batch, which have the same method and settings."""
    first = drafters[0]
    if len(drafters) > 1 and isinstance(first, BatchDrafter):
        return first.propose_all(drafters, roots, depths)
    return [
        drafter.propose(root, depth) for drafter, root, depth in zip(drafters, roots, depths, strict=True)
    ]
