"""Medusa inside transformers: ``model.generate(ids, custom_generate=medusa_generate, medusa_heads="NAME")``.

transformers prepares inputs, settings, logits processors and stopping criteria as for its own decoding and
calls ``medusa_generate``, which runs ``decode``, instead of its own loop. Greedy output is the same; sampled
output is too, given the seed, because ``ProcessedMatch`` draws as transformers does. Settings that cannot be
honoured are refused.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, cast

import torch
from transformers import GenerationConfig as TransformersConfig
from transformers import GenerationMixin, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation import GenerateDecoderOnlyOutput, GenerationMode

from medusa_core.checkpoints.adapters import has_loaded
from medusa_core.checkpoints.heads import read_heads
from medusa_core.checkpoints.locate import as_folder, has_adapter
from medusa_core.checkpoints.sources import heads_folder, locate_heads
from medusa_core.config import GenerationConfig as RunConfig
from medusa_core.custom_generate.rules import PenaltyProcessor, ProcessedMatch, ProcessedTypical
from medusa_core.custom_generate.signature import given_tokenizer
from medusa_core.decoding import Run, decode
from medusa_core.drafters._head_trees import DEFAULT, TreeSettings
from medusa_core.drafters._own_settings import tree_and_accuracies
from medusa_core.drafters.medusa.draft import MedusaDraft
from medusa_core.drafters.medusa.drafter import MedusaDrafter
from medusa_core.drafters.medusa.files import build_heads
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.errors import MedusaError
from medusa_core.model.quantization import lm_head_weight
from medusa_core.model.target import Target
from medusa_core.trees.tree import Topology

_ACCEPTANCE = ("match", "typical")
_WEIGHING = "rejection"  # a rule of the engine that has no place here
_OWN_CACHE = ("quantized", "offloaded")  # caches that users ask for because they differ from ours
# What transformers hands to every decoding loop; anything else would change the forward.
_HANDLED = {"attention_mask", "position_ids", "cache", "use_cache", "logits_to_keep"}


@dataclass
class MedusaGenerateOutput(GenerateDecoderOnlyOutput):
    """transformers' output with the number of decoding steps, with ``return_dict_in_generate=True``."""

    medusa_steps: int | None = None


class CriteriaStopper:
    """transformers' stopping criteria as the decode loop's stopper, asked after each token."""

    def __init__(self, criteria: StoppingCriteriaList, prompt: torch.Tensor, budget: int) -> None:
        """``prompt`` [1, L]; at most ``budget`` tokens follow."""
        self._criteria = criteria
        self._length = prompt.shape[1]
        # One token more than the budget, for the criteria to end the run and not this buffer.
        self._ids = torch.cat([prompt, prompt.new_zeros(1, budget + 1)], dim=1)

    def cut(self, tokens: Sequence[int]) -> tuple[list[int], str | None]:
        """The tokens that may be emitted, and "stop" when a criterion ended the run with the last of them."""
        kept: list[int] = []
        for token in tokens:
            kept.append(token)
            self._ids[0, self._length] = token
            self._length += 1
            full = self._length == self._ids.shape[1]
            if full or bool(torch.as_tensor(self._criteria(self._ids[:, : self._length], None)).all()):
                return kept, "stop"
        return kept, None


def load_medusa_heads(model: PreTrainedModel, name: str | PathLike[str]) -> MedusaDraft:
    """Heads for ``model`` from a folder or hub name, to be given to many calls as ``medusa_heads``.

    Heads that come with an adapter of their base want it in the model: ``model.load_adapter(FOLDER)`` first.
    Raises MedusaError when they cannot be read, belong to another base or miss their adapter.
    """
    folder = locate_heads(str(name))
    if has_adapter(folder) and not has_loaded(model, folder):
        raise MedusaError(
            f"the heads in {folder.name} were trained with an adapter of their base, which this model lacks: "
            f"call model.load_adapter({str(folder)!r}) first, or load base and heads with medusa_core.load"
        )
    lm_head = lm_head_weight(model)
    heads = build_heads(read_heads(folder), lm_head, folder)
    return MedusaDraft(heads, *tree_and_accuracies(folder, heads.count, lm_head.device))


Heads = str | PathLike[str] | MedusaHeads | MedusaDraft
Tree = str | Topology | Sequence[Sequence[int]]


@given_tokenizer
def medusa_generate(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: TransformersConfig,
    streamer: Any = None,
    synced_gpus: bool = False,
    medusa_heads: Heads | None = None,
    medusa_tree: Tree | None = None,
    medusa_acceptance: str = "match",
    medusa_epsilon: float = 0.09,
    medusa_delta: float = 0.3,
    medusa_penalty: float = 1.0,
    medusa_penalty_window: int = 1024,
    tokenizer: Any = None,  # for the stop strings, which generate has made a criterion of
    **model_kwargs: Any,
) -> torch.Tensor | MedusaGenerateOutput:
    """The decoding loop for ``model.generate(ids, custom_generate=medusa_generate, medusa_heads=…)``.

    ``medusa_heads``: a folder, a hub name, or what ``load_medusa_heads`` returned; without it the model's
    attribute of that name, or the heads in the model's own folder. ``medusa_tree``: a published name,
    ``cartesian-4x2x1``, a JSON file, a list of rank tuples or ``dynamic-16``. ``medusa_acceptance`` "typical"
    judges by ε and δ (paper §2.3.1) when sampling. ``medusa_penalty`` is the contextual penalty on the last
    ``medusa_penalty_window`` tokens; min-p is ``generate``'s own. ``streamer`` gets each token once it is
    committed. Returns ids [1, L], or a ``MedusaGenerateOutput`` with ``return_dict_in_generate``.
    Raises MedusaError for what it cannot honour: batches, beams, padding, a cache or scores asked for.
    """
    asked = _arguments_of_generate()
    streamer = streamer if streamer is not None else asked.get("streamer")
    _refuse_settings(generation_config, asked.get("assistant_model"), synced_gpus)
    _refuse_inputs(input_ids, model_kwargs)
    training = model.training
    try:
        target = Target(model)
        found = _find_heads(model, medusa_heads)
        prompt, budget = input_ids[0].tolist(), max(generation_config.max_length - input_ids.shape[1], 1)
        _refuse_acceptance(medusa_acceptance)
        processors = logits_processor
        if RunConfig(penalty=medusa_penalty, penalty_window=medusa_penalty_window).penalises:
            # First, since it must see the tokens that the others leave out.
            penalty = PenaltyProcessor(medusa_penalty, medusa_penalty_window)
            processors = LogitsProcessorList([penalty, *processors])
        rule: ProcessedTypical | ProcessedMatch
        if medusa_acceptance == "typical" and generation_config.do_sample:
            rule = ProcessedTypical(processors, input_ids, medusa_epsilon, medusa_delta)
        else:
            rule = ProcessedMatch(processors, input_ids, sample=bool(generation_config.do_sample))
        stopper = CriteriaStopper(stopping_criteria, input_ids, budget)
        drafter = MedusaDrafter(target, found, _tree_settings(medusa_tree))
        tokens, steps = [], 0
        for step in decode(Run(target, drafter, rule, prompt, stopper, budget)):
            tokens += step.emitted
            steps += 1
            for token in step.emitted if streamer is not None else ():
                streamer.put(torch.tensor([token]))
            if step.finish_reason == "context":
                logging.getLogger(__name__).warning(
                    "the text ends after %d tokens: %s", len(tokens), target.context_words
                )
    finally:
        model.train(training)
        if streamer is not None:
            streamer.end()
    sequences = torch.cat([input_ids, input_ids.new_tensor([tokens])], dim=1)
    if generation_config.return_dict_in_generate:
        return MedusaGenerateOutput(sequences=cast("torch.LongTensor", sequences), medusa_steps=steps)
    return sequences


def generate(
    inputs: torch.Tensor | None = None,
    generation_config: TransformersConfig | None = None,
    *,
    model: PreTrainedModel,
    **kwargs: Any,
) -> torch.Tensor | MedusaGenerateOutput:
    """``model.generate`` by Medusa, for a ``custom_generate`` folder, whose function gets the raw arguments.

    They go back to transformers' ``generate`` with ``medusa_generate`` as the loop.
    """
    # Taken from the class: the attribute of a model that was loaded from such a folder is this function.
    kind: type[Any] = type(model)
    return kind.generate(
        model,
        inputs,
        generation_config=generation_config,
        custom_generate=medusa_generate,
        **kwargs,
    )


def _arguments_of_generate() -> dict[str, Any]:
    """Arguments that transformers' ``generate`` does not pass on to a callable, read from its frame.

    ``streamer`` is one of them (transformers 5.24): it is given the prompt and then forgotten. Ignoring it
    silently would be worse than looking there.
    """
    own = inspect.currentframe()
    loop = own.f_back if own else None
    frame = loop.f_back if loop else None
    if frame is None or frame.f_code is not inspect.unwrap(GenerationMixin.generate).__code__:
        return {}
    return {name: frame.f_locals.get(name) for name in ("streamer", "assistant_model")}


def _refuse_settings(config: TransformersConfig, assistant: Any, synced: bool) -> None:
    mode = config.get_generation_mode(assistant)
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        raise MedusaError(
            f"Medusa cannot do {mode.value.replace('_', ' ')}: use greedy decoding or sampling, "
            "with one beam and no assistant"
        )
    if (config.num_return_sequences or 1) > 1:
        raise MedusaError(
            f"num_return_sequences is {config.num_return_sequences}, Medusa makes 1: call generate for each"
        )
    wanted = [
        name
        for name in ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
        if config.return_dict_in_generate and getattr(config, name)
    ]
    if wanted:
        raise MedusaError(f"Medusa cannot return what {wanted[0]} asks for: leave it out")
    if config.use_cache is False:
        raise MedusaError("Medusa needs the key-value cache: leave out use_cache=False")
    if config.cache_implementation in _OWN_CACHE:
        raise MedusaError(
            f"Medusa has a cache of its own, not a {config.cache_implementation} one: "
            "leave out cache_implementation"
        )
    if synced:
        raise MedusaError("Medusa does not keep several processes in step: run without synced_gpus")


def _refuse_acceptance(name: str) -> None:
    if name == _WEIGHING:
        raise MedusaError(
            f"medusa_acceptance is {_WEIGHING!r}, which weighs guesses that were drawn, and Medusa's heads "
            "draw none here: use 'match', which samples from the same distribution"
        )
    if name not in _ACCEPTANCE:
        raise MedusaError(f"medusa_acceptance is {name!r}: use one of {', '.join(_ACCEPTANCE)}")


def _refuse_inputs(input_ids: torch.Tensor, model_kwargs: dict[str, Any]) -> None:
    if input_ids.shape[0] != 1:
        raise MedusaError(
            f"Medusa decodes one prompt at a time, here are {input_ids.shape[0]}: loop over them"
        )
    if other := sorted(
        name for name, value in model_kwargs.items() if value is not None and name not in _HANDLED
    ):
        raise MedusaError(
            f"Medusa cannot pass {other[0]} to the model: give a text prompt as input_ids alone"
        )
    mask, positions = model_kwargs.get("attention_mask"), model_kwargs.get("position_ids")
    if mask is not None and not bool(mask.all()):
        hidden = int((mask == 0).sum())
        raise MedusaError(
            f"the attention mask hides {hidden} of the prompt's {mask.shape[-1]} tokens: give it unpadded, "
            "or pass a mask of ones if these are real tokens"
        )
    expected = torch.arange(input_ids.shape[1])
    if positions is not None and not torch.equal(positions.flatten().cpu(), expected):
        raise MedusaError("Medusa counts positions from 0: leave out position_ids")
    cache = model_kwargs.get("cache")
    if cache is not None and (getattr(cache, "_is_user_defined", False) or cache.get_seq_length()):
        raise MedusaError(
            "Medusa has a cache of its own: leave out cache or past_key_values, and give the whole prompt"
        )


def _find_heads(model: PreTrainedModel, given: Heads | None) -> MedusaDraft:
    heads = getattr(model, "medusa_heads", None) if given is None else given
    if heads is None and model.name_or_path and (folder := as_folder(model.name_or_path)):
        heads = heads_folder(folder)
    if isinstance(heads, MedusaDraft):
        return heads
    if isinstance(heads, MedusaHeads):
        return MedusaDraft(heads)
    if isinstance(heads, str | PathLike):
        return load_medusa_heads(model, heads)
    raise MedusaError(
        "Medusa needs heads: pass medusa_heads, a folder or hub name or what load_medusa_heads returns"
    )


def _tree_settings(tree: Tree | None) -> TreeSettings:
    if tree is None:
        return TreeSettings(DEFAULT)
    return TreeSettings(tree if isinstance(tree, str | Topology) else Topology.from_choices(tree))
