"""The weights of a Llama-like model as the lean forward reads them: fused, and packed where that wins.

A model is read by its modules, not by its family's name alone: what is no plain linear layer (quantised,
adapted, hooked by accelerate) is refused with the reason, and transformers' own forward stays the path.
Fused matrices replace the originals layer by layer: the parameters become views of them, so the model keeps
its names, its ``state_dict`` and its own forward, and no weight lies in memory twice. Packed copies do, and
are made only of weights up to ``PACK_LIMIT``.

d hidden size · H query heads · G key-value heads · D head size · m inner size of the MLP · V vocabulary
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from medusa_core.model.lean_cache import LEAN
from medusa_core.model.lean_model import BareLlama
from medusa_core.model.masks import SLIDING, layer_kinds
from medusa_core.model.products import (
    PACK_LIMIT,
    Linear,
    Operators,
    PackedLinear,
    packing_that_wins,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_QKV, _GATE_UP = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
JOINED = (*_QKV, *_GATE_UP)  # layers that become a part of one product


class NotLeanError(Exception):
    """Why the lean forward cannot take a model."""


@dataclass(frozen=True)
class Norm:
    """RMS norm: x / √(mean x² + ε) · w in float32, rounded once."""

    weight: torch.Tensor  # float32, times √n
    floor: torch.Tensor  # √(n ε): x / √(mean x² + ε) = √n · x / √(‖x‖² + n ε)

    @classmethod
    def of(cls, module: Any) -> Norm:
        """Read transformers' module. Raises NotLeanError for a norm of another kind."""
        if not type(module).__name__.endswith("RMSNorm") or len(list(module.parameters())) != 1:
            raise NotLeanError(f"its norm is {type(module).__name__}")
        return cls.with_epsilon(module.weight.detach(), module.variance_epsilon)

    @classmethod
    def with_epsilon(cls, weight: torch.Tensor, epsilon: float) -> Norm:
        """From w [n] and ε."""
        size = len(weight)
        floor = torch.tensor(math.sqrt(size * epsilon), device=weight.device)
        return cls(weight.float() * math.sqrt(size), floor)

    def __call__(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """``x`` in float32, the result in ``dtype``."""
        length = torch.linalg.vector_norm(x, 2, -1, True)
        return (x / length.hypot_(self.floor)).mul_(self.weight).to(dtype)


@dataclass(frozen=True)
class Layer:
    """One decoder layer."""

    before_attention: Norm
    qkv: Linear  # d → (H + 2 G) · D
    query_norm: Norm | None
    key_norm: Norm | None
    out: Linear  # H · D → d
    before_mlp: Norm
    gate_up: Linear  # d → 2 m
    activation: Callable[[torch.Tensor], torch.Tensor]
    down: Linear  # m → d
    rotates: bool
    slides: bool


@dataclass(frozen=True)
class LeanWeights:
    """All that the lean forward reads of a model."""

    embedding: torch.Tensor  # [V, d]
    layers: list[Layer]
    last_norm: Norm
    head: Linear  # d → V
    rotary: nn.Module  # positions → cos, sin
    query_heads: int
    key_heads: int
    head_size: int
    scale: float
    packed: bool

    @property
    def dtype(self) -> torch.dtype:
        """dtype of the numbers."""
        return self.embedding.dtype

    def products(self) -> Iterator[Linear]:
        """All products with a weight."""
        for layer in self.layers:
            yield from (layer.qkv, layer.out, layer.gate_up, layer.down)
        yield self.head


def read_weights(
    model: PreTrainedModel | BareLlama, *, pack: bool | None = None, kinds: Sequence[str] | None = None
) -> LeanWeights:
    """Fuse, and pack where it wins or as ``pack`` says. Raises NotLeanError before anything is changed.

    ``kinds`` is what each layer attends to, where that is not what the config says.
    """
    config = model.config
    _require_plain(model)
    inner, head = model.model, model.get_output_embeddings()
    attention: Any = inner.layers[0].self_attn
    operators = _operators(model, pack)
    kinds = kinds or layer_kinds(config, config.num_hidden_layers)
    layers = [
        _layer(module, kind == SLIDING, operators) for module, kind in zip(inner.layers, kinds, strict=True)
    ]
    return_freed_memory()
    return LeanWeights(
        embedding=inner.embed_tokens.weight.detach(),
        layers=layers,
        last_norm=Norm.of(inner.norm),
        head=_product(_plain(head), operators),
        rotary=inner.rotary_emb,
        query_heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_size=attention.head_dim,
        scale=attention.scaling,
        packed=operators is not None,
    )


def _require_plain(model: PreTrainedModel | BareLlama) -> None:
    """Raise NotLeanError for another family, a model spread, adapted or quantised, and on other devices."""
    kind = model.config.model_type
    known = isinstance(model, BareLlama) or type(model).__module__.startswith(f"transformers.models.{kind}.")
    if kind not in LEAN or not known:
        raise NotLeanError(f"{kind} has layers of its own")
    if getattr(model, "is_quantized", False):
        raise NotLeanError("its weights are quantized")
    tensors = [*model.parameters(), *model.buffers()]
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1 or {device.type for device in devices} - {"cpu", "cuda"}:
        raise NotLeanError(f"it is on {', '.join(sorted(map(str, devices)))}")
    if len(kinds := {parameter.dtype for parameter in model.parameters()}) > 1:
        raise NotLeanError(f"its weights have {len(kinds)} dtypes")
    for name, module in model.named_modules():
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        # transformers hands out hidden states by hooks of its own, which change nothing.
        foreign = [hook for hook in hooks if not getattr(hook, "__module__", "").startswith("transformers.")]
        if foreign or hasattr(module, "_hf_hook"):
            raise NotLeanError(f"{name or 'the model'} has a hook")
        if name.endswith(("_proj", "lm_head")) and type(module) is not nn.Linear:
            raise NotLeanError(f"{name} is {type(module).__name__}")
    for layer in model.model.layers:
        for norm in (layer.input_layernorm, layer.post_attention_layernorm, model.model.norm):
            Norm.of(norm)


def _operators(model: PreTrainedModel | BareLlama, pack: bool | None) -> Operators | None:
    """The operators to pack with, None where the weights stay as they are."""
    if pack is False:
        return None
    if pack:
        return Operators.find()
    head = _plain(model.get_output_embeddings())
    if _packed_bytes(model) > PACK_LIMIT:
        return None
    return packing_that_wins(head)


def _packed_bytes(model: PreTrainedModel | BareLlama) -> int:
    linear = (module.weight for module in model.modules() if type(module) is nn.Linear)
    return sum(weight.numel() * weight.itemsize for weight in linear)


def _layer(module: Any, slides: bool, operators: Operators | None) -> Layer:
    attention, mlp = module.self_attn, module.mlp
    query_norm, key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
    replace = operators is None  # packed copies need no fused original
    qkv = _fused(attention, _QKV, "qkv_proj", replace)
    gate_up = _fused(mlp, _GATE_UP, "gate_up_proj", replace)
    return Layer(
        before_attention=Norm.of(module.input_layernorm),
        qkv=_product(qkv, operators),
        query_norm=Norm.of(query_norm) if query_norm is not None else None,
        key_norm=Norm.of(key_norm) if key_norm is not None else None,
        out=_product(_plain(attention.o_proj), operators),
        before_mlp=Norm.of(module.post_attention_layernorm),
        gate_up=_product(gate_up, operators),
        activation=getattr(mlp, "act_fn", None) or mlp.activation_fn,
        down=_product(_plain(mlp.down_proj), operators),
        rotates=bool(getattr(attention, "use_rope", True)),
        slides=slides,
    )


def _product(linear: Linear, operators: Operators | None) -> Linear:
    return linear if operators is None else PackedLinear(linear, operators)


def _fused(owner: Any, names: Sequence[str], whole: str, replace: bool) -> Linear:
    """One product for several linear layers on the same input; ``replace`` makes their weights its views."""
    if (already := getattr(owner, whole, None)) is not None:  # Phi-3's
        return _plain(already)
    parts = [getattr(owner, name) for name in names]
    weight = _joined([part.weight for part in parts], replace)
    bias = _joined([part.bias for part in parts], replace) if parts[0].bias is not None else None
    return Linear(weight, bias)


def _joined(parameters: list[nn.Parameter], replace: bool) -> torch.Tensor:
    """The parameters below each other in one tensor, of which they become views with ``replace``."""
    found = _already_joined(parameters)
    if found is not None:
        return found
    joined = torch.cat([parameter.detach() for parameter in parameters])
    if replace:
        rows = [len(parameter) for parameter in parameters]
        for parameter, view in zip(parameters, joined.split(rows), strict=True):
            parameter.data = view
    return joined


def _already_joined(parameters: list[nn.Parameter]) -> torch.Tensor | None:
    """The tensor that an earlier call has made of the same parameters."""
    first = parameters[0].detach()
    ends = [p.data_ptr() + p.nbytes for p in parameters[:-1]]
    storages = {p.untyped_storage().data_ptr() for p in parameters}
    if len(storages) > 1 or [p.data_ptr() for p in parameters[1:]] != ends:
        return None
    rows = sum(len(parameter) for parameter in parameters)
    return first.as_strided((rows, *first.shape[1:]), first.stride())


def return_freed_memory() -> None:
    """Give what the fused originals took back to the system; glibc would keep it, up to half of the model."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
        if trim is not None:
            trim(0)


def _plain(module: nn.Linear) -> Linear:
    return Linear(module.weight.detach(), _bias(module))


def _bias(module: Any) -> torch.Tensor | None:
    return module.bias.detach() if module.bias is not None else None
