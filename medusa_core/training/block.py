"""Block drafter: train layers on a frozen base that guess a block of tokens in one pass.

All blocks of a window are learned at once, one behind each token, each from the base's own distribution: the
losses are those of EAGLE-3's recipe, whose unrolled steps are the places of a block here. DFlash
(arXiv 2602.06036) takes some anchors of a window instead and weighs far places less, too.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from transformers import PreTrainedModel

from medusa_core.checkpoints.sources import locate_heads
from medusa_core.drafters.block.files import read, save
from medusa_core.drafters.block.model import BlockModel, block_outputs
from medusa_core.errors import MedusaError
from medusa_core.training.base_model import base_name, frozen_head, load_frozen
from medusa_core.training.config import BlockConfig
from medusa_core.training.drafter_run import DrafterRun, Recipe, recipe
from medusa_core.training.eagle3 import LayerRecipe, layer_recipe, shape_of
from medusa_core.training.mtp import copy_last_norm


@recipe
def block(config: BlockConfig, run: DrafterRun) -> Recipe:
    """Layers that guess a block of tokens in one pass."""
    base = load_frozen(config, run.device)
    model = start_block(config, base)
    written = partial(save, model, base=base_name(config))
    parts = LayerRecipe("block drafter", model, model.shape.layers or (), written, block_outputs)
    return layer_recipe(config, run, base, parts)


def start_block(config: BlockConfig, base: PreTrainedModel) -> BlockModel:
    """A fresh drafter of layers like the base's own, or the one that the settings go on from; in float32.

    Raises MedusaError when that does not fit the base or the settings.
    """
    torch.manual_seed(config.seed)
    if config.start:
        model = read(locate_heads(config.start), frozen_head(base), torch.float32)
        has = (model.block, len(model.layers))
        if has != (config.unrolled_steps, config.block_layers):
            raise MedusaError(
                f"{config.start} drafts {has[0]} tokens with {has[1]} layers, the settings ask for "
                f"{config.unrolled_steps} and {config.block_layers}: set --unrolled-steps and --block-layers "
                "to what it has"
            )
    else:
        count = base.config.get_text_config(decoder=True).num_hidden_layers
        shape = replace(shape_of(base), layers=feature_layers(count))
        model = BlockModel(shape, config.unrolled_steps, config.block_layers, frozen_head(base))
        copy_last_norm(base, model.norm)
    return model


def feature_layers(count: int) -> tuple[int, ...]:
    """Which hidden states of a base of ``count`` layers are fused: low, middle and the one its head reads."""
    return count // 3, 2 * count // 3, -1
