"""Preferences between two ways to continue a text, learned by a base alongside its recipe.

Direct preference optimisation (Rafailov et al. 2023, arXiv 2305.18290, equation 7) needs no reward model:
how much likelier the base finds a text than a frozen reference does is the reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from random import Random
from typing import Annotated

import torch
from pydantic import Field, TypeAdapter, ValidationError
from torch.nn import functional as F
from transformers import LlamaForCausalLM

from medusa_core.errors import MedusaError
from medusa_core.files import read_text
from tools.make_model.settings import PretrainConfig

Tokens = list[Annotated[int, Field(strict=True, ge=0)]]
SomeTokens = Annotated[Tokens, Field(min_length=1)]


@dataclass(frozen=True)
class Pair:
    """Tokens of a text, what the base says next but should not, and what it might say instead."""

    before: Tokens
    refused: SomeTokens
    wanted: Annotated[list[SomeTokens], Field(min_length=1)]


def read_pairs(file: Path, vocabulary: int) -> list[Pair]:
    """The pairs of a file as ``tools.make_model.repeats`` writes it. Raises MedusaError for any other."""
    again = "write it with python -m tools.make_model.repeats"
    adapter = TypeAdapter(Pair)
    pairs: list[Pair] = []
    for number, line in enumerate(read_text(file).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            pair = adapter.validate_json(line)
        except ValidationError as error:
            raise MedusaError(f"line {number} of {file} is not a pair: {again}") from error
        if max(chain(pair.before, pair.refused, *pair.wanted)) >= vocabulary:
            raise MedusaError(f"line {number} of {file} is not a pair of this vocabulary: {again}")
        pairs.append(pair)
    if not pairs:
        raise MedusaError(f"{file} holds no pair: no text of the base repeats a sentence")
    return pairs


class Preferences:
    """Batches of pairs, and the loss that tells a base which half of each is wanted."""

    def __init__(
        self, pairs: Sequence[Pair], reference: LlamaForCausalLM, end: int, config: PretrainConfig
    ) -> None:
        """``end`` is the token of end-of-text."""
        self._pairs, self._reference, self._end, self._config = list(pairs), reference, end, config

    def loss(self, model: LlamaForCausalLM, number: int) -> torch.Tensor:
        """The weighted loss over batch ``number``, a pure function of settings and seed."""
        random = Random(f"{self._config.seed} {number}")
        chosen = random.sample(self._pairs, min(self._config.pair_batch, len(self._pairs)))
        tokens, said = self._rows(
            [(pair.before, part) for pair in chosen for part in (random.choice(pair.wanted), pair.refused)]
        )
        with torch.no_grad():
            usual = _log_likelihoods(self._reference, tokens, said)
        gains = (_log_likelihoods(model, tokens, said) - usual).view(-1, 2)
        apart = self._config.pair_beta * (gains[:, 0] - gains[:, 1])
        return -self._config.pair_weight * F.logsigmoid(apart).mean()

    def _rows(self, texts: Sequence[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Texts of two parts as rows after an end-of-text, and a mark on the second part. [B, T] each."""
        width = 1 + max(len(first) + len(second) for first, second in texts)
        tokens = torch.full((len(texts), width), self._end)
        said = torch.zeros(len(texts), width, dtype=torch.bool)
        for row, (first, second) in enumerate(texts):
            end = 1 + len(first) + len(second)
            tokens[row, 1:end] = torch.tensor(first + second)
            said[row, 1 + len(first) : end] = True
        return tokens, said


def _log_likelihoods(model: LlamaForCausalLM, tokens: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
    """Summed log p of each row's marked tokens. [B] in nats."""
    tokens, said = tokens.to(model.device), said.to(model.device)
    hidden = model.model(tokens[:, :-1], use_cache=False).last_hidden_state
    marked = said[:, 1:]
    logits = model.lm_head(hidden[marked]).float()
    each = -F.cross_entropy(logits, tokens[:, 1:][marked], reduction="none")
    rows = marked.nonzero()[:, 0]
    return torch.zeros(len(tokens), device=each.device).index_add(0, rows, each)
