"""How much memory a load will take, estimated from configs before anything large is fetched or read.

It is what weights and cache take, a fifth more, and what libraries bring along: more than a load has taken.
Compares it with what is free, and knows which settings would need less.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from medusa_core.checkpoints.files import read_config
from medusa_core.checkpoints.locate import Fetch
from medusa_core.checkpoints.plain_llama import plain_llama_config
from medusa_core.checkpoints.sources import Sources, find_sources
from medusa_core.config import AUTO_METHOD, NO_HEADS, LoadConfig
from medusa_core.drafters import DraftSize, auto_method, draft_size, drafters_of, owner_of, require_weights
from medusa_core.errors import MedusaError
from medusa_core.llama.cache import buffer_rows
from medusa_core.loading.devices import Placement, device_kinds, free_memory, place, runs_in_c, spare_memory
from medusa_core.loading.model_size import ModelSize, base_bytes, model_size, saved_bytes
from medusa_core.model.captured_forward import SIZES
from medusa_core.model.kv_cache import padded_rows
from medusa_core.model.quantization import Packing, own_packing, packing_for
from medusa_core.words import bytes_words

USUAL_CONTEXT = 2048  # rows of the cache that are counted, in models that could take more
TREE = 64  # rows of a tree behind the text
LIBRARIES = 64 * 2**20  # bytes that a load and a first run bring into memory, whatever the model
_PACKING = 20  # bytes a number of the layer that is being packed, or made into numbers again
_PACKING_IN_C = 10  # bytes a number of the layer that is being packed for the C
_WORTHWHILE = 0.95  # share of the model's own memory: a change that leaves more is no advice


def margin(held: int) -> int:
    """Bytes to spare beside ``held`` bytes of weights and cache: for a step's buffers and fragmentation."""
    return held // 5 + LIBRARIES


@dataclass(frozen=True)
class Alternative:
    """Flags that change a load's memory: how much it then needs, and how much there is for it."""

    flags: str
    needed: int
    free: int

    @property
    def fits(self) -> bool:
        return self.needed <= self.free

    def words(self) -> str:
        """Words for a person: ``--quantize 4bit (4.10 GB)``."""
        return f"{self.flags} ({bytes_words(self.needed)})"


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a load will take, and what there is: ``free`` on its device, ``spare`` beside it.

    accelerate may put layers into ``spare``, the memory of other GPUs and of the CPU; ``cache`` is what the
    keys and values of a run take.
    """

    parameters: int
    base: int
    heads: int
    cache: int
    margin: int
    free: int
    spare: int
    device: str
    packed: bool
    alternatives: tuple[Alternative, ...] = ()

    @property
    def total(self) -> int:
        """The sum of all parts, with a margin."""
        return self.base + self.heads + self.cache + self.margin

    @property
    def fits(self) -> bool:
        return self.total <= self.free + self.spare

    @property
    def advice(self) -> tuple[str, ...]:
        """Flags that would need less, with their bytes; those that fit come first."""
        return tuple(other.words() for other in sorted(self.alternatives, key=lambda one: not one.fits))

    def sentence(self) -> str:
        """What is needed, what is free, and what to do where that is too little; for a person."""
        kind = "GPU memory" if self.device.startswith("cuda") else "memory"
        there = f"needs about {bytes_words(self.total)} of {kind}, {bytes_words(self.free)} are free"
        if self.total <= self.free:
            return there
        if self.fits:
            return f"{there}: the rest goes to slower memory, of which {bytes_words(self.spare)} are free"
        fitting = [other.words() for other in self.alternatives if other.fits]
        return f"{there}: " + (
            f"use {' or '.join(fitting)}" if fitting else "take a smaller model or a larger machine"
        )


@dataclass(frozen=True)
class _Counted:
    """The numbers of a base and its heads, whatever the settings."""

    folder: Path
    shape: ModelSize
    drafts: tuple[DraftSize, ...]  # a model among them counts without its weights
    models: tuple[ModelSize, ...]  # models that drafters run beside the base

    def estimate(self, config: LoadConfig, placement: Placement) -> MemoryEstimate:
        """The estimate for these settings and this placement, without alternatives."""
        each = placement.dtype.itemsize
        packing = self.packing(config, placement)
        saved = saved_bytes(self.folder, each) if self.shape.packing else 0
        drafting = config.heads != NO_HEADS
        drafts, models = (self.drafts, self.models) if drafting else ((), ())
        own = sum(draft.weights for draft in drafts) * each
        base = saved or base_bytes(self.shape, each, packing)
        heads = own + sum(base_bytes(model, each, None) for model in models)
        beside = sum(one.cache_per_row for one in drafts) + sum(one.cache_per_row for one in models)
        cache = self._cache(config, placement, beside)
        # For a moment of the load some weights are there twice: on a CPU heads are stacked or packed.
        passing = self._packing_bytes(packing, placement.dtype)
        passing += own if placement.device.type == "cpu" else 0
        return MemoryEstimate(
            parameters=self.shape.parameters,
            base=base,
            heads=heads,
            cache=cache,
            margin=passing + margin(base + heads + cache),
            free=free_memory(placement.device),
            spare=spare_memory(placement.device, packing is not None),
            device=str(placement.device),
            packed=packing is not None,
        )

    def _cache(self, config: LoadConfig, placement: Placement, beside: int) -> int:
        """Bytes that all keep of the rows of a run; ``beside`` numbers of a row are drafters'."""
        packing, each = self.packing(config, placement), placement.dtype.itemsize
        in_c = self._runs_in_c(placement) and (packing is None or packing.is_own)
        trained = self.shape.context or USUAL_CONTEXT
        rows = held = (config.context or min(trained, USUAL_CONTEXT)) + TREE
        if in_c and config.context > trained and config.extend == "window":
            held = buffer_rows(rows, trained)  # transformers keeps all
        if config.capture and packing is None and placement.device.type == "cuda":
            rows = held = padded_rows(rows, SIZES[-1])
        return (self.shape.cache_per_row * held + beside * rows) * each

    def _runs_in_c(self, placement: Placement) -> bool:
        return self.shape.in_c and runs_in_c(placement.dtype, placement.device.type)

    def packing(self, config: LoadConfig, placement: Placement) -> Packing | None:
        """How the base's weights are packed with these settings and this placement."""
        if config.quantize == "8bit" and self.shape.packing is None and self._runs_in_c(placement):
            return own_packing(self.shape.width)
        return self.shape.packing or packing_for(config.quantize)

    def _packing_bytes(self, packing: Packing | None, dtype: torch.dtype) -> int:
        """Bytes that are needed only while weights are packed."""
        if packing is None or not packing.is_own:
            return _PACKING * self.shape.largest if packing else 0
        largest = _PACKING_IN_C * max(self.shape.largest, self.shape.vocabulary * self.shape.width)
        config = read_config(self.folder)
        saved = str(config.get("dtype") or config.get("torch_dtype"))
        if plain_llama_config(self.folder) is not None and saved == str(dtype).removeprefix("torch."):
            return largest  # the weights are pages of their files
        each = dtype.itemsize
        return largest + base_bytes(self.shape, each, None) - base_bytes(self.shape, each, packing)


def estimate_memory(config: LoadConfig) -> MemoryEstimate:
    """The memory that a load would take. Of the hub only small files are fetched.

    Raises MedusaError for names that cannot be had, and for a model of unknown kind.
    """
    fetch = Fetch(weights=False, code=config.trust_remote_code)
    sources = used_sources(find_sources(config.model, config.heads, fetch))
    return estimate_for(sources, config, place(config.device, config.dtype))


def estimate_for(sources: Sources, config: LoadConfig, placement: Placement) -> MemoryEstimate:
    """The memory to load these folders there. Raises MedusaError when that cannot be estimated."""
    shape = model_size(sources.base, config.trust_remote_code)
    sizes = tuple(draft_size(folder, shape) for folder in sources.drafts)
    models = tuple(model_size(size.model) for size in sizes if size.model is not None)
    counted = _Counted(sources.base, shape, sizes, models)
    found = counted.estimate(config, placement)
    return replace(found, alternatives=tuple(_alternatives(counted, config, placement, found)))


def held_as(dtype: torch.dtype, packing: Packing | None) -> str:
    """How weights are held, for a person: ``bfloat16``, or ``bfloat16, 4-bit`` where they are packed."""
    name = str(dtype).removeprefix("torch.")
    return f"{name}, {packing.words()}" if packing else name


def _alternatives(
    counted: _Counted, config: LoadConfig, placement: Placement, needed: MemoryEstimate
) -> Iterator[Alternative]:
    """Changes of the settings that may help, each by itself; all together where none of them does."""
    changes = _smaller(counted, config, placement)
    worthwhile = LIBRARIES + _WORTHWHILE * (needed.total - LIBRARIES)
    single = [_alternative(counted, config, f"--{name} {value}", {name: value}) for name, value in changes]
    others = [kind for kind in device_kinds() if kind != placement.device.type]
    found = [
        *(one for one in single if one.needed < worthwhile),
        *(_alternative(counted, config, f"--device {kind}", {"device": kind}) for kind in others),
    ]
    yield from found
    together = dict(changes)  # of several values of a setting, the last is the smallest
    if len(together) > 1 and not any(other.fits for other in found):
        flags = " ".join(f"--{name} {value}" for name, value in together.items())
        yield _alternative(counted, config, f"{flags} together", together)


def _smaller(counted: _Counted, config: LoadConfig, placement: Placement) -> list[tuple[str, str | int]]:
    """Settings under which less is needed on the same device, with the values that are smaller."""
    device = placement.device.type
    found: list[tuple[str, str | int]] = []
    if placement.dtype.itemsize > torch.bfloat16.itemsize:
        found.append(("dtype", "float16" if device == "mps" else "bfloat16"))
    if counted.shape.packing is None and device != "mps":
        smaller = {"none": ("8bit", "4bit"), "8bit": ("4bit",)}.get(config.quantize, ())
        found += [("quantize", bits) for bits in smaller]
    if config.context:
        found.append(("context", 0))
    if (any(draft.weights for draft in counted.drafts) or counted.models) and config.heads != NO_HEADS:
        found.append(("heads", NO_HEADS))
    return found


def _alternative(counted: _Counted, config: LoadConfig, flags: str, change: dict[str, Any]) -> Alternative:
    changed = replace(config, **change)
    found = counted.estimate(changed, place(changed.device, changed.dtype))
    return Alternative(flags, found.total, found.free + found.spare)


def used_sources(sources: Sources, methods: Collection[str] | None = None, *, warn: bool = False) -> Sources:
    """The sources with the model's own drafters that ``methods`` use; None: all of them.

    Weights that were named take the place of the model's own for the same method. A folder whose files are
    not known is left out, which ``warn`` says. Raises MedusaError for a method whose weights are nowhere.
    """

    def owner(folder: Path) -> str | None:
        with suppress(MedusaError):
            return owner_of(folder)
        return None

    named, brought = [owner(folder) for folder in sources.named], [owner(folder) for folder in sources.own]
    there = [name for name in (*named, *brought) if name is not None]
    if methods is not None:
        methods = [auto_method(there) if name == AUTO_METHOD else name for name in methods]
        if None not in named:  # else reading these weights says what is wrong with them
            for asked in methods:
                require_weights(asked, there, sources.base_name)
    wanted = None if methods is None else {drafters_of(name)[0] for name in methods}
    own = []
    for folder, name in zip(sources.own, brought, strict=True):
        if name is None and warn:
            words = "warning: %s holds no weights of a drafter that is known here: it is left out"
            logging.getLogger(__name__).warning(words, folder)
        if name is not None and name not in named and (wanted is None or name in wanted):
            own.append(folder)
    return replace(sources, own=tuple(own))
