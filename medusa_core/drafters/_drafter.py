"""A drafter's description, its weights, and what the decode loop asks of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from medusa_core.acceptance import NoSettings
from medusa_core.model.features import NO_FEATURES, Features

if TYPE_CHECKING:
    import torch

    from medusa_core.acceptance.sampling import Sampling
    from medusa_core.llama.greedy import Guessing
    from medusa_core.model.kv_cache import TreeCache
    from medusa_core.trees.token_tree import TokenTree


@dataclass(frozen=True)
class Colour:
    """The colour of a drafter's accepted guesses, with a contrast of 4.5:1 on either ground."""

    light: str  # on the light ground
    dark: str  # on the dark one
    # The two ends of the scale in which charts on the light ground show shares, from none to all.
    pale: str
    deep: str


@dataclass(frozen=True)
class Drafting:
    """How a drafter drafts, in the words of the page: its picture is drawn from them and a step's nodes.

    ``reads`` are the things a draft starts from, ``who`` reads them. ``feeds`` is what each level is given of
    the one before, "" where all levels are guessed at once: then one round makes the whole draft. ``levels``
    name the columns of guesses; the last name counts on in {0}. ``words`` are whole sentences: who reads
    what, how often, and what the next guess is made with.
    """

    reads: tuple[str, ...]
    who: str
    words: tuple[str, str, str]
    feeds: str = ""
    levels: tuple[str, ...] = ("token {0}",)


@dataclass(frozen=True)
class Method:
    """The description that a drafter's module gives of itself.

    The callables are named as "package.module:name", so that reading them imports neither torch nor a model:
    ``build(target, draft, settings) -> Drafter``; ``load(folder, target) -> Draft`` for a folder of weights
    that ``owns(folder) -> bool`` recognised; ``size(folder, base) -> DraftSize`` for the memory estimate;
    ``cost(shape, settings, plain) -> list[Product]`` for what a draft computes beside a model of that shape,
    where ``plain`` is the work of a plain step; without weights it is nothing. ``design`` says what that
    assumes.
    """

    title: str  # in menus
    mark: str  # a letter on its nodes that no other has, nor p or q, which are probabilities there
    help: str  # one sentence
    build: str
    settings: type = NoSettings
    files: str = ""  # how the files of its weights are called
    owns: str = ""
    load: str = ""
    size: str = ""
    fixed_tree: bool = False  # whether the tree is the same in every step
    cost: str = ""
    design: str = ""  # one sentence
    drafting: Drafting | None = None  # None for two drafters, or none
    any_model: bool = False  # its files are those of any language model, so all others are asked first
    sequential: bool = False  # whether its heads see the tokens drafted above their guesses
    # Its name behind another drafter's, where its guesses may join that one's tree and need no weights.
    joins: str = ""
    colour: Colour | None = None  # of its accepted guesses; None: as Medusa's

    @property
    def has_weights(self) -> bool:
        """Whether it needs weights of its own."""
        return bool(self.load)


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
    # Settings for its drafter that lie beside the weights, by name; they are used where a run gives none.
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
