"""The weights of a Llama-like model as the C reads them: in panels, q, k and v in one product.

A model is read by its modules, not by its family's name alone: what is not a plain linear layer (quantised,
adapted, hooked by accelerate) is refused with the reason, and transformers' forward stays the path.

d hidden size · H query heads · G key-value heads · D head size · m inner size of the MLP · V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from medusa_core.llama.families import FAMILIES
from medusa_core.llama.panels import Panels, padded
from medusa_core.model.bare_llama import BareLlama
from medusa_core.model.masks import SLIDING

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DTYPES = torch.bfloat16, torch.float32
COPY_LIMIT = 512 * 2**20  # bytes of a drafter's weights of which panels are made beside them


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

    before_attention: Norm | None  # None: x is normed already
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
        """dtype of the numbers between products, which keys and values have too."""
        return self.head.dtype

    def products(self) -> Iterator[Panels]:
        for layer in self.layers:
            yield from (layer.qkv, layer.out, layer.gate_up, layer.down)
        yield self.head


def read_weights(
    model: PreTrainedModel | BareLlama,
    kinds: Sequence[str],
    window: int | None,
    *,
    int8: bool = False,
    release: bool = False,
) -> Weights:
    """Pack the weights of all linear layers of a model that ``require_plain`` allows.

    ``kinds`` is what each layer attends to, ``window`` that of sliding layers. With ``int8`` the weights get
    8 bits each. With ``release`` the original of each is freed once it is packed; ``originals`` makes them
    anew.
    """
    config = model.config
    inner, head = model.model, model.get_output_embeddings()
    first: Any = inner.layers[0]
    embedding = inner.embed_tokens.weight.detach()
    vocabulary, hidden = embedding.shape
    tied = head.weight is inner.embed_tokens.weight
    packed_head = linear([head], int8=int8)
    if release:
        _free([head])
    return Weights(
        embedding=None if tied else embedding,
        layers=[
            _layer(module, window if kind == SLIDING else None, int8=int8, release=release)
            for module, kind in zip(inner.layers, kinds, strict=True)
        ],
        last_norm=Norm.of(inner.norm),
        head=packed_head,
        rotary=inner.rotary_emb,
        vocabulary=vocabulary,
        hidden=hidden,
        query_heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_size=first.self_attn.head_dim,
        inner=first.mlp.down_proj.in_features,
        scale=first.self_attn.scaling,
    )


def originals(
    weights: Weights, model: PreTrainedModel | BareLlama
) -> Iterator[tuple[list[nn.Linear], Callable[[], Sequence[torch.Tensor]]]]:
    """The linear layers of the model that was read, and what makes their weights anew from the panels."""
    counts = [weights.query_heads, weights.key_heads, weights.key_heads]
    sizes = [count * weights.head_size for count in counts]
    for module, layer in zip(model.model.layers, weights.layers, strict=True):
        parts = _parts(module)
        yield parts.qkv, partial(_split, layer.qkv, sizes if len(parts.qkv) > 1 else [sum(sizes)])
        yield parts.gate_up, partial(_both, layer.gate_up, weights.inner, len(parts.gate_up))
        yield [module.self_attn.o_proj], partial(_split, layer.out, [weights.hidden])
        yield [module.mlp.down_proj], partial(_split, layer.down, [weights.hidden])
    yield [model.get_output_embeddings()], partial(_split, weights.head, [weights.vocabulary])


def _split(panels: Panels, sizes: list[int]) -> Sequence[torch.Tensor]:
    return panels.unpacked().split(sizes)


def _both(panels: Panels, inner: int, layers: int) -> Sequence[torch.Tensor]:
    both = panels.both_unpacked(inner)
    return both if layers > 1 else [torch.cat(both)]


class _Parts(NamedTuple):
    """The linear layers of a decoder layer that are one product in C; Phi-3's are one already."""

    qkv: list[nn.Linear]
    gate_up: list[nn.Linear]


def _parts(module: Any) -> _Parts:
    attention, mlp = module.self_attn, module.mlp
    if hasattr(attention, "qkv_proj"):
        return _Parts([attention.qkv_proj], [mlp.gate_up_proj])
    return _Parts([attention.q_proj, attention.k_proj, attention.v_proj], [mlp.gate_proj, mlp.up_proj])


def linear(layers: Sequence[Any], *, int8: bool = False) -> Panels:
    """Linear layers on the same input, their outputs one behind the other."""
    weights = [layer.weight.detach() for layer in layers]
    biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
    return Panels.of(
        torch.cat(weights) if len(weights) > 1 else weights[0],
        torch.cat(biases) if biases else None,
        int8=int8,
    )


def gate_and_up(layers: Sequence[nn.Linear], *, int8: bool = False) -> Panels:
    """Pack both layers of a gated MLP, also where they are one already."""
    if len(layers) == 1:
        return Panels.by_turns(layers[0].weight.detach().chunk(2), [None, None], int8=int8)
    weights, biases = [layer.weight.detach() for layer in layers], [layer.bias for layer in layers]
    return Panels.by_turns(weights, biases, int8=int8)


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


def _layer(module: Any, window: int | None, *, int8: bool, release: bool) -> Layer:
    attention, parts = module.self_attn, _parts(module)
    query_norm, key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
    layer = Layer(
        before_attention=Norm.of(module.input_layernorm),
        qkv=linear(parts.qkv, int8=int8),
        query_norm=Norm.of(query_norm) if query_norm is not None else None,
        key_norm=Norm.of(key_norm) if key_norm is not None else None,
        out=linear([attention.o_proj], int8=int8),
        before_mlp=Norm.of(module.post_attention_layernorm),
        gate_up=gate_and_up(parts.gate_up, int8=int8),
        down=linear([module.mlp.down_proj], int8=int8),
        rotates=bool(getattr(attention, "use_rope", True)),
        window=window,
    )
    if release:
        _free([*parts.qkv, *parts.gate_up, attention.o_proj, module.mlp.down_proj])
    return layer


def _free(layers: Iterable[nn.Linear]) -> None:
    for layer in layers:
        layer.weight.data = layer.weight.data.new_empty(0)
