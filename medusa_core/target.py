"""The target model: a transformers causal LM that can read a prompt and verify a tree.

The tree goes through the model's own forward with a 4-D mask and explicit positions, nothing in the model
is patched and nothing is stored on it, so runs on one model cannot meet. Knows nothing about heads, rules
or text. Medusa paper §2.1.2.

N nodes · V vocabulary · d hidden size · L committed rows
"""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from medusa_core.errors import MedusaError
from medusa_core.kv_cache import TreeCache
from medusa_core.tree import TokenTree

PREFILL_CHUNK = 512  # rows of the prompt a forward, which bounds the mask and the attention scores


class Target:
    """A loaded model, its dtype and the context it can hold. Raises MedusaError for models it cannot use."""

    def __init__(self, model: PreTrainedModel) -> None:
        config = model.config.get_text_config(decoder=True)
        _require_full_attention(config)
        self.model = model.eval()
        self.config = config
        self.context: int = _context_length(config)
        self.attention: str = config._attn_implementation
        if self.attention not in ("sdpa", "eager"):
            raise MedusaError(
                f"attention {self.attention!r} takes no tree mask: load the model with "
                'attn_implementation="sdpa" or "eager"'
            )

    @property
    def device(self) -> torch.device:
        """Where token ids go."""
        return self.model.get_input_embeddings().weight.device

    @property
    def output_device(self) -> torch.device:
        """Where logits and hidden states come from."""
        return self.model.get_output_embeddings().weight.device

    @property
    def dtype(self) -> torch.dtype:
        """dtype of the weights."""
        return self.model.dtype

    @property
    def vocab_size(self) -> int:
        """V, the rows of the LM head."""
        return self.model.get_output_embeddings().weight.shape[0]

    def new_cache(self, slots: int) -> TreeCache:
        """A cache for one run."""
        return TreeCache(self.config.num_hidden_layers, slots)

    def prefill(self, tokens: list[int], cache: TreeCache) -> tuple[torch.Tensor, torch.Tensor]:
        """Read and commit the prompt; return logits [V] and hidden state [d] of its last token."""
        for start in range(0, len(tokens), PREFILL_CHUNK):
            ids = torch.tensor(tokens[start : start + PREFILL_CHUNK], device=self.device)
            rows = len(ids)
            allowed = torch.ones(rows, rows, dtype=torch.bool, device=self.device).tril()
            depths = torch.arange(rows, device=self.device)
            logits, hidden = self._forward(ids, depths, allowed, cache, rows_kept=1)
            cache.commit(range(rows))
        return logits[-1], hidden[-1]

    def verify(self, tree: TokenTree, cache: TreeCache) -> tuple[torch.Tensor, torch.Tensor]:
        """One forward over all nodes: logits [N, V] and hidden states [N, d]. Commits nothing."""
        depths = torch.tensor(tree.depths, device=self.device)
        return self._forward(tree.tokens.to(self.device), depths, tree.mask, cache, rows_kept=0)

    def _forward(
        self,
        tokens: torch.Tensor,
        depths: torch.Tensor,
        allowed: torch.Tensor,
        cache: TreeCache,
        rows_kept: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run rows [N] behind the committed ones; ``rows_kept`` limits the LM head, 0 keeps every row."""
        cache.require(len(tokens))
        prefix = allowed.new_ones(len(tokens), cache.length)
        mask = torch.cat([prefix, allowed], dim=1)[None, None]
        output = self.model(
            input_ids=tokens[None],
            attention_mask=mask_for(self.attention, mask, self.dtype),
            position_ids=(depths + cache.length)[None],
            past_key_values=cache,
            use_cache=True,
            output_hidden_states=True,
            logits_to_keep=rows_kept,
        )
        # The last hidden state is the one after the final norm: what the LM head and the heads read.
        return output.logits[0], output.hidden_states[-1][0]


def mask_for(attention: str, allowed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The mask in the form an attention kernel wants: boolean for sdpa, additive for eager.

    Eager attention adds the mask to the scores, so a boolean one there is silently wrong.
    """
    if attention == "sdpa":
        return allowed
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill(
        ~allowed, torch.finfo(dtype).min
    )


def _require_full_attention(config: object) -> None:
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    other = kinds - {"full_attention", "sliding_attention"}
    if other:
        raise MedusaError(
            f"{config.model_type} has layers of kind {', '.join(sorted(other))}, whose state cannot hold a "
            "tree: use a model with full attention layers"
        )


def _context_length(config: object) -> int:
    """Positions the model takes; a sliding window bounds it, since rows outside it would be masked."""
    context = getattr(config, "max_position_embeddings", None) or 2048
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    slides = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    return min(context, window) if window and slides else context
