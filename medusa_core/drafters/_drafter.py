"""What the decode loop asks of a drafter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from medusa_core.model.features import NO_FEATURES, Features

if TYPE_CHECKING:
    import torch

    from medusa_core.acceptance.sampling import Sampling
    from medusa_core.llama.greedy import Guessing
    from medusa_core.model.kv_cache import TreeCache
    from medusa_core.trees.token_tree import TokenTree


class Drafter(ABC):
    """Proposes the tree of each step. One belongs to one run or one conversation.

    A subclass sets ``largest_tree``, says which ``features`` it reads and has ``propose``; it overrides what
    else it needs. A run calls ``read_cache``, ``truncate``, ``reserve`` and ``begin`` in this order, then
    ``propose`` and ``observe`` in each step.

    T tokens · A accepted nodes · F hidden states a row (``features.layers``) · d hidden size
    """

    largest_tree: int  # nodes with the root
    features: Features = NO_FEATURES  # hidden states that it reads

    @abstractmethod
    def propose(self, root: int, depth: int) -> TokenTree:
        """A tree with ``root`` at its top and no node deeper than ``depth``; its shape may always differ.

        ``root`` is not yet among the tokens that were observed. Near the end of the context ``depth`` gets
        smaller; at 0 the tree is the root alone.
        """

    def propose_all(
        self, drafters: Sequence[Self], roots: Sequence[int], depths: Sequence[int]
    ) -> list[TokenTree]:
        """The trees of the runs of a batch, whose ``drafters`` are of this kind with the same weights.

        Overridden where the weights can be read once for all of them.
        """
        return [one.propose(root, depth) for one, root, depth in zip(drafters, roots, depths, strict=True)]

    @property
    def guessing(self) -> Guessing | None:
        """How C fills the tree inside the call of a greedy step; None where only ``propose`` can."""
        return None

    def sample_by(self, sampling: Sampling | None) -> None:
        """Draw the guesses of the coming run by ``sampling``; None, as at first, takes the likeliest instead.

        A drafter that can draw hands out the distributions in ``draft_probs``. Called at the beginning of
        each run, since a conversation keeps its drafter while the temperature and the rule may change, and
        since a run's random numbers are its own.
        """

    def read_cache(self, cache: TreeCache) -> None:
        """The key-value cache of the coming run, for a drafter that reads it or drafts over it."""

    def truncate(self, length: int) -> None:
        """The text goes on differently after ``length`` tokens: forget what came after them."""

    def reserve(self, rows: int) -> None:
        """Make room for a text of so many rows, the whole of a run."""

    def begin(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """``tokens`` are the whole prompt, ``features`` [T, F·d] belong to its last T, read just now.

        A conversation keeps its drafter: ``tokens`` then begin with what it has observed already.
        """
        self.observe(tokens[self.length :], features)

    def observe(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """``tokens`` [A] were committed, the root first; ``features`` [A, F·d] are their hidden states.

        Without ``features.all_rows`` they are those [1, F·d] of the last token alone.
        """

    @property
    def length(self) -> int:
        """Tokens of the text it has observed; 0 where it does not count them."""
        return 0

    @property
    def cache_bytes(self) -> int:
        """Bytes that it keeps of the rows of the text, such as a key-value cache of its own."""
        return 0

    def cache_bytes_for(self, rows: int) -> int:
        """The value of ``cache_bytes`` after a text of so many rows."""
        return 0
