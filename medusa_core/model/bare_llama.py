"""A Llama that is held without transformers, whose models take longer to import than a small one to read.

``BareLlama`` has the modules, the names and the attributes of transformers' Llama, so that what reads,
adapts or packs weights treats both alike, and no forward: that is the one in C. transformers' own model of
the same weights is built when somebody asks for it.

D head size
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


class BareLlama(nn.Module):
    """The weights of a Llama under the names that they have in transformers' model.

    They are on the meta device, shapes alone, until ``load`` brings the values.
    """

    name_or_path = ""  # as transformers calls the folder that a model was read from

    def __init__(self, config: Any) -> None:
        """``config`` has the settings of a LlamaConfig."""
        super().__init__()
        self.config = config
        with torch.device("meta"):
            self.model = _Decoder(config)
            self.lm_head = _linear(config.hidden_size, config.vocab_size, bias=False)
        self.requires_grad_(False)
        self._tie()

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take these tensors themselves, one for each of ``named_parameters``."""
        self.load_state_dict(tensors, strict=False, assign=True)
        self._tie()

    def _tie(self) -> None:
        if self.config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    @property
    def dtype(self) -> torch.dtype:
        return self.lm_head.weight.dtype

    def get_input_embeddings(self) -> nn.Embedding:
        return self.model.embed_tokens

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head


class _Decoder(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        table = torch.empty(config.vocab_size, config.hidden_size)
        self.embed_tokens = nn.Embedding.from_pretrained(table)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = _RMSNorm(config)
        self.rotary_emb = PlainRotary(config.rope_theta, config.head_dim)


class _Layer(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.self_attn = _Attention(config)
        self.mlp = _MLP(config)
        self.input_layernorm = _RMSNorm(config)
        self.post_attention_layernorm = _RMSNorm(config)


class _Attention(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.scaling = config.head_dim**-0.5
        width, bias = config.hidden_size, config.attention_bias
        queries, keys = (
            heads * config.head_dim for heads in (config.num_attention_heads, config.num_key_value_heads)
        )
        self.q_proj = _linear(width, queries, bias)
        self.k_proj = _linear(width, keys, bias)
        self.v_proj = _linear(width, keys, bias)
        self.o_proj = _linear(queries, width, bias)


class _MLP(nn.Module):
    act_fn = staticmethod(nn.functional.silu)

    def __init__(self, config: Any) -> None:
        super().__init__()
        width, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = _linear(width, inner, bias)
        self.up_proj = _linear(width, inner, bias)
        self.down_proj = _linear(inner, width, bias)


class _RMSNorm(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.hidden_size))
        self.variance_epsilon = config.rms_norm_eps


def _linear(inputs: int, outputs: int, bias: bool) -> nn.Linear:
    """A linear layer without values. ``nn.Linear`` itself would draw some, for which torch imports sympy."""
    layer = nn.Linear.__new__(nn.Linear)
    nn.Module.__init__(layer)
    layer.in_features, layer.out_features = inputs, outputs
    layer.weight = nn.Parameter(torch.empty(outputs, inputs))
    layer.register_parameter("bias", nn.Parameter(torch.empty(outputs)) if bias else None)
    return layer


class PlainRotary(nn.Module):
    """Unscaled rotary positions: angle position / θ^(2i / D) for pair i of the numbers of a head."""

    def __init__(self, theta: float, size: int) -> None:
        super().__init__()
        self._frequencies = 1.0 / (
            theta ** (torch.arange(0, size, 2, dtype=torch.float, device="cpu") / size)
        )

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin for ``positions`` [1, P], in the dtype of ``x``: [1, P, D] each."""
        angles = positions[..., None].float() * self._frequencies.to(positions.device)
        both = torch.cat([angles, angles], dim=-1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)


class BareModel(LoadedModel):
    """A bare model for a ``Target``, which gives transformers' own to those who need it."""

    limits_head = True  # as transformers' Llama does
    is_proven = True  # the tests compare it with transformers' model

    def __init__(self, bare: BareLlama, build: Callable[[BareLlama], PreTrainedModel], folder: Path) -> None:
        """``build`` makes transformers' model of the same weights, which were read from ``folder``."""
        self._hold(bare)
        self.config = bare.config
        self._build = build
        bare.name_or_path = str(folder)
        self._built: PreTrainedModel | None = None

    @property
    def model(self) -> PreTrainedModel:
        with self._lock:
            if self._built is None:
                # The caller may be in inference mode, which makes tensors that no training can use.
                with torch.inference_mode(False):
                    self._built = self._build(self.weights).eval()
            return self._built

    @property
    def end_tokens(self) -> int | list[int] | None:
        return self.config.eos_token_id
