"""A Llama that is held without transformers, whose models take longer to import than a small one to read.

``BareLlama`` has the modules, the names and the attributes of transformers' Llama, so that what reads,
adapts or packs weights treats both alike, and no forward: that is the one in C. transformers' own model of
the same weights is built when somebody asks for it.

V vocabulary · d hidden size · D head size
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from medusa_core.model.loaded_model import LoadedModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel


Tensors = Mapping[str, torch.Tensor]


class BareLlama(nn.Module):
    """The weights of a Llama under the names that they have in transformers' model."""

    def __init__(self, config: Any, tensors: Tensors) -> None:
        """``config`` has the settings of a LlamaConfig, ``tensors`` are all that they ask for."""
        super().__init__()
        self.config = config
        self.model = _Decoder(config, tensors)
        self.lm_head = _linear(tensors, "model.embed_tokens" if config.tie_word_embeddings else "lm_head")
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    @property
    def dtype(self) -> torch.dtype:
        """dtype of the weights."""
        return self.lm_head.weight.dtype

    def get_input_embeddings(self) -> nn.Embedding:
        """The table of the tokens' embeddings."""
        return self.model.embed_tokens

    def get_output_embeddings(self) -> nn.Linear:
        """The LM head."""
        return self.lm_head


class _Decoder(nn.Module):
    def __init__(self, config: Any, tensors: Tensors) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding.from_pretrained(tensors["model.embed_tokens.weight"])
        self.layers = nn.ModuleList(
            _Layer(config, tensors, f"model.layers.{number}") for number in range(config.num_hidden_layers)
        )
        self.norm = _RMSNorm(config, tensors, "model.norm")
        self.rotary_emb = PlainRotary(config.rope_theta, config.head_dim)


class _Layer(nn.Module):
    def __init__(self, config: Any, tensors: Tensors, name: str) -> None:
        super().__init__()
        self.self_attn = _Attention(config, tensors, f"{name}.self_attn")
        self.mlp = _MLP(tensors, f"{name}.mlp")
        self.input_layernorm = _RMSNorm(config, tensors, f"{name}.input_layernorm")
        self.post_attention_layernorm = _RMSNorm(config, tensors, f"{name}.post_attention_layernorm")


class _Attention(nn.Module):
    def __init__(self, config: Any, tensors: Tensors, name: str) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.scaling = config.head_dim**-0.5
        self.q_proj = _linear(tensors, f"{name}.q_proj")
        self.k_proj = _linear(tensors, f"{name}.k_proj")
        self.v_proj = _linear(tensors, f"{name}.v_proj")
        self.o_proj = _linear(tensors, f"{name}.o_proj")


class _MLP(nn.Module):
    act_fn = staticmethod(nn.functional.silu)

    def __init__(self, tensors: Tensors, name: str) -> None:
        super().__init__()
        self.gate_proj = _linear(tensors, f"{name}.gate_proj")
        self.up_proj = _linear(tensors, f"{name}.up_proj")
        self.down_proj = _linear(tensors, f"{name}.down_proj")


class _RMSNorm(nn.Module):
    def __init__(self, config: Any, tensors: Tensors, name: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(tensors[f"{name}.weight"], requires_grad=False)
        self.variance_epsilon = config.rms_norm_eps


def _linear(tensors: Tensors, name: str) -> nn.Linear:
    """The linear layer of these weights. ``nn.Linear`` itself would first draw random ones of their size."""
    layer = nn.Linear.__new__(nn.Linear)
    nn.Module.__init__(layer)
    weight, bias = tensors[f"{name}.weight"], tensors.get(f"{name}.bias")
    layer.out_features, layer.in_features = weight.shape
    layer.weight = nn.Parameter(weight, requires_grad=False)
    layer.register_parameter("bias", None if bias is None else nn.Parameter(bias, requires_grad=False))
    return layer


class PlainRotary(nn.Module):
    """Unscaled rotary positions: angle position / θ^(2i / D) for pair i of the numbers of a head."""

    def __init__(self, theta: float, size: int) -> None:
        super().__init__()
        self._frequencies = 1.0 / (theta ** (torch.arange(0, size, 2, dtype=torch.float) / size))

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin for ``positions`` [1, P], in the dtype of ``x``: [1, P, D] each."""
        angles = positions[..., None].float() * self._frequencies
        both = torch.cat([angles, angles], dim=-1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)


class BareModel(LoadedModel):
    """A bare model for a ``Target``, which gives transformers' own to those who need it."""

    limits_head = True  # as transformers' Llama does
    is_proven = True  # the tests compare it with transformers' model

    def __init__(
        self, bare: BareLlama, build: Callable[[BareLlama], PreTrainedModel], folder: Path | None = None
    ) -> None:
        """``build`` makes transformers' model of the same weights, which were read from ``folder``."""
        self._hold(bare)
        self.config = bare.config
        self._build = build
        self._folder = folder
        self._built: PreTrainedModel | None = None

    @property
    def model(self) -> PreTrainedModel:
        with self._lock:
            if self._built is None:
                # Whoever asks may be within inference, where tensors are made that no training can use.
                with torch.inference_mode(False):
                    self._built = self._build(self.weights).eval()
            return self._built

    @property
    def folder(self) -> Path | None:
        return self._folder

    @property
    def end_tokens(self) -> int | list[int] | None:
        ends: int | list[int] | None = self.config.eos_token_id
        return ends
