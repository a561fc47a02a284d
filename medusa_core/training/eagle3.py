"""EAGLE-3: train its draft layer on a frozen base, each row drafting several steps ahead.

The paper calls that a training-time test. The layer learns the base's own distribution of the next token,
restricted to the draft vocabulary; nothing asks it to predict hidden states. Step i's loss counts decay^i.
EAGLE-3 paper §3.2.

B windows · T tokens of a window · R rows of a step · V vocabulary · V' draft vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from transformers import PreTrainedModel

from medusa_core.checkpoints.sources import locate_heads
from medusa_core.drafters.eagle3 import FEATURES
from medusa_core.drafters.eagle3.files import read_draft, read_shape, save
from medusa_core.drafters.eagle3.model import DraftModel
from medusa_core.drafters.eagle3.shape import DraftShape, feature_layers
from medusa_core.drafters.eagle3.unrolled import unrolled_outputs
from medusa_core.errors import MedusaError
from medusa_core.training.base_model import base_name, frozen_head, load_frozen
from medusa_core.training.config import DraftLayerConfig, Eagle3Config
from medusa_core.training.data import Batch, PackedMixture
from medusa_core.training.divergence import DivergenceLimit
from medusa_core.training.drafter_run import DrafterRun, Recipe, each_loss, recipe
from medusa_core.training.loop import Losses
from medusa_core.training.losses import HeadScores
from medusa_core.training.unrolled_losses import Drafted, Reading, UnrolledLosses

_CLIP = 0.5  # limit of the gradient's norm, as published
_COUNTED = 4096  # windows at most whose tokens are counted for the draft vocabulary


@dataclass(frozen=True)
class LayerRecipe:
    """The parts in which recipes that train a draft layer on a frozen base differ."""

    stage: str
    model: Any  # a DraftModel, or another with its ``shape``
    layers: tuple[int, ...]  # hidden states of the base that are its features
    save: Callable[[Path], None]
    drafted: Drafted = unrolled_outputs


@recipe
def eagle3(config: Eagle3Config, run: DrafterRun) -> Recipe:
    """A draft layer on three hidden states of the base."""
    base = load_frozen(config, run.device)
    model = start_draft(config, base, run.data.mixture)
    layers = model.shape.layers or feature_layers(_text_config(base).num_hidden_layers)
    parts = LayerRecipe("EAGLE-3", model, layers, partial(save, model, base=base_name(config)))
    return layer_recipe(config, run, base, parts)


def layer_recipe(
    config: DraftLayerConfig, run: DrafterRun, base: PreTrainedModel, layer: LayerRecipe
) -> Recipe:
    """The recipe for a draft layer on the frozen ``base``."""
    model = layer.model.to(run.device)
    unrolled = UnrolledLosses(
        model,
        config.unrolled_steps,
        run.device,
        layer.drafted,
        feature_weight=config.feature_weight,
        compiled=config.compile,
    )

    def losses(forward: Any, batch: Batch, _: int) -> Losses:
        each = forward(Reading(base, batch.tokens, layer.layers), batch.trained)
        decay = config.unrolled_decay ** torch.arange(len(each), dtype=torch.float32, device=run.device)
        return {"loss": (each * decay).sum()} | each_loss(each)

    def score(batch: Batch) -> tuple[HeadScores, torch.Tensor]:
        reading = Reading(base, batch.tokens, layer.layers)
        return unrolled.scores(reading, batch.trained), reading.logits

    return Recipe(
        layer.stage,
        unrolled,
        losses,
        score,
        [(model.named_parameters(), config.learning_rate)],
        layer.save,
        DivergenceLimit("loss/1", math.log(model.shape.draft_vocabulary)),
        clip=_CLIP,
        guesser=("step", "the base's most likely token"),
    )


def start_draft(config: Eagle3Config, base: PreTrainedModel, text: PackedMixture) -> DraftModel:
    """A fresh draft model shaped like a layer of the base, or the one the settings go on from; in float32.

    Raises MedusaError when that does not fit the base, or for more draft tokens than the base has.
    """
    torch.manual_seed(config.seed)
    if config.start:
        folder = locate_heads(config.start)
        shape = read_shape(folder)
        fresh = shape_of(base)
        layers = shape.layers or fresh.layers
        if config.feature_layers and _layers_asked(config, base) != layers:
            raise MedusaError(
                f"{config.start} reads layers {', '.join(map(str, layers or ()))}, the settings ask for "
                f"{config.feature_layers}: leave out --feature-layers"
            )
        if config.norm_before_residual and not shape.norm_before_residual:
            raise MedusaError(f"{config.start} adds features as they are: leave out --norm-before-residual")
        if (shape.hidden, shape.vocabulary) != (fresh.hidden, fresh.vocabulary):
            raise MedusaError(
                f"{config.start} is {shape.hidden} wide with {shape.vocabulary} tokens, the base "
                f"{fresh.hidden} with {fresh.vocabulary}: it belongs to another model"
            )
        model = DraftModel(shape)
        model.load_state_dict(
            {name: t.float() if t.is_floating_point() else t for name, t in read_draft(folder, shape).items()}
        )
        return model
    shape = replace(
        shape_of(base, config.draft_vocab, config.draft_mlp), norm_before_residual=config.norm_before_residual
    )
    if config.feature_layers:
        shape = replace(shape, layers=_layers_asked(config, base))
    if shape.draft_vocabulary > shape.vocabulary:
        raise MedusaError(
            f"draft_vocab is {config.draft_vocab}, the base has {shape.vocabulary} tokens: lower it"
        )
    model = DraftModel(shape)
    known = _most_frequent(text, config.steps, shape)
    model.t2d[:] = False
    model.t2d[known] = True
    model.d2t[:] = known - torch.arange(len(known))
    # The LM head is to say what the base's would, so it begins as a copy.
    head = frozen_head(base)
    if head.shape == (shape.vocabulary, shape.hidden):  # not packed into a few bits
        model.lm_head.weight.data.copy_(head.float().cpu()[known])
    return model


def _layers_asked(config: Eagle3Config, base: PreTrainedModel) -> tuple[int, ...]:
    """The layers that the settings name. Raises MedusaError unless they are three that the base has."""
    count = _text_config(base).num_hidden_layers
    words = config.feature_layers.split(",")
    layers = tuple(int(word) for word in words if word.strip().isdecimal())
    if len(layers) != len(words) or len(layers) != FEATURES or max(layers) > count:
        raise MedusaError(
            f"feature_layers is {config.feature_layers!r}: give {FEATURES} numbers from 0 to {count}, "
            "as in 2,4,6"
        )
    return layers


def _most_frequent(text: PackedMixture, steps: int, shape: DraftShape) -> torch.Tensor:
    """The draft vocabulary, in rising order: the tokens that count most often in the training text.

    Where the text has fewer distinct tokens, those with the smallest numbers fill it up.
    """
    if not shape.maps_tokens:
        return torch.arange(shape.vocabulary)
    counts = torch.zeros(shape.vocabulary, dtype=torch.long)
    for number in range(min(steps, _COUNTED)):
        batch = text.batch(number, 1)
        counts += torch.bincount(batch.tokens[batch.trained], minlength=shape.vocabulary)
    return counts.argsort(descending=True, stable=True)[: shape.draft_vocabulary].sort().values


def _text_config(base: PreTrainedModel) -> Any:
    return base.config.get_text_config(decoder=True)


def shape_of(base: PreTrainedModel, draft_vocabulary: int = 0, mlp: int = 0) -> DraftShape:
    """A draft layer with the sizes of the base's own layers, where no others are asked for."""
    text = _text_config(base)
    shape = DraftShape.like(text, cast("Any", base.get_output_embeddings()).out_features)
    return replace(
        shape,
        intermediate=mlp or shape.intermediate,
        draft_vocabulary=draft_vocabulary or shape.vocabulary,
        layers=feature_layers(text.num_hidden_layers),
    )
