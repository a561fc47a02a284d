"""A transformers causal LM as a ``Target`` reads it: its device, the arguments it takes, its LM head.

V vocabulary · d hidden size
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import torch

from medusa_core.errors import MedusaError, is_out_of_memory, reason_of
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.model.quantization import Packing, lm_head_weight, packing_of, runs_on
from medusa_core.trees.origin import ROOT

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from medusa_core.model.target import Target
    from medusa_core.trees.token_tree import TokenTree


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


# What a forward raises where its code does not fit what it is given.
CANNOT_RUN = (RuntimeError, TypeError, ValueError, LookupError, AttributeError)
# Linear layers, and what makes their weights.
Originals = Callable[[], Iterable[tuple[Sequence[Any], Callable[[], Sequence[torch.Tensor]]]]]


class LoadedModel:
    """A causal LM that transformers has loaded. Raises MedusaError for one that is not a causal decoder."""

    config: Any  # the decoder's config
    packing: Packing | None  # how the weights are held; None: as plain numbers
    limits_head: bool  # whether the forward takes ``logits_to_keep``

    def __init__(self, model: PreTrainedModel) -> None:
        _require_decoder(model)
        self._hold(model.eval())
        self.config = model.config.get_text_config(decoder=True)
        self.limits_head = "logits_to_keep" in _arguments(model)

    @cached_property
    def cache_argument(self) -> str:
        return cache_argument(self.model)

    def _hold(self, modules: Any) -> None:
        """Begin with modules that have all of their weights."""
        self._modules = modules
        self._originals: Originals | None = None  # rebuilds weights that were released
        self.parameters = sum(parameter.numel() for parameter in modules.parameters())
        self.packing = packing_of(modules.config)
        self._lock = RLock()  # runs in several threads may ask at once

    @property
    def weights(self) -> Any:
        """Modules with the weights, all of them: the model itself here."""
        with self._lock:
            if self._originals is not None:
                for modules, make in self._originals():
                    # The caller may be in inference mode, which makes tensors that no training can use.
                    with torch.inference_mode(modules[0].weight.is_inference()):
                        for module, weight in zip(modules, make(), strict=True):
                            module.weight.data = weight.clone(memory_format=torch.contiguous_format)
                self._originals = None
        return self._modules

    @contextmanager
    def lent(self) -> Iterator[Any]:
        """``weights`` for a moment: those that nobody had asked for are released again behind it."""
        with self._lock:
            originals = self._originals
            yield self.weights
            if originals is not None:
                for module in (module for modules, _ in originals() for module in modules):
                    module.weight.data = module.weight.data.new_empty(0)
                self._originals = originals

    def restore_by(self, originals: Originals) -> None:
        """Weights of linear layers were freed; ``originals`` makes them anew for whoever asks."""
        with self._lock:
            self._originals = originals

    @property
    def model(self) -> PreTrainedModel:
        return self.weights

    @property
    def is_proven(self) -> bool:
        """Whether tests have run this model: its kind is known, and its code is transformers' own."""
        own_code = not type(self._modules).__module__.startswith("transformers.")
        return not own_code and {self._modules.config.model_type, self.config.model_type} <= PROVEN

    @property
    def device(self) -> torch.device:
        """The device that token ids go to."""
        return runs_on(self._modules.get_input_embeddings())

    @property
    def output_device(self) -> torch.device:
        return runs_on(self._modules.get_output_embeddings())

    @property
    def dtype(self) -> torch.dtype:
        return self._modules.dtype

    @property
    def vocab_size(self) -> int:
        """V, the rows of the LM head."""
        head = self._modules.get_output_embeddings()
        return getattr(head, "out_features", None) or head.weight.shape[0]  # packed weights hide their shape

    @property
    def nbytes(self) -> int:
        return sum(parameter.nbytes for parameter in self._modules.parameters())

    @property
    def folder(self) -> Path | None:
        """Where it was read from; None for a model that was made in memory."""
        name: str = self._modules.name_or_path
        return Path(name) if name else None

    @property
    def end_tokens(self) -> int | list[int] | None:
        """Ids that end a text, by the generation config."""
        return self._modules.generation_config.eos_token_id

    def lm_head(self) -> torch.Tensor:
        """The LM head [V, d]."""
        with self._lock:
            head = self._modules.get_output_embeddings()
            if self._originals is None:
                return lm_head_weight(self._modules)
            return next(make()[0] for modules, make in self._originals() if modules[0] is head)

    def embedding(self) -> torch.Tensor | None:
        """The embedding [V, d] where it lies, maybe on the meta device; None where it is not a table."""
        embedding = getattr(self._modules.get_input_embeddings(), "weight", None)
        return self.lm_head() if embedding is not None and not embedding.numel() else embedding


def _require_decoder(model: PreTrainedModel) -> None:
    """Raise MedusaError for a model that is not a causal decoder, or whose rows cannot be placed freely."""
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
    if missing := {"attention_mask", "position_ids", cache_argument(model)} - _arguments(model):
        raise MedusaError(
            f"{kind} takes no {', '.join(sorted(missing))}, so a tree's nodes cannot be placed by depth: "
            "use a model with rotary or learned positions"
        )


def cache_argument(model: PreTrainedModel) -> str:
    """What its forward calls the cache: code that a model brings often has the name of older versions."""
    return "cache" if "cache" in _arguments(model) else "past_key_values"


def _arguments(model: PreTrainedModel) -> set[str]:
    """Names that the model's forward takes; accelerate's hooks wrap the instance's, so ask the class."""
    return set(inspect.signature(type(model).forward).parameters)


_USE = "use a decoder such as Llama, Mistral, Qwen or Gemma"


def tried_tree(target: Target) -> tuple[list[int], TokenTree]:
    """A prompt, and behind it a root, two children and one child of the second, which is the last node."""
    vocabulary = target.vocab_size
    tokens = [token % vocabulary for token in (4, 6, 8, 9)]
    tree = target.token_tree(tokens, [-1, 0, 0, 2], [ROOT] * len(tokens))
    return [token % vocabulary for token in (3, 5, 7)], tree


def branch_alone(target: Target) -> torch.Tensor:
    """Logits [V] of the last node of ``tried_tree``, its branch run alone without our mask."""
    start, tree = tried_tree(target)
    ids = torch.tensor([start], device=target.device)
    branch = tree.tokens[[0, 2, 3]].to(ids)[None]
    logits: torch.Tensor = target.model(input_ids=torch.cat([ids, branch], 1), use_cache=False).logits
    return logits[0, -1].float()


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """How far logits or hidden states are from those that are wanted, over the spread of these."""
    found, wanted = found.float(), wanted.float()
    return float((found - wanted).norm() / (wanted - wanted.mean()).norm())


def tolerance(dtype: torch.dtype, packed: bool = False) -> float:
    """The relative error that rounding may make; a wrong mask makes a larger one."""
    return 1e-2 if dtype == torch.float32 and not packed else 0.1


def require_tree_equals_branch(target: Target) -> None:
    """Raise MedusaError when a node of a small tree differs from its branch run alone, without our mask.

    Three short forwards at loading, for models that no test has run: a model may ignore the mask or take
    positions from slots, and would then silently write wrong text.
    """
    kind, cache = target.model.config.model_type, target.new_cache(8)
    start, tree = tried_tree(target)
    try:
        with torch.inference_mode():
            target.prefill(start, cache)
            logits, hidden = target.verify(tree, cache, LAST_HIDDEN)
            alone = branch_alone(target).to(logits.device)
            read = target.model.get_output_embeddings()(hidden[-1])
    except CANNOT_RUN as error:
        if is_out_of_memory(error):
            raise
        raise MedusaError(f"{kind} cannot run a tree ({reason_of(error)}): {_USE}") from error
    off = relative_error(logits[-1], alone)
    # Packed weights round their inputs by what else is in the pass.
    allowed = tolerance(target.dtype, getattr(target.model, "is_quantized", False))
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
