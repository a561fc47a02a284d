"""What the page lets its visitors do, decided once at the start by its owner.

On one's own machine everything; where others can reach the page (a Space, ``--share``, an address beyond this
machine) no model but those the owner lists, no training unless the owner says so, and an end to every run.
Knows no component and no engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from medusa_core.errors import MedusaError

SPACE = "SPACE_ID"  # set by Hugging Face in every Space
MODELS = "MEDUSA_MODELS"  # the owner's list on a Space: entries parted by commas or new lines
TRAINING = "MEDUSA_TRAINING"  # the owner's word on a public page: 1 switches the Train tab on
PUBLIC_RUN_SECONDS = 120.0
_LOOPBACK = (None, "", "localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Offer:
    """A model that visitors may load: names as ``--model`` and ``--heads`` take them, heads may be empty."""

    model: str
    heads: str = ""

    @classmethod
    def parse(cls, text: str) -> Offer:
        """From "MODEL" or "MODEL+HEADS". Raises MedusaError when a name is missing."""
        model, plus, heads = (part.strip() for part in text.partition("+"))
        if not model or (plus and not heads):
            raise MedusaError(f"{text!r} offers no model: write MODEL or MODEL+HEADS")
        return cls(model, heads)

    @property
    def label(self) -> str:
        """As it was written."""
        return f"{self.model}+{self.heads}" if self.heads else self.model


@dataclass(frozen=True)
class Policy:
    """``offers``: the models visitors may choose; ``run_seconds``: the longest run, None for no end."""

    public: bool = False
    offers: tuple[Offer, ...] = ()
    training: bool = True
    run_seconds: float | None = None

    @property
    def free_choice(self) -> bool:
        """Whether any folder or hub name may be loaded."""
        return not self.public

    def require(self, offer: Offer) -> None:
        """Raises MedusaError for a model that visitors of a public page may not load."""
        if self.public and offer not in self.offers:
            raise MedusaError(f"{offer.label} is not offered here: choose one of the list")


def policy_of(
    environment: Mapping[str, str],
    *,
    share: bool = False,
    host: str | None = None,
    offers: Sequence[str] = (),
) -> Policy:
    """The policy of a page started with these flags in this environment. Raises MedusaError."""
    space = SPACE in environment
    listed = [*offers, *environment.get(MODELS, "").replace("\n", ",").split(",")]
    public = space or share or host not in _LOOPBACK
    return Policy(
        public=public,
        offers=tuple(dict.fromkeys(Offer.parse(text) for text in listed if text.strip())),
        training=not public or environment.get(TRAINING) == "1",
        run_seconds=PUBLIC_RUN_SECONDS if public else None,
    )
