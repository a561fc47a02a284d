"""A transformers causal LM as a ``Target`` reads it: where it runs, what it takes, what lies behind its head.

V vocabulary · d hidden size
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import torch

from medusa_core.errors import MedusaError
from medusa_core.model.quantization import Packing, lm_head_weight, packing_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Model types whose trees the tests compare with each branch run alone. Others are compared when they load.
PROVEN = frozenset({
    "arcee", "aya_vision", "codegen", "cohere", "cohere2", "cwm", "deepseek_v2", "deepseek_v3",
    "ernie4_5", "exaone4", "falcon", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text",
    "glm", "glm4", "glm4_moe", "glm4v", "glm4v_text", "gpt2", "gpt_bigcode", "gpt_neox", "gpt_oss",
    "gptj", "granite", "granitemoe", "helium", "hunyuan_v1_dense", "idefics3", "internvl", "llama",
    "llava", "llava_next", "llava_onevision", "ministral", "ministral3", "mistral", "mistral3", "mixtral",
    "mllama", "mllama_text_model", "nemotron", "olmo", "olmo2", "olmo3", "olmoe", "opt", "phi", "phi3",
    "phimoe", "qwen2", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen3",
    "qwen3_moe", "qwen3_vl", "qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_vl_text", "seed_oss", "smollm3",
    "smolvlm", "stablelm", "starcoder2",
})  # fmt: skip


# Linear layers, and what makes their weights.
Originals = Callable[[], Iterable[tuple[Sequence[Any], Callable[[], Sequence[torch.Tensor]]]]]


class LoadedModel:
    """A causal LM that transformers has loaded. Raises MedusaError for one that is no causal decoder."""

    config: Any  # the decoder's config
    packing: Packing | None  # how the weights are held; None: as plain numbers
    limits_head: bool  # whether the forward takes ``logits_to_keep``

    def __init__(self, model: PreTrainedModel) -> None:
        _require_decoder(model)
        self._hold(model.eval())
        self.config = model.config.get_text_config(decoder=True)
        self.limits_head = "logits_to_keep" in _arguments(model)

    def _hold(self, modules: Any) -> None:
        """Begin with modules that have all of their weights."""
        self._modules = modules
        self._originals: Originals | None = None  # rebuilds weights that were released
        self._parameters = sum(parameter.numel() for parameter in modules.parameters())
        self.packing = packing_of(modules.config)
        self._lock = RLock()  # runs in several threads may ask at once

    @property
    def weights(self) -> Any:
        """Modules with the weights, all of them: the model itself here."""
        with self._lock:
            if self._originals is not None:
                for modules, make in self._originals():
                    # Whoever asks may be within inference, where tensors are made that no training can use.
                    with torch.inference_mode(modules[0].weight.is_inference()):
                        for module, weight in zip(modules, make(), strict=True):
                            module.weight.data = weight.clone(memory_format=torch.contiguous_format)
                self._originals = None
        return self._modules

    def restore_by(self, originals: Originals) -> None:
        """Weights of linear layers were freed; ``originals`` makes them anew for whoever asks."""
        with self._lock:
            self._originals = originals

    @property
    def model(self) -> PreTrainedModel:
        """transformers' model."""
        model: PreTrainedModel = self.weights
        return model

    @property
    def is_proven(self) -> bool:
        """Whether tests have run this model: its kind is known, and its code is transformers' own."""
        own_code = not type(self._modules).__module__.startswith("transformers.")
        return not own_code and {self._modules.config.model_type, self.config.model_type} <= PROVEN

    @property
    def device(self) -> torch.device:
        """Where token ids go."""
        return _runs_on(self._modules.get_input_embeddings())

    @property
    def output_device(self) -> torch.device:
        """The device of the LM head."""
        return _runs_on(self._modules.get_output_embeddings())

    @property
    def dtype(self) -> torch.dtype:
        """dtype of the weights."""
        dtype: torch.dtype = self._modules.dtype
        return dtype

    @property
    def vocab_size(self) -> int:
        """V, the rows of the LM head."""
        head = self._modules.get_output_embeddings()
        return getattr(head, "out_features", None) or head.weight.shape[0]  # packed weights hide their shape

    @property
    def parameters(self) -> int:
        """How many numbers the weights are held in."""
        return self._parameters

    @property
    def nbytes(self) -> int:
        """Bytes of the weights that it holds."""
        return sum(parameter.nbytes for parameter in self._modules.parameters())

    @property
    def folder(self) -> Path | None:
        """Where it was read from; None for a model that was made in memory."""
        name: str = self._modules.name_or_path
        return Path(name) if name else None

    @property
    def end_tokens(self) -> int | list[int] | None:
        """Ids that end a text, by the generation config."""
        ends: int | list[int] | None = self._modules.generation_config.eos_token_id
        return ends

    def lm_head(self) -> torch.Tensor:
        """The LM head [V, d]."""
        with self._lock:
            head = self._modules.get_output_embeddings()
            if self._originals is None:
                return lm_head_weight(self._modules)
            return next(make()[0] for modules, make in self._originals() if modules[0] is head)

    def embedding(self) -> torch.Tensor | None:
        """The embedding [V, d] as it is placed, perhaps on torch's meta device; None where it is no table."""
        embedding: torch.Tensor | None = getattr(self._modules.get_input_embeddings(), "weight", None)
        return self.lm_head() if embedding is not None and not embedding.numel() else embedding


def _require_decoder(model: PreTrainedModel) -> None:
    """Raise MedusaError for a model that is no causal decoder, or whose rows cannot be placed freely."""
    kind = model.config.model_type
    if model.config.is_encoder_decoder:
        raise MedusaError(f"{kind} is an encoder–decoder: use a decoder-only language model, such as Llama")
    if model._is_stateful:
        raise MedusaError(
            f"{kind} keeps a recurrent state, which cannot go back to one path of a tree: "
            "use a model with attention in every layer"
        )
    if model.get_output_embeddings() is None:
        raise MedusaError(f"{kind} has no LM head: load it as a causal language model")
    if missing := {"attention_mask", "position_ids", "past_key_values"} - _arguments(model):
        raise MedusaError(
            f"{kind} takes no {', '.join(sorted(missing))}, so a tree's nodes cannot be placed by depth: "
            "use a model with rotary or learned positions"
        )


def _arguments(model: PreTrainedModel) -> set[str]:
    """Names that the model's forward takes; accelerate's hooks wrap the instance's, so ask the class."""
    return set(inspect.signature(type(model).forward).parameters)


def _runs_on(module: Any) -> torch.device:
    """The device a module computes on, also when accelerate keeps its weights elsewhere."""
    device: torch.device = module.weight.device
    return device if device.type != "meta" else torch.device(module._hf_hook.execution_device)
