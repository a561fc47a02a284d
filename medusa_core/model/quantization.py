"""Bases whose weights are packed into a few bits: by bitsandbytes or the C while they load, or saved so.

Knows how packed weights are named, asked for and made into numbers again; nothing about files or devices.

V vocabulary · d hidden size
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import torch

from medusa_core.errors import MedusaError

if TYPE_CHECKING:
    from transformers import BitsAndBytesConfig, PreTrainedModel

_BITS = {"8bit": 8, "4bit": 4}
_SCALES = 0.05  # bytes a weight, for the scales of its block
_OWN = "panels"


@dataclass(frozen=True)
class Packing:
    """How weights are packed; ``bits`` is None for methods whose config does not say."""

    method: str
    bits: int | None
    scales: float = _SCALES

    @property
    def bytes_each(self) -> float:
        """Bytes of a packed weight with its share of the scales; as of 8 bits where they are not known."""
        return (self.bits or 8) / 8 + self.scales

    @property
    def is_own(self) -> bool:
        """Whether our forward in C packs them, the LM head among them."""
        return self.method == _OWN

    def words(self) -> str:
        """Words for a person: ``4-bit``, or the method's name."""
        return f"{self.bits}-bit" if self.bits else self.method


def packing_for(quantize: str) -> Packing | None:
    """The packing that ``--quantize`` asks for."""
    return Packing("bitsandbytes", _BITS[quantize]) if quantize in _BITS else None


def own_packing(width: int) -> Packing:
    """Packing of the forward in C: 8 bits, and a scale for each output of a layer on ``width`` inputs."""
    return Packing(_OWN, 8, torch.float32.itemsize / width)


def packing_of(config: Any) -> Packing | None:
    """How the weights of a checkpoint with this transformers config were saved; None for plain numbers."""
    found = getattr(config, "quantization_config", None)
    if not found:
        return None
    settings = found if isinstance(found, dict) else found.to_dict()
    method = settings.get("quant_method") or "bitsandbytes"
    return Packing(str(getattr(method, "value", method)), _bits(settings))


def bitsandbytes_config(quantize: str, dtype: torch.dtype) -> BitsAndBytesConfig:
    """Settings with which transformers packs weights while it loads them, computing in ``dtype``.

    Raises MedusaError when bitsandbytes is not installed.
    """
    if find_spec("bitsandbytes") is None:
        raise MedusaError(
            f"{quantize} weights need bitsandbytes: pip install '.[quantize]' in the project's folder"
        )
    from transformers import BitsAndBytesConfig  # noqa: PLC0415 - its modules take a second

    if quantize == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=dtype,
        bnb_4bit_use_double_quant=True,
    )


def lm_head_weight(model: PreTrainedModel) -> torch.Tensor:
    """The LM head [V, d] in the model's dtype, on the device it runs on, packed or offloaded as it may be."""
    head = model.get_output_embeddings()
    weight = getattr(head, "weight", None)
    if _is_plain(weight):
        return weight.detach()
    held = next((tensor for tensor in head.state_dict().values() if not tensor.is_meta), None)
    device = runs_on(head) if held is None else held.device
    # However the numbers are held, what comes out for each unit vector is a column of them.
    width = cast("int", model.get_input_embeddings().embedding_dim)
    units = torch.eye(width, dtype=model.dtype, device=device)
    with torch.no_grad():
        columns = head(units) - head(torch.zeros_like(units[:1]))
    return columns.T.contiguous()


def runs_on(module: Any) -> torch.device:
    """The device that a module computes on, also when accelerate keeps its weights elsewhere."""
    device = module.weight.device
    return device if device.type != "meta" else torch.device(module._hf_hook.execution_device)


def _is_plain(weight: object) -> TypeGuard[torch.Tensor]:
    """Whether a weight is a plain tensor in memory, neither packed nor offloaded."""
    return (
        isinstance(weight, torch.Tensor)
        and type(weight) in (torch.Tensor, torch.nn.Parameter)
        and not weight.is_meta
        and weight.dtype in (torch.float32, torch.bfloat16, torch.float16)
    )


def _bits(settings: dict[str, Any]) -> int | None:
    if settings.get("load_in_4bit") or settings.get("_load_in_4bit"):
        return 4
    if settings.get("load_in_8bit") or settings.get("_load_in_8bit"):
        return 8
    groups = list((settings.get("config_groups") or {}).values())  # compressed-tensors
    of_weights = (groups[0].get("weights") or {}) if groups and isinstance(groups[0], dict) else {}
    named = settings.get("bits") or settings.get("w_bit") or of_weights.get("num_bits")
    if named is None and "8" in str(settings.get("quant_method")):  # fp8, fbgemm_fp8, mxfp8
        return 8
    return int(named) if isinstance(named, int) else None
