"""transformers' ``generate``, plain and with Medusa, to test ours against."""

from __future__ import annotations

from collections.abc import Callable

import tiny
import torch

from medusa_core import medusa_generate

IDS = torch.tensor([tiny.PROMPT])


def plain(model, ids=IDS, **settings):
    """Plain ``generate``: token 0 is a real token here, so nothing is padding."""
    mask = {} if ids is None else {"attention_mask": torch.ones_like(ids)}
    return model.generate(ids, **{"pad_token_id": 0, **mask, **settings})


def by_medusa(model, heads) -> Callable[..., torch.Tensor]:
    """``model.generate`` with Medusa on a small tree."""

    def call(ids=IDS, **settings):
        settings = {"medusa_heads": heads, "medusa_tree": "cartesian-4x2x2"} | settings
        return plain(model, ids, custom_generate=medusa_generate, **settings)

    return call
