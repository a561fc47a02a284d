"""The order of a pretraining run's text: phases, each with its own mixture, window length and dropout.

A recipe may list ``"phases"``; without them a run has two, short windows and then windows of the whole
context, both with the recipe's shares of text. A phase that keeps kinds of text reads them in every other
forward pass, where teachers say what is learned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import read_text
from medusa_core.training.corpus import Source
from medusa_core.training.data import Batch, PackedMixture
from medusa_core.training.encoding import TokenArrays
from tools.make_model.settings import PretrainConfig

Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Phase(BaseModel):
    """A share of the run's tokens, the window length they are read in and each kind's weight in them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    share: Amount
    window: Annotated[int, Field(gt=0)]
    weights: Annotated[dict[str, Amount], Field(min_length=1)]
    dropout: Annotated[float, Field(ge=0, lt=1)]
    keeps: dict[str, Amount] = {}  # kinds learned from teachers


def load_phases(config: PretrainConfig, sources: Sequence[Source]) -> list[Phase]:
    """The phases of the recipe in their order, or the default two where it lists none.

    ``{"phases": [{"share", "window", "weights": {kind: weight}, "dropout"?, "keeps"?: {kind: weight}}]}``;
    shares and weights need not add up to 1, and a kind that is not named is not read. Raises MedusaError for
    what cannot be trained on.
    """
    path = Path(config.recipe)
    entries = json.loads(read_text(path)).get("phases")
    if entries is None:
        phases = _default_phases(config, sources)
    else:
        try:
            phases = [Phase.model_validate({"dropout": config.dropout} | entry) for entry in entries]
        except (TypeError, ValidationError) as error:
            raise MedusaError(
                f"the phases of the recipe {path} cannot be read ({reason_of(error)}): correct them"
            ) from error
        if not phases:
            raise MedusaError(f"the recipe {path} lists no phase: name one, or leave phases out")
        kinds = {source.kind for source in sources}
        if unknown := {kind for phase in phases for kind in phase.weights | phase.keeps} - kinds:
            raise MedusaError(
                f"a phase of the recipe {path} reads {min(unknown)!r}, which is not a source: use "
                f"{', '.join(sorted(kinds))}"
            )
    for phase in phases:
        _check_window(phase.window, config)
    if bool(config.teachers) != any(phase.keeps for phase in phases):
        raise MedusaError(
            f'teachers teach the kinds that a phase keeps: name both, --teachers and "keeps" in {path}'
        )
    if config.teachers and config.accumulate % 2:
        raise MedusaError(
            f"every other pass of a step keeps text, a step has {config.accumulate}: make --accumulate even"
        )
    return phases


def _default_phases(config: PretrainConfig, sources: Sequence[Source]) -> list[Phase]:
    # A source of a recipe has a weight; those of --data have none.
    weights = {source.kind: cast("float", source.weight) for source in sources}
    shares = ((1 - config.long_share, config.sequence_length), (config.long_share, config.context))
    return [
        Phase(share=share, window=window, weights=weights, dropout=config.dropout)
        for share, window in shares
        if share > 0
    ]


def _check_window(window: int, config: PretrainConfig) -> None:
    if window > config.context:
        raise MedusaError(
            f"a phase has windows of {window} tokens, the context is {config.context}: raise --context"
        )
    if config.batch_tokens // config.accumulate < window:
        raise MedusaError(
            f"a pass of {config.batch_tokens // config.accumulate} tokens holds no window of {window}: raise "
            "--batch-tokens or lower --accumulate"
        )


class PhasedText:
    """The batches of a run, phase after phase; each a pure function of the settings and the seed.

    A phase's order of text does not depend on where it begins, so that a run can be lengthened.
    """

    def __init__(
        self, phases: Sequence[Phase], texts: Mapping[str, TokenArrays], config: PretrainConfig, pad: int
    ) -> None:
        total = sum(phase.share for phase in phases)
        ends = [sum(phase.share for phase in phases[: number + 1]) for number in range(len(phases))]
        self._ends = [round(config.steps * end / total) for end in ends]
        self._phases = list(phases)
        self._accumulate = config.accumulate
        self._pass_tokens = config.batch_tokens // config.accumulate
        self._mixtures = [
            [
                _mixture(weights, phase.window, texts, config, number, pad)
                for weights in (phase.keeps, phase.weights)
                if weights
            ]
            for number, phase in enumerate(phases)
        ]

    def phase(self, step: int) -> Phase:
        """The phase that the step belongs to."""
        return self._phases[self._number(step)]

    def keeps(self, step: int, number: int) -> bool:
        """Whether a forward pass of a step reads text that is learned from teachers."""
        return bool(self.phase(step).keeps) and number % 2 == 0

    def batch(self, step: int, number: int) -> Batch:
        """The windows of one forward pass of a step."""
        which = self._number(step)
        rows = self._pass_tokens // self._phases[which].window
        mixtures = self._mixtures[which]
        passes, part = divmod(step * self._accumulate + number, len(mixtures))
        return mixtures[part].batch(passes, rows)

    def _number(self, step: int) -> int:
        return next((which for which, end in enumerate(self._ends) if step < end), len(self._ends) - 1)


def _mixture(
    weights: Mapping[str, float],
    window: int,
    texts: Mapping[str, TokenArrays],
    config: PretrainConfig,
    number: int,
    pad: int,
) -> PackedMixture:
    arrays = [texts[kind] for kind in weights]
    seed = config.seed + window + number
    return PackedMixture(arrays, list(weights.values()), window, config.max_tokens // window, seed, pad)
