"""A draft model as drafters run it: its layer and its LM head on a few rows, in torch or in C.

T rows · V' draft vocabulary · d hidden size · L rows of the cache
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional as F

from medusa_core.drafters.eagle3.model import DraftModel
from medusa_core.target.exact_attention import MOST_ROWS
from medusa_core.target.kv_cache import TreeCache
from medusa_core.target.lean_weights import Layer, LeanWeights, Norm
from medusa_core.target.native.cache import NativeCache, native_row_bytes
from medusa_core.target.native.computation import Attending, Computation, NotNativeError, Results
from medusa_core.target.native.library import Library
from medusa_core.target.products import PACK_LIMIT, Linear, PackedLinear, packing_that_wins
from medusa_core.target.rotary import Rotations

_KERNELS = 8 * 2**20  # of oneDNN, for the product that joins features


class Network(Protocol):
    """Both kinds."""

    cache_row: int  # bytes of keys and values

    def new_cache(self) -> TreeCache:
        """A cache without room."""

    def workspace_bytes(self, keys: int) -> int:
        """What it writes to beside a cache of so many keys, and what it holds beside the model's weights."""

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """Three hidden states of the target [T, 3 d] as one [T, d]."""

    def __call__(
        self,
        tokens: torch.Tensor,
        features: torch.Tensor,
        by: Rotations,
        cache: TreeCache,
        seen: torch.Tensor,
        kept: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows [T] behind those of the cache: outputs [T, d], and logits [kept, V'] of the last ones.

        ``tokens`` are the target's, ``features`` [T, d] what each goes on from, ``by`` the rotations of their
        positions or of one that they share, and ``seen`` [T, C] which of the last C keys each row sees.
        Keys and values are written and not committed.
        """


class TorchNetwork:
    """By the modules of the draft model."""

    def __init__(self, model: DraftModel, embedding: torch.Tensor) -> None:
        self._model, self._embedding = model, embedding
        shape = model.shape
        self.cache_row = (shape.cache_row - shape.hidden) * embedding.itemsize

    def new_cache(self) -> TreeCache:
        """As ``Network``."""
        return TreeCache(1, 0)

    def workspace_bytes(self, keys: int) -> int:
        """As ``Network``: a layer's inside."""
        shape = self._model.shape
        return MOST_ROWS * (6 * shape.hidden + 3 * shape.intermediate) * self._embedding.itemsize

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """As ``Network``."""
        return self._model.fuse(features)

    def __call__(
        self,
        tokens: torch.Tensor,
        features: torch.Tensor,
        by: Rotations,
        cache: TreeCache,
        seen: torch.Tensor,
        kept: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As ``Network``."""
        count = len(tokens)
        visible = F.pad(seen, (cache.length + count - seen.shape[1], 0), value=True)

        def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            keys, values = cache.update(key.transpose(0, 1)[None], value.transpose(0, 1)[None], 0)
            mixed = F.scaled_dot_product_attention(
                query.transpose(0, 1)[None], keys, values, visible, enable_gqa=True
            )
            return mixed[0].transpose(0, 1).flatten(1)

        embedded = F.embedding(tokens, self._embedding)
        output = self._model.output(embedded, features, by, attend)
        return output, self._model.logits(output[count - kept :])


class NativeNetwork:
    """By the forward in C."""

    def __init__(self, model: DraftModel, embedding: torch.Tensor, library: Library) -> None:
        """Raises NotNativeError for a model that it does not compute, or of which it would copy too much."""
        self._model = model
        shape, layer = model.shape, model.midlayer
        if sum(tensor.nbytes for tensor in model.parameters()) > PACK_LIMIT:
            raise NotNativeError("its copies would be too large")
        if shape.norm_before_residual or shape.norm_output:
            raise NotNativeError("it norms elsewhere than the public layer")
        attention: Any = layer.self_attn
        mlp: Any = layer.mlp
        self._fc = Linear(model.fc.weight.detach())
        operators = packing_that_wins(self._fc)
        if operators is not None:
            self._fc = PackedLinear(self._fc, operators)
        weights = LeanWeights(
            embedding=embedding,
            layers=[
                Layer(
                    before_attention=_norm(layer.hidden_norm),
                    qkv=_joined(attention.q_proj, attention.k_proj, attention.v_proj),
                    query_norm=None,
                    key_norm=None,
                    out=_joined(attention.o_proj),
                    before_mlp=_norm(layer.post_attention_layernorm),
                    gate_up=_joined(mlp.gate_proj, mlp.up_proj),
                    activation=F.silu,
                    down=_joined(mlp.down_proj),
                    rotates=True,
                    slides=False,
                )
            ],
            last_norm=_norm(model.norm),
            head=_joined(model.lm_head),
            rotary=nn.Identity(),  # rotations are given with each call
            query_heads=shape.heads,
            key_heads=shape.key_heads,
            head_size=shape.head_size,
            scale=shape.head_size**-0.5,
            packed=False,
        )
        self._outputs = shape.draft_vocabulary
        joined = [weights.layers[0].qkv, weights.layers[0].gate_up]
        self._copied = sum(one.weight.nbytes for one in joined) + model.fc.weight.nbytes
        self._computation = Computation(weights, shape.head_size, library, _norm(layer.input_layernorm))
        self.cache_row = shape.key_heads * native_row_bytes(shape.head_size, library)

    def new_cache(self) -> TreeCache:
        """As ``Network``."""
        return self._computation.new_cache(0)

    def workspace_bytes(self, keys: int) -> int:
        """As ``Network``."""
        inside = self._computation.work_bytes(MOST_ROWS)
        if self._computation.tiled:
            inside += self._computation.attention_bytes(MOST_ROWS, keys)
        return self._copied + inside + _KERNELS

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """As ``Network``."""
        return self._fc(self._model.normed_features(features))

    def __call__(
        self,
        tokens: torch.Tensor,
        features: torch.Tensor,
        by: Rotations,
        cache: TreeCache,
        seen: torch.Tensor,
        kept: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As ``Network``."""
        assert isinstance(cache, NativeCache)
        features, count = features.contiguous(), len(tokens)
        output, logits = torch.empty_like(features), features.new_empty(kept, self._outputs)
        positions = torch.arange(count) if len(by.cos) > 1 else torch.zeros(count, dtype=torch.long)
        # Drafted nodes share a position, and nothing needs the bits that they would have alone.
        attending = [Attending(count, cache, seen.contiguous(), torch.zeros(count, dtype=torch.long))]
        results = Results(logits, [kept], before=[None, output])
        self._computation.run(tokens, positions, by, attending, results, features)
        return output, logits


def _norm(module: nn.RMSNorm) -> Norm:
    assert module.weight is not None
    assert module.eps is not None
    return Norm.with_epsilon(module.weight.detach(), module.eps)


def _joined(*layers: nn.Linear) -> Linear:
    weights = [layer.weight.detach() for layer in layers]
    return Linear(torch.cat(weights) if len(weights) > 1 else weights[0].contiguous())
