"""The losses of a draft layer that drafts several steps ahead, against the base's own distribution.

B windows · T tokens of a window · R rows of a step · V vocabulary · V' draft vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

from medusa_core.drafters.eagle3.model import rotary_table
from medusa_core.drafters.eagle3.shape import states_read
from medusa_core.drafters.eagle3.unrolled import unrolled_outputs
from medusa_core.model.features import Features
from medusa_core.model.recording import forward_with_features
from medusa_core.model.rotary import RotaryTable
from medusa_core.training.losses import HeadScores

# A draft model with its rotations, embeddings, features and a number of steps → each step's outputs, as
# ``unrolled_outputs`` lays them out.
Drafted = Callable[[Any, RotaryTable, torch.Tensor, torch.Tensor, int], Iterator[torch.Tensor]]


class Reading:
    """What the frozen base makes of tokens [B, T]: embeddings, fused features and logits."""

    def __init__(self, base: PreTrainedModel, tokens: torch.Tensor, layers: tuple[int, ...]) -> None:
        count = base.config.get_text_config(decoder=True).num_hidden_layers
        with torch.no_grad():
            output = forward_with_features(
                base, Features(states_read(layers, count)), input_ids=tokens, use_cache=False
            )
            self.features = torch.cat(output.states, dim=-1)
            self.logits = output.logits
            self.embedded = cast("Any", base.get_input_embeddings()).weight[tokens]


class UnrolledLosses(torch.nn.Module):
    """The draft model with its losses as forward pass, which is what processes synchronise on."""

    def __init__(
        self,
        model: Any,
        steps: int,
        device: torch.device,
        drafted: Drafted = unrolled_outputs,
        *,
        feature_weight: float = 0.0,
        compiled: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self._steps = steps
        self._drafted = drafted
        self._feature_weight = feature_weight
        self._rotary = rotary_table(model.shape, device)
        self._known = model.t2d.nonzero().flatten() if model.shape.maps_tokens else slice(None)
        self._run = torch.compile(self._losses, dynamic=False) if compiled else self._losses

    def forward(self, reading: Reading, trained: torch.Tensor) -> torch.Tensor:
        """Mean loss of every step; ``trained`` [B, T] says which tokens count. 0 where none does.

        The mean is over the rows that count; the public code divides by all rows of its windows.
        """
        self._rotary.prepare(trained.shape[1] + self._steps)
        return self._run(reading.embedded, reading.features, reading.logits, trained)

    def _losses(
        self, embedded: torch.Tensor, features: torch.Tensor, base: torch.Tensor, trained: torch.Tensor
    ) -> torch.Tensor:
        """Each step's loss over the rows whose best token is in the draft vocabulary: in others the base puts
        its weight elsewhere. All rows are computed, so that shapes are those of the windows.
        """
        wanted = self._wanted(base)
        known = self._best_is_known(base)
        goals = self.model.fuse(features).detach().float() if self._feature_weight else None
        losses = []
        drafted = self._drafted(self.model, self._rotary, embedded, features, self._steps)
        for step, output in enumerate(drafted):
            here = slice(1 + step, 1 + step + output.shape[1])
            counted = trained[:, 2 + step : 2 + step + output.shape[1]] & known[:, here]
            loss = _mean_entropy(self.model.logits(output), wanted[:, here], counted)
            if goals is not None:
                apart = F.smooth_l1_loss(output.float(), goals[:, here], reduction="none").mean(dim=-1)
                loss = loss + self._feature_weight * _mean(apart, counted)
            losses.append(loss)
        return torch.stack(losses)

    def _wanted(self, base: torch.Tensor) -> torch.Tensor:
        """The base's distribution over the draft vocabulary [B, T, V'], from its logits [B, T, V]."""
        return base[..., self._known].float().softmax(dim=-1)

    def _best_is_known(self, base: torch.Tensor) -> torch.Tensor:
        """Whether each best token of the base [B, T] is in the draft vocabulary, by its logits [B, T, V]."""
        if not self.model.shape.maps_tokens:
            return torch.ones(base.shape[:2], dtype=torch.bool, device=base.device)
        return self.model.t2d[base.argmax(dim=-1)]

    def scores(self, reading: Reading, trained: torch.Tensor) -> HeadScores:
        """The scores of each step. A base's best token that cannot be drafted counts as never guessed."""
        wanted = self._wanted(reading.logits)
        best_is_known = self._best_is_known(reading.logits)
        found = []
        drafted = self._drafted(self.model, self._rotary, reading.embedded, reading.features, self._steps)
        for step, output in enumerate(drafted):
            here = slice(1 + step, 1 + step + output.shape[1])
            counted = trained[:, 2 + step : 2 + step + output.shape[1]]
            logits, right = self.model.logits(output[counted]).float(), wanted[:, here][counted]
            count = counted.sum().clamp(min=1)
            higher = (logits > logits.gather(1, right.argmax(dim=-1)[:, None])).sum(dim=1)
            known = best_is_known[:, here][counted]
            hits = [((higher < guesses) & known).float().sum() / count for guesses in (1, 5)]
            loss = _mean_entropy(logits, right, torch.ones_like(known))
            found.append(torch.stack([loss, *hits, counted.sum().float()]))
        return HeadScores(*torch.stack(found).T)


def _mean_entropy(logits: torch.Tensor, wanted: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Cross-entropy against distributions, mean over the rows that are counted; 0 where none is."""
    logits = logits.float()
    # The shares of ``wanted`` sum to one, so no logarithm of each is needed.
    each = logits.logsumexp(dim=-1) - (wanted * logits).sum(dim=-1)
    return _mean(each, counted)


def _mean(each: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    return (each * counted).sum() / counted.sum().clamp(min=1)
