"""The weights of a Llama-like model as the C reads them: in panels, q, k and v in one product.

A model is read by its modules, not by its family's name alone: what is no plain linear layer (quantised,
adapted, hooked by accelerate) is refused with the reason, and transformers' forward stays the path.

d hidden size · H query heads · G key-value heads · D head size · m inner size of the MLP · V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F

from medusa_core.llama.panels import Panels, padded
from medusa_core.target.lean_model import BareLlama
from medusa_core.target.masks import SLIDING

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Families whose layers differ from Llama's by a bias, a norm on queries and keys, a rotary setting, a window.
FAMILIES = frozenset({
    "cwm", "llama", "ministral", "mistral", "phi3", "qwen2", "qwen3", "seed_oss", "smollm3"
})  # fmt: skip
DTYPES = torch.bfloat16, torch.float32


class NotLlamaError(Exception):
    """Why the C cannot take a model."""


@dataclass(frozen=True)
class Norm:
    """RMS norm: x / √(mean x² + ε) · w in float32, rounded once."""

    weight: torch.Tensor  # float32, padded
    epsilon: float

    @classmethod
    def of(cls, module: Any) -> Norm:
        """Read transformers' module. Raises NotLlamaError for a norm of another kind."""
        if not type(module).__name__.endswith("RMSNorm") or len(list(module.parameters())) != 1:
            raise NotLlamaError(f"its norm is {type(module).__name__}")
        return cls(padded(module.weight), module.variance_epsilon)


@dataclass(frozen=True)
class Layer:
    """One decoder layer."""

    before_attention: Norm
    qkv: Panels  # d → (H + 2 G) · D
    query_norm: Norm | None
    key_norm: Norm | None
    out: Panels  # H · D → d
    before_mlp: Norm
    gate_up: Panels  # d → 2 m, panels by turns
    down: Panels  # m → d
    rotates: bool = True
    window: int | None = None


@dataclass(frozen=True)
class Weights:
    """All that the C reads of a model."""

    embedding: torch.Tensor | None  # [V, d]; None: that of the LM head
    layers: list[Layer]
    last_norm: Norm
    head: Panels  # d → V
    rotary: nn.Module  # positions → cos, sin
    vocabulary: int
    hidden: int
    query_heads: int
    key_heads: int
    head_size: int
    inner: int
    scale: float
    of_embedding: Norm | None = None  # EAGLE-3's: qkv reads the normed embedding before the normed x

    @property
    def dtype(self) -> torch.dtype:
        """dtype of the numbers, which keys and values have too."""
        return self.head.numbers.dtype

    def products(self) -> Iterator[Panels]:
        """All linear layers."""
        for layer in self.layers:
            yield from (layer.qkv, layer.out, layer.gate_up, layer.down)
        yield self.head


def read_weights(model: PreTrainedModel | BareLlama, kinds: Sequence[str], window: int | None) -> Weights:
    """Pack copies of all weights. Raises NotLlamaError.

    ``kinds`` is what each layer attends to, ``window`` that of sliding layers.
    """
    config = model.config
    require_plain(model)
    inner, head = model.model, model.get_output_embeddings()
    first: Any = inner.layers[0]
    embedding = inner.embed_tokens.weight.detach()
    return Weights(
        embedding=None if head.weight is inner.embed_tokens.weight else embedding,
        layers=[
            _layer(module, window if kind == SLIDING else None)
            for module, kind in zip(inner.layers, kinds, strict=True)
        ],
        last_norm=Norm.of(inner.norm),
        head=linear([head]),
        rotary=inner.rotary_emb,
        vocabulary=len(embedding),
        hidden=embedding.shape[1],
        query_heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_size=first.self_attn.head_dim,
        inner=first.mlp.down_proj.weight.shape[1],
        scale=first.self_attn.scaling,
    )


def linear(layers: Sequence[Any]) -> Panels:
    """Linear layers on the same input, their outputs one behind the other."""
    weights = [layer.weight.detach() for layer in layers]
    biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
    return Panels.of(
        torch.cat(weights) if len(weights) > 1 else weights[0], torch.cat(biases) if biases else None
    )


def gate_and_up(mlp: Any) -> Panels:
    """Both layers of a gated MLP, also where they are one already, as Phi-3's."""
    if (both := getattr(mlp, "gate_up_proj", None)) is not None:
        return Panels.by_turns(both.weight.detach().chunk(2), [None, None])
    layers = [mlp.gate_proj, mlp.up_proj]
    return Panels.by_turns(
        [layer.weight.detach() for layer in layers], [getattr(layer, "bias", None) for layer in layers]
    )


def require_plain(model: PreTrainedModel | BareLlama) -> None:
    """Raise NotLlamaError for another family, a model spread, adapted or quantised, and on other devices."""
    kind = model.config.model_type
    known = isinstance(model, BareLlama) or type(model).__module__.startswith(f"transformers.models.{kind}.")
    if kind not in FAMILIES or not known:
        raise NotLlamaError(f"{kind} has layers of its own")
    if getattr(model, "is_quantized", False):
        raise NotLlamaError("its weights are quantized")
    devices = {tensor.device for tensor in [*model.parameters(), *model.buffers()]}
    if {device.type for device in devices} != {"cpu"}:
        raise NotLlamaError(f"it is on {', '.join(sorted(map(str, devices)))}")
    dtypes = {parameter.dtype for parameter in model.parameters()}
    if len(dtypes) > 1:
        raise NotLlamaError(f"its weights have {len(dtypes)} dtypes")
    if not dtypes.issubset(DTYPES):
        raise NotLlamaError(f"its weights are in {dtypes.pop()}".replace("torch.", ""))
    for name, module in model.named_modules():
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        # transformers hands out hidden states by hooks of its own, which change nothing.
        foreign = [hook for hook in hooks if not getattr(hook, "__module__", "").startswith("transformers.")]
        if foreign or hasattr(module, "_hf_hook"):
            raise NotLlamaError(f"{name or 'the model'} has a hook")
        if name.endswith(("_proj", "lm_head")) and type(module) is not nn.Linear:
            raise NotLlamaError(f"{name} is {type(module).__name__}")
    for layer in model.model.layers:
        for norm in (layer.input_layernorm, layer.post_attention_layernorm, model.model.norm):
            Norm.of(norm)
        _require_silu(layer.mlp)


def _require_silu(mlp: Any) -> None:
    activation, x = getattr(mlp, "act_fn", None) or mlp.activation_fn, torch.linspace(-4, 4, 9)
    if not torch.equal(activation(x), F.silu(x)):
        raise NotLlamaError("its activation is not SiLU")


def _layer(module: Any, window: int | None) -> Layer:
    attention = module.self_attn
    query_norm, key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
    joined = getattr(attention, "qkv_proj", None)  # Phi-3's
    parts = [attention.q_proj, attention.k_proj, attention.v_proj] if joined is None else [joined]
    return Layer(
        before_attention=Norm.of(module.input_layernorm),
        qkv=linear(parts),
        query_norm=Norm.of(query_norm) if query_norm is not None else None,
        key_norm=Norm.of(key_norm) if key_norm is not None else None,
        out=linear([attention.o_proj]),
        before_mlp=Norm.of(module.post_attention_layernorm),
        gate_up=gate_and_up(module.mlp),
        down=linear([module.mlp.down_proj]),
        rotates=bool(getattr(attention, "use_rope", True)),
        window=window,
    )
