"""What the page lets its visitors do, decided once at the start by its owner.

On one's own machine they may do everything. Where others can reach the page (a Space, ``--share``, an address
beyond this machine), they may use only models that the owner lists and may train only if the owner says so,
and every run has a time limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from medusa_core.errors import MedusaError
from ui.records.settings import LONGEST_RUN, MOST_TOKENS

SPACE = "SPACE_ID"  # set by Hugging Face in every Space
ZERO_GPU = "SPACES_ZERO_GPU"  # set to true where a Space borrows its GPU from run to run
MODELS = "MEDUSA_MODELS"  # the owner's list on a Space: entries separated by commas or new lines
TRAINING = "MEDUSA_TRAINING"  # the owner of a public page sets it to 1 to switch the Train tab on
# gradio reads these where the flags say nothing.
SHARE, HOST, ROOT_PATH = "GRADIO_SHARE", "GRADIO_SERVER_NAME", "GRADIO_ROOT_PATH"
PUBLIC_RUN_SECONDS = 120.0


@dataclass(frozen=True)
class AllowedModel:
    """A model that visitors may load: names as ``--model`` and ``--heads`` take them, heads may be empty."""

    model: str
    heads: str = ""

    @classmethod
    def parse(cls, text: str) -> AllowedModel:
        """From "MODEL" or "MODEL+HEADS". Raises MedusaError when a name is missing."""
        model, plus, heads = (part.strip() for part in text.partition("+"))
        if not model or (plus and not heads):
            raise MedusaError(f"{text!r} offers no model: write MODEL or MODEL+HEADS")
        return cls(model, heads)

    @property
    def label(self) -> str:
        return f"{self.model}+{self.heads}" if self.heads else self.model


@dataclass(frozen=True)
class Policy:
    """``offers``: the models visitors may choose; ``run_seconds``: the longest run, None for no limit.

    ``most_tokens`` is the limit of new tokens of a run in the linked view.
    """

    public: bool = False
    offers: tuple[AllowedModel, ...] = ()
    training: bool = True
    run_seconds: float | None = None
    most_tokens: int = LONGEST_RUN

    @property
    def free_choice(self) -> bool:
        """Whether any folder or hub name may be loaded."""
        return not self.public

    def require(self, offer: AllowedModel) -> None:
        """Raises MedusaError for a model that visitors of a public page may not load."""
        if self.public and offer not in self.offers:
            raise MedusaError(
                f"{offer.label or 'the embedded model'} is not offered here: choose one from the list"
            )


@dataclass(frozen=True)
class Exposure:
    """Where gradio is to listen: an address, None for this machine only, and whether to open a link."""

    host: str | None
    share: bool
    hosted: bool  # on a Space, or behind a proxy that gives the page its own path

    @classmethod
    def of(cls, environment: Mapping[str, str], *, share: bool = False, host: str | None = None) -> Exposure:
        """What the flags say, and what gradio's own variables say where they are silent."""
        return cls(
            host=host or environment.get(HOST) or None,
            share=share or environment.get(SHARE, "").lower() == "true",
            hosted=SPACE in environment or bool(environment.get(ROOT_PATH)),
        )

    @property
    def public(self) -> bool:
        """Whether others besides the person at this machine can open the page."""
        return self.hosted or self.share or not is_loopback(self.host or "localhost")

    @property
    def proxied(self) -> bool:
        """Whether requests come through a proxy that names the visitor: a Space's, link's or owner's."""
        return self.hosted or self.share


def policy_of(
    environment: Mapping[str, str], reach: Exposure | None = None, offers: Sequence[str] = ()
) -> Policy:
    """The policy of a page in this environment, by default within its ``reach``. Raises MedusaError."""
    public = (reach or Exposure.of(environment)).public
    listed = [*offers, *environment.get(MODELS, "").replace("\n", ",").split(",")]
    allowed = environment.get(TRAINING) == "1"
    if allowed and borrows_gpu(environment):
        raise MedusaError(
            f"{TRAINING}=1 on a ZeroGPU Space, which lends a GPU for less than two minutes: "
            f"unset {TRAINING}, or use dedicated hardware"
        )
    return Policy(
        public=public,
        offers=tuple(dict.fromkeys(AllowedModel.parse(text) for text in listed if text.strip())),
        training=(not public or allowed) and not borrows_gpu(environment),
        run_seconds=PUBLIC_RUN_SECONDS if public else None,
        most_tokens=MOST_TOKENS if public else LONGEST_RUN,
    )


def borrows_gpu(environment: Mapping[str, str]) -> bool:
    """Whether this is a ZeroGPU Space, by the values that its own library takes as yes."""
    return environment.get(ZERO_GPU, "").lower() in ("1", "t", "true")


def announcement(policy: Policy) -> str:
    """For the terminal of a public page's owner: what others may do."""
    models = "the model it starts with"
    if policy.offers:
        models += f" and {', '.join(offer.label for offer in policy.offers)}"
    training = "on" if policy.training else "off"
    return (
        f"Others can reach this page. Models: {models}; training: {training}; "
        f"a run ends after {policy.run_seconds:g} seconds."
    )


def is_loopback(host: str) -> bool:
    """Whether the name or address always means this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name, which may stand for any address
