"""A draft model as drafters run it: its layer and its LM head on a few rows, in torch or in C.

T rows · V' draft vocabulary · d hidden size · L rows of the cache
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from medusa_core.drafters.eagle3.model import DraftModel, attention_by
from medusa_core.llama.cache import row_bytes
from medusa_core.llama.library import Library
from medusa_core.llama.model import Llama, Results, product
from medusa_core.llama.panels import Panels, padded, wide
from medusa_core.llama.weights import (
    COPY_LIMIT,
    DTYPES,
    Layer,
    Norm,
    NotLlamaError,
    Weights,
    gate_and_up,
    linear,
)
from medusa_core.model.forward import Part, Rows
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.rotary import Rotations


class Network:
    """The network by the draft model's own modules, in torch."""

    def __init__(self, model: DraftModel, embedding: torch.Tensor) -> None:
        self._draft, self._embedding = model, embedding

    @property
    def cache_row(self) -> int:
        """Bytes of keys and values."""
        shape = self._draft.shape
        return (shape.cache_row - shape.hidden) * self._embedding.itemsize

    def new_cache(self) -> TreeCache:
        """A cache without room."""
        return TreeCache(1, 0)

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """Three hidden states of the target [T, 3 d] as one [T, d]."""
        return self._draft.fuse(features)

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
        count = len(tokens)
        visible = F.pad(seen, (cache.length + count - seen.shape[1], 0), value=True)
        attention = attention_by(partial(cache.update, layer_idx=0), visible)
        output = self._draft.output(F.embedding(tokens, self._embedding), features, by, attention)
        return output, self._draft.logits(output[count - kept :])


class NativeNetwork(Network):
    """The network by the forward in C."""

    def __init__(self, model: DraftModel, embedding: torch.Tensor, library: Library) -> None:
        """Raises NotLlamaError for a model that C does not compute, or whose copies would be too large."""
        super().__init__(model, embedding)
        shape, parts = model.shape, model.parts
        if embedding.dtype not in DTYPES or embedding.device.type != "cpu":
            raise NotLlamaError(f"its weights are in {embedding.dtype} on {embedding.device}")
        copied = {id(one): one.nbytes for one in (*model.parameters(), parts.lm_head)}
        if sum(copied.values()) > COPY_LIMIT:
            raise NotLlamaError("its copies would be too large")
        if shape.hidden != wide(shape.hidden):  # two rows lie side by side without padding between them
            raise NotLlamaError(f"its rows have {shape.hidden} numbers")
        attention, mlp = parts.attention, parts.mlp
        self._joined = linear([parts.joined])
        weights = Weights(
            embedding=embedding,
            layers=[
                Layer(
                    before_attention=None if shape.norm_before_residual else _norm(parts.before_attention),
                    qkv=linear([attention.q_proj, attention.k_proj, attention.v_proj]),
                    query_norm=None,
                    key_norm=None,
                    out=linear([attention.o_proj]),
                    before_mlp=_norm(parts.before_mlp),
                    gate_up=gate_and_up([mlp.gate_proj, mlp.up_proj]),
                    down=linear([mlp.down_proj]),
                )
            ],
            last_norm=_norm(parts.last_norm),
            head=Panels.of(parts.lm_head.detach(), None),
            rotary=nn.Identity(),  # rotations are given with each call
            vocabulary=len(embedding),
            hidden=shape.hidden,
            query_heads=shape.heads,
            key_heads=shape.key_heads,
            head_size=shape.head_size,
            inner=shape.intermediate,
            scale=shape.head_size**-0.5,
            of_embedding=None if parts.of_embedding is None else _norm(parts.of_embedding),
        )
        self._model = Llama(weights, shape.head_size, library)

    @property
    def cache_row(self) -> int:
        shape = self._draft.shape
        return shape.key_heads * row_bytes(shape.head_size, self._embedding.dtype)

    def new_cache(self) -> TreeCache:
        return self._model.new_cache(0)

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        return self.join(self._draft.normed_features(features))

    def join(self, states: torch.Tensor) -> torch.Tensor:
        """Several normed states [T, …] as one [T, d]."""
        return product(self._joined, states, self._model.library)

    def begin(self, tokens: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """The initial hidden states of the layer [T, d]; C reads the embeddings itself."""
        if self._draft.shape.norm_before_residual:
            return self._draft.parts.before_attention(features)
        return features

    def __call__(
        self,
        tokens: torch.Tensor,
        features: torch.Tensor,
        by: Rotations,
        cache: TreeCache,
        seen: torch.Tensor,
        kept: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        features, count = self.begin(tokens, features).contiguous(), len(tokens)
        output = torch.empty_like(features)
        logits = features.new_empty(kept, self._model.weights.head.outputs)
        positions = torch.arange(count) if len(by.cos) > 1 else torch.zeros(count, dtype=torch.long)
        # Drafted nodes share a position; nothing needs them to be bit-equal to rows computed alone.
        rows = Rows(tokens, torch.zeros(count, dtype=torch.long), 0, seen)
        normed = self._draft.shape.norm_output
        results = Results(
            logits, [kept], hidden=output if normed else None, before=() if normed else [None, output]
        )
        self._model.run(tokens, positions, by, [Part(rows, cache)], results, features)
        return output, logits


def _norm(module: nn.RMSNorm) -> Norm:
    assert module.weight is not None
    assert module.eps is not None
    return Norm(padded(module.weight), module.eps)
