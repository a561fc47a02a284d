"""Who sees whom in a forward: the mask of each kind of layer, in the form its kernel wants.

Full layers see every committed row; sliding layers see the last ``window`` positions, their own among them.
The window counts positions, not slots: siblings of a tree share a position, so a deep node still sees an
ancestor that lies many slots back. Knows configs and masks, nothing about weights, caches or trees.

N rows of a forward · L committed rows · B texts · W columns, L + N of the longest text
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from medusa_core.errors import MedusaError

FULL, SLIDING = "full_attention", "sliding_attention"  # as transformers names them
KERNELS = ("sdpa", "eager")  # attention kernels that take any 4-D mask

Mask = torch.Tensor | dict[str, torch.Tensor]


@dataclass(frozen=True)
class LayerMasks:
    """What the layers of one model need: the kinds among them, the sliding window and the kernel."""

    kinds: frozenset[str]
    window: int | None
    kernel: str

    @classmethod
    def of(cls, config: Any) -> LayerMasks:
        """Read a decoder's config. Raises MedusaError for layers or kernels that cannot hold a tree."""
        kernel = config._attn_implementation
        if kernel not in KERNELS:
            raise MedusaError(
                f"attention {kernel!r} takes no tree mask: load the model with "
                'attn_implementation="sdpa" or "eager"'
            )
        window = _known(config, "sliding_window") or None  # Qwen2-MoE writes 0 where it has none
        kinds = frozenset(layer_kinds(config, 1))
        if other := kinds - {FULL, SLIDING}:
            raise MedusaError(
                f"{config.model_type} has layers of kind {', '.join(sorted(other))}, whose state cannot hold "
                "a tree: use a model with full or sliding-window attention in every layer"
            )
        return cls(kinds, window, kernel)

    def build(self, texts: Sequence[tuple[torch.Tensor, torch.Tensor, int]], dtype: torch.dtype) -> Mask:
        """The mask [B, 1, N, W] that every layer reads, or one for each kind where the kinds differ.

        Each text is given by which rows of this forward see which, bool [n, n], where they stand behind the
        committed ones, [n], and how many these are. It gets the lower right corner.
        """
        seen = [self.visible(*text) for text in texts]
        together = {kind: padded_masks([one[kind] for one in seen]) for kind in self.kinds}
        return self.for_model(together, dtype)

    def for_model(self, visible: dict[str, torch.Tensor], dtype: torch.dtype) -> Mask:
        """The masks, bool [B, 1, N, W] by kind of layer, as transformers' models take them."""
        masks = {kind: mask_for(self.kernel, seen, dtype) for kind, seen in visible.items()}
        # Models with layers of one kind know no dictionary, and all take a 4-D mask as it is.
        return masks if len(masks) > 1 else next(iter(masks.values()))

    @property
    def only_window(self) -> int | None:
        """The window that all layers have; None where one of them sees everything."""
        return self.window if self.kinds == {SLIDING} else None

    def visible(self, allowed: torch.Tensor, depths: torch.Tensor, length: int) -> dict[str, torch.Tensor]:
        """Which rows of one text see which, as ``build`` takes them, by kind of layer: bool [N, L + N]."""
        full = torch.cat([allowed.new_ones(len(allowed), length), allowed], dim=1)
        visible = dict.fromkeys(self.kinds, full)
        if SLIDING in visible and self.window is not None:
            own = depths + length
            positions = torch.cat([torch.arange(length, device=full.device), own])
            visible[SLIDING] = full & (positions > own[:, None] - self.window)
        return visible


def layer_kinds(config: Any, layers: int) -> list[str]:
    """What each of ``layers`` layers attends to; where all are of one kind the config names none."""
    window = _known(config, "sliding_window") or None
    return list(_known(config, "layer_types") or [SLIDING if window else FULL] * layers)


def _known(config: Any, name: str) -> Any:
    """A setting that the config's class defines; None for a key that only the file adds.

    transformers keeps such a key, and the model's own masks know nothing of it: Llama has no window, whatever
    its config.json says.
    """
    value, kind = getattr(config, name, None), type(config)
    if value is None or hasattr(kind, name):
        return value
    try:
        return value if hasattr(kind(), name) else None
    except Exception:  # remote config classes may need arguments
        return value


def mask_for(kernel: str, allowed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The mask in the form an attention kernel wants: boolean for sdpa, additive for eager.

    Eager attention adds the mask to the scores, so a boolean one there is silently wrong.
    """
    if kernel == "sdpa":
        return allowed
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill(
        ~allowed, torch.finfo(dtype).min
    )


def padded_masks(seen: Sequence[torch.Tensor]) -> torch.Tensor:
    """Who sees whom, bool [n, w] of each text, in the lower right corner of [B, 1, N, W].

    A padding row sees the last slot, since a softmax over nothing is NaN.
    """
    if len(seen) == 1:
        return seen[0][None, None]
    rows, width = (max(sizes) for sizes in zip(*(mask.shape for mask in seen), strict=True))
    result = seen[0].new_zeros(len(seen), 1, rows, width)
    result[..., -1] = True
    for text, mask in enumerate(seen):
        count, known = mask.shape
        result[text, 0, rows - count :, :] = False
        result[text, 0, rows - count :, width - known :] = mask
    return result
