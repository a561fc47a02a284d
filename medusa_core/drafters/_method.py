"""The description that a drafter's module gives of itself."""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.acceptance import NoSettings


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
