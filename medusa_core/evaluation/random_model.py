"""A model of a known shape with random weights and random heads, to time a step without a download.

Its text means nothing and its heads guess nothing, so only times are measured on it. Built where it stays,
after an estimate of its memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from medusa_core.checkpoints.base import ONE_MODEL_AT_A_TIME
from medusa_core.drafters.medusa import NAME
from medusa_core.drafters.medusa.draft import MedusaDraft
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.engine import Engine, EngineInfo
from medusa_core.errors import MedusaError
from medusa_core.hardware.operators import kv_bytes_per_token
from medusa_core.hardware.shapes import ModelShape
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.loading.devices import Placement, free_memory, native_library
from medusa_core.loading.memory import MemoryEstimate, held_as, margin
from medusa_core.loading.tuning import fastest_threads
from medusa_core.model.target import Target

if TYPE_CHECKING:
    from transformers import PreTrainedModel

HEADS = 5  # as in the paper's models
CONTEXT = 2048
_SPREAD = 0.02  # standard deviation of the weights, as transformers initialises a Llama


def shape_estimate(shape: ModelShape, placement: Placement) -> MemoryEstimate:
    """The memory of a model of that shape, its heads and the cache of one run."""
    each = placement.dtype.itemsize
    base = shape.parameters * each
    heads = HEADS * shape.hidden * (shape.hidden + 1 + shape.vocabulary) * each
    cache = CONTEXT * round(kv_bytes_per_token(shape.layers, shape.kv_heads, shape.head_size, each))
    return MemoryEstimate(
        parameters=shape.parameters,
        base=base,
        heads=heads,
        cache=cache,
        margin=margin(base + heads + cache),
        free=free_memory(placement.device),
        spare=0,
        device=str(placement.device),
        packed=False,
    )


def random_engine(
    shape: ModelShape,
    placement: Placement,
    accuracies: list[list[float]] | None = None,
    *,
    capture: bool = False,
) -> Engine:
    """The engine; ``accuracies`` choose its trees. Raises MedusaError where it does not fit into memory."""
    estimate = shape_estimate(shape, placement)
    if not estimate.fits:
        raise MedusaError(f"a model of the shape {shape.name} {estimate.sentence()}")
    with torch.inference_mode(False), torch.no_grad():
        target = Target(random_llama(shape, placement.device, placement.dtype))
        heads = _random_heads(shape, placement)
    choose_forward(target, capture=capture, threads_for=fastest_threads, library=native_library())
    draft = MedusaDraft(heads, accuracies=accuracies, library=target.library)
    name = f"{shape.name}, random weights"
    return Engine(
        target=target,
        drafts={NAME: draft},
        tokenizer=None,
        info=EngineInfo(
            name=f"{name} + {draft.label}",
            base=name,
            heads="random",
            dtype=held_as(placement.dtype, None),
            device=str(placement.device),
            parameters=target.held.parameters,
            draft_parameters=sum(tensor.numel() for tensor in draft.tensors()),
            dtype_reason=placement.reason,
            forward=target.choice.words(),
            drafts=(draft.label,),
        ),
    )


def random_prompts(shape: ModelShape, count: int, length: int = 64) -> list[list[int]]:
    """Prompts of random tokens."""
    generator = torch.Generator().manual_seed(0)
    drawn: list[list[int]] = torch.randint(shape.vocabulary, (count, length), generator=generator).tolist()
    return drawn


def random_llama(
    shape: ModelShape, device: torch.device, dtype: torch.dtype, context: int = CONTEXT
) -> PreTrainedModel:
    """A Llama of that shape with drawn weights. Its caller is not in inference mode."""
    from transformers import AutoModelForCausalLM, LlamaConfig  # noqa: PLC0415 - its modules take a second
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding  # noqa: PLC0415

    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_size,
        max_position_embeddings=context,
        tie_word_embeddings=shape.tied,
        bos_token_id=None,
        eos_token_id=None,
    )
    # On meta, so that no time goes into an initialisation on the CPU.
    with ONE_MODEL_AT_A_TIME, torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    model.to_empty(device=device)
    model.tie_weights()
    with device:  # its frequencies are not among the weights
        model.model.rotary_emb = LlamaRotaryEmbedding(config)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            module.weight.normal_(std=_SPREAD)
        elif type(module).__name__.endswith("RMSNorm"):
            module.weight.fill_(1)
    made: PreTrainedModel = model.eval().requires_grad_(False)
    return made


def _random_heads(shape: ModelShape, placement: Placement) -> MedusaHeads:
    def drawn(*sizes: int) -> torch.Tensor:
        return torch.empty(HEADS, *sizes, dtype=placement.dtype, device=placement.device).normal_(std=_SPREAD)

    block, last = drawn(1, shape.hidden, shape.hidden), drawn(shape.vocabulary, shape.hidden)
    return MedusaHeads(block, torch.zeros_like(block[..., 0]), last).requires_grad_(False)
