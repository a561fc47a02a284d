"""What a model must be for a ``Target``: by its config, and by a try where no test has run its family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from medusa_core.errors import MedusaError, is_out_of_memory, reason_of
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.trees.origin import ROOT

if TYPE_CHECKING:
    from medusa_core.model.target import Target

_USE = "use a decoder such as Llama, Mistral, Qwen or Gemma"


def require_tree_equals_branch(target: Target) -> None:
    """Raise MedusaError when a node of a small tree differs from its branch run alone, without our mask.

    Three short forwards at loading, for models that no test has run: a model may ignore the mask or take
    positions from slots, and would then write wrong text without a word.
    """
    kind, cache = target.model.config.model_type, target.new_cache(8)
    start, branch = [3, 5, 7], [4, 8, 9]  # the tree: a root, two children, and one child of the second
    tree = target.token_tree([4, 6, 8, 9], [-1, 0, 0, 2], [ROOT] * 4)
    try:
        with torch.inference_mode():
            target.prefill(start, cache)
            logits, hidden = target.verify(tree, cache, LAST_HIDDEN)
            ids = torch.tensor([start + branch], device=target.device)
            alone = target.model(input_ids=ids, use_cache=False).logits[0, -1].to(logits).float()
            read = target.model.get_output_embeddings()(hidden[-1])
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
        if is_out_of_memory(error):
            raise
        raise MedusaError(f"{kind} cannot run a tree ({reason_of(error)}): {_USE}") from error
    off = float((logits[-1].float() - alone).norm() / (alone - alone.mean()).norm())
    # Rounding, against an error of the mask. Packed weights round their inputs by what else is in the pass.
    exact = target.dtype == torch.float32 and not getattr(target.model, "is_quantized", False)
    allowed = 1e-2 if exact else 0.1
    if not off <= allowed:
        raise MedusaError(
            f"{kind} gives a node of a tree other logits than its branch alone (off by {off:.0%}), so it "
            f"takes masks or positions in a way of its own: {_USE}"
        )
    # Scales and caps of logits keep their order, so both have the same winner, up to a tie.
    fits = read.shape == logits[-1].shape  # Gemma 3n stacks several streams, of which the head reads one
    if not fits or logits[-1].max() - logits[-1, read.argmax()] > allowed * logits[-1].float().std():
        raise MedusaError(f"the hidden states of {kind} are not what its LM head reads: {_USE}")


def require_causal(config: Any) -> None:
    """Raise MedusaError for settings of a known family that change what a mask or a position means."""
    if getattr(config, "use_bidirectional_attention", False) in (True, "all") or not getattr(
        config, "is_causal", True
    ):
        raise MedusaError(f"{config.model_type} reads in both directions here: use a causal language model")
    if getattr(config, "alibi", False):
        raise MedusaError(
            f"{config.model_type} places tokens by slot (ALiBi), so siblings would count as distance: "
            "use a model with rotary or learned positions"
        )
    if "local" in (getattr(config, "attention_layers", None) or []):
        raise MedusaError(
            f"{config.model_type} has local attention that counts slots, not positions: "
            "use a model with rotary or learned positions and full or sliding-window attention"
        )
