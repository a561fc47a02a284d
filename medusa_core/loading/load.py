"""From names to an engine: find the files, see whether they fit, decide where they go, load them.

Says what is wrong in one line and how far it is; knows nothing of runs. The paper's heads read the hidden
state after the final norm, so they go where the LM head is.
"""

from __future__ import annotations

import gc
import logging
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from medusa_core.checkpoints.adapters import apply_adapter
from medusa_core.checkpoints.base import load_tokenizer, read_base_config
from medusa_core.checkpoints.files import read_config, read_json
from medusa_core.checkpoints.locate import Fetch, has_adapter
from medusa_core.checkpoints.names import GENERATION_NAME
from medusa_core.checkpoints.sources import Sources, find_sources
from medusa_core.config import LoadConfig
from medusa_core.drafters import Draft, load_draft, method, owner_of
from medusa_core.engine import Engine, EngineInfo
from medusa_core.errors import MedusaError, is_out_of_memory, shortened
from medusa_core.hardware.processor import limit_torch
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.llama.families import FAMILIES
from medusa_core.llama.library import Library
from medusa_core.loading.bare_llama import read_bare_llama
from medusa_core.loading.devices import (
    Placement,
    native_library,
    place,
    return_freed_memory,
    runs_in_c,
    spread,
)
from medusa_core.loading.memory import MemoryEstimate, estimate_for, held_as, used_sources
from medusa_core.loading.tuning import fastest_threads
from medusa_core.model.context import LongerContext, longer_context
from medusa_core.model.loaded_model import LoadedModel
from medusa_core.model.quantization import packing_for
from medusa_core.model.target import Target

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from medusa_core.loading.weights import Share


@dataclass(frozen=True)
class LoadProgress:
    """Where a load is: "files", "memory", "weights", "heads" or "check", and how far in that stage."""

    name: str
    message: str  # for a person
    done: float | None = None  # share of this stage, None where it is not known
    estimate: MemoryEstimate | None = None  # from "memory" on, where one could be made


OnProgress = Callable[[LoadProgress], None]
_log = logging.getLogger(__name__)


def load_engine(
    config: LoadConfig,
    on_progress: OnProgress = lambda stage: None,
    *,
    methods: Collection[str] | None = None,
) -> Engine:
    """Load model, heads and tokenizer; ``on_progress`` is told of each stage and of its progress.

    Of the further drafters that a model brings, those of ``methods`` are loaded; None: all.
    What ``on_progress`` raises ends the load and comes out unchanged. Raises MedusaError that names what is
    missing, does not fit the rest or does not fit into memory.
    """
    limit_torch()
    report = _ProgressReporter(on_progress)
    try:
        return _load(config, report, methods)
    except BaseException as error:
        # A kept error would keep the half-loaded model alive by the variables of its frames.
        traceback.clear_frames(error.__traceback__)
        if report.estimate is not None:  # else no weights were read yet, and a collection takes its time
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        if report.refused is not None:
            raise report.refused  # noqa: B904 - the callback's own exception, which libraries may have wrapped
        if isinstance(error, Exception) and is_out_of_memory(error) and not isinstance(error, MedusaError):
            raise MedusaError(_no_memory(report.estimate)) from error
        raise


class _ProgressReporter:
    """Calls ``on_progress``, and keeps the newest estimate and the exception that the callback raised."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self.estimate: MemoryEstimate | None = None
        self.refused: BaseException | None = None

    def __call__(self, name: str, message: str, done: float | None = None) -> None:
        try:
            self._on_progress(LoadProgress(name, message, done, self.estimate))
        except BaseException as error:
            self.refused = error
            raise


def _load(config: LoadConfig, report: _ProgressReporter, methods: Collection[str] | None) -> Engine:
    code = config.trust_remote_code
    placement = place(config.device, config.dtype)
    report("files", "Looking for the files")
    report.estimate = _estimate(config, placement, methods, report)
    if report.estimate is None:
        report("memory", "The memory that the model needs cannot be estimated beforehand")
    else:
        estimate = report.estimate
        report("memory", f"The model {estimate.sentence()}")
        if not estimate.fits:
            raise MedusaError(f"the model {estimate.sentence()}")
        beside_layers = estimate.heads + estimate.cache + estimate.margin
        placement = spread(placement, estimate.total, beside_layers, packed=estimate.packed)
    found = find_sources(config.model, config.heads, Fetch(partial(report, "files"), code=code))
    sources = used_sources(found, methods, warn=True)
    for note in dropped_settings(sources.base):
        _log.warning("warning: %s: %s", sources.base_name, note)
    reading = partial(report, "weights", "Reading the weights")
    reading(0.0)
    longer = _longer(sources, config)
    base_config = read_config(sources.base)
    plain = str(base_config.get("model_type")) in FAMILIES and "quantization_config" not in base_config
    int8 = config.quantize == "8bit" and plain and runs_in_c(placement.dtype, placement.device.type)
    read_as = replace(config, quantize="none") if int8 else config  # the C packs what was read
    model = _read(sources, read_as, placement, longer, reading)
    report("check", "Trying whether the model can verify a tree")
    target = Target(model, longer)
    options = {"capture": config.capture, "release": True, "int8": int8}
    choose_forward(target, threads_for=fastest_threads, library=native_library(), **options)
    return_freed_memory()
    report("heads", "Reading the heads" if sources.drafts else "There are no heads to read")
    drafts = _load_drafts(sources, target, partial(report, "heads", "Reading the heads"))
    return Engine(
        target=target,
        drafts=drafts,
        tokenizer=load_tokenizer(sources.base, trust_remote_code=code),
        info=_describe(sources, target, drafts, placement, report.estimate),
    )


def _longer(sources: Sources, config: LoadConfig) -> LongerContext | None:
    """The context beyond the model's own that is asked for. Raises MedusaError where it cannot be had."""
    if not config.context:
        if config.extend != LoadConfig.extend:
            words = "warning: --extend %s counts for nothing without --context: give --context N too"
            _log.warning(words, config.extend)
        return None
    base = read_base_config(sources.base, trust_remote_code=config.trust_remote_code)
    return longer_context(base.get_text_config(decoder=True), config.context, config.extend)


def _read(
    sources: Sources, config: LoadConfig, placement: Placement, longer: LongerContext | None, progress: Share
) -> PreTrainedModel | LoadedModel:
    """The base with the adapter of its heads; a plain one without transformers, which is slow to import."""
    # Heads of Medusa-2 belong to the base with its adapter, so it is part of what they are called.
    adapted = sources.heads if sources.heads is not None and has_adapter(sources.heads) else None
    plain = adapted is None and packing_for(config.quantize) is None and longer is None
    native = plain and isinstance(native_library(), Library)
    if native and (bare := read_bare_llama(sources.base, placement, progress)) is not None:
        return bare
    from medusa_core.loading.weights import read_model  # noqa: PLC0415 - transformers' models take a second

    code = config.trust_remote_code
    model = read_model(sources.base, placement, config.quantize, code, progress, longer)
    return apply_adapter(model, adapted) if adapted is not None else model


def _estimate(
    config: LoadConfig, placement: Placement, methods: Collection[str] | None, report: _ProgressReporter
) -> MemoryEstimate | None:
    """The memory that a load will take, by the small files alone; None where it cannot be estimated."""
    small = Fetch(partial(report, "files"), weights=False, code=config.trust_remote_code)
    try:
        sources = used_sources(find_sources(config.model, config.heads, small), methods)
        return estimate_for(sources, config, placement)
    except MedusaError:
        if report.refused is not None:
            raise
        return None  # errors in the files are raised once all of them are here


def _no_memory(estimate: MemoryEstimate | None) -> str:
    ran_out = "the memory ran out while loading"
    if estimate is None:
        return f"{ran_out}: use --quantize 4bit, or take a smaller model"
    fixes = " or ".join(estimate.advice) or "a smaller model"
    return f"{ran_out}, though the model {estimate.sentence()}: use {fixes}"


def _load_drafts(sources: Sources, target: Target, progress: Share) -> dict[str, Draft]:
    """Weights of drafters by the method that knows their files, those named first. Raises MedusaError."""
    drafts: dict[str, Draft] = {}
    for folder in sources.drafts:
        name = owner_of(folder)
        if name in drafts:
            twice = f"{folder} holds weights for --method {name}, which has some already"
            raise MedusaError(f"{twice}: give one of them")
        with ExitStack() as stack:
            if method(name).any_model:  # transformers reads a whole model
                from medusa_core.loading.weights import weights_watched  # noqa: PLC0415 - as in _read

                stack.enter_context(weights_watched(progress))
            drafts[name] = load_draft(name, folder, target)
        for note in drafts[name].notes:
            whose = folder.name if folder in sources.own else sources.heads_name
            _log.warning("warning: %s: %s", whose, note)
    return drafts


def _describe(
    sources: Sources,
    target: Target,
    drafts: Mapping[str, Draft],
    placement: Placement,
    estimate: MemoryEstimate | None,
) -> EngineInfo:
    base, packing, labels = sources.base_name, target.held.packing, [one.label for one in drafts.values()]
    named = labels[: len(sources.named)]
    return EngineInfo(
        name=" + ".join([base, *named]),
        base=base,
        heads=sources.heads_name,
        dtype=held_as(target.dtype, packing),
        device=str(target.device),
        # Packed weights do not say how many numbers they hold.
        parameters=estimate.parameters if packing and estimate else target.held.parameters,
        draft_parameters=sum(tensor.numel() for draft in drafts.values() for tensor in draft.tensors()),
        dtype_reason="" if packing else placement.reason,  # the reason is about unpacked weights
        forward=target.choice.words(),
        context=target.context,
        extended=target.longer.words() if target.longer is not None else "",
        drafts=tuple(named),
        own_drafts=tuple(labels[len(named) :]),
        notes=(*dropped_settings(sources.base), *(note for draft in drafts.values() for note in draft.notes)),
    )


# transformers' settings that change greedy text too, each with the value at which it does nothing.
_IDLE: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1, 1.0), "encoder_repetition_penalty": (1, 1.0), "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,), "bad_words_ids": (), "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],), "sequence_bias": ({}, []), "min_length": (0,), "min_new_tokens": (0,),
    "exponential_decay_length_penalty": (), "guidance_scale": (1, 1.0),
}  # fmt: skip
_WHOLE_TEXT = 65536  # the largest window of our penalty
_MOST = 2  # the largest penalty


def dropped_settings(folder: Path) -> list[str]:
    """Notes, one a setting of the model in ``folder`` that a run ignores."""
    file = folder / GENERATION_NAME
    try:
        generation = read_json(file) if file.is_file() else {}
    except MedusaError:
        return []  # reading the model says what is wrong with it
    asks = f"{GENERATION_NAME} asks for"
    notes = {
        name: f"{asks} {name} {shortened(str(generation[name]), 40)}, which counts for nothing here"
        for name, idle in _IDLE.items()
        if generation.get(name) is not None and generation[name] not in idle
    }
    penalty = generation.get(name := "repetition_penalty")
    if name in notes and isinstance(penalty, int | float) and 1 < penalty <= _MOST:
        notes[name] += f": --penalty {penalty} --penalty-window {_WHOLE_TEXT} is the same"
    return list(notes.values())
