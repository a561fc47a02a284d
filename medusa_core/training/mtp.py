"""Multi-token prediction: train the layer that such models are shipped with, for a frozen base without one.

It learns as EAGLE-3's layer does, from the base's own distribution and unrolled over its own output, since
one layer drafts all levels. The model that comes with a layer has learned together with it; here the base
stays as it is. DeepSeek-V3 §2.2 (arXiv 2412.19437).
"""

from __future__ import annotations

from functools import partial

import torch
from transformers import PreTrainedModel

from medusa_core.checkpoints.sources import locate_heads
from medusa_core.drafters.mtp.files import SHARED, check_layer, read_layer, require_kind, save
from medusa_core.drafters.mtp.model import MtpLayer
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.training.base_model import base_name, frozen_head, load_frozen
from medusa_core.training.config import MtpConfig
from medusa_core.training.drafter_run import DrafterRun, Recipe, recipe
from medusa_core.training.eagle3 import LayerRecipe, layer_recipe, shape_of


@recipe
def mtp(config: MtpConfig, run: DrafterRun) -> Recipe:
    """A layer that goes on from the last hidden state of the base."""
    base = load_frozen(config, run.device)
    layer = start_layer(config, base)
    number = base.config.get_text_config(decoder=True).num_hidden_layers
    written = partial(save, layer, number=number, base=base_name(config))
    parts = LayerRecipe("MTP layer", layer, LAST_HIDDEN.layers, written)
    return layer_recipe(config, run, base, parts)


def start_layer(config: MtpConfig, base: PreTrainedModel) -> MtpLayer:
    """A fresh layer shaped as the base's own, or the one that the settings go on from; in float32.

    Raises MedusaError when that does not fit the base.
    """
    torch.manual_seed(config.seed)
    layer = MtpLayer(shape_of(base), frozen_head(base))
    copy_last_norm(base, layer.shared_head.norm)
    if config.start:
        folder = locate_heads(config.start)
        found, _ = read_layer(folder)
        state = {name: tensor for name, tensor in found.items() if name not in SHARED}
        require_kind(state, folder)
        check_layer(state, layer, folder)
        layer.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    return layer


def copy_last_norm(base: PreTrainedModel, norm: torch.nn.RMSNorm) -> None:
    """Begin with the base's last norm, for whose output its LM head was made."""
    if (own := getattr(base.base_model, "norm", None)) is not None:
        norm.weight.data.copy_(own.weight)
