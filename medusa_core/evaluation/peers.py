"""transformers' own ways to generate, measured beside ours.

A peer runs transformers' forward on the weights of the engine's model: same dtype, device and threads, same
prompt, token budget and reasons to end, no streamer. What the model's ``generation_config`` asks for, such as
a penalty or a top-p, is left out. Above temperature 0 a peer samples from the whole distribution at that
temperature, or from what the run's top-k, top-p and min-p leave of it, with the run's seed, whatever
acceptance rule our methods follow. transformers has no contextual penalty, so no peer runs with one.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import (
    CompileConfig,
    GenerationConfig,
    StoppingCriteria,
    StoppingCriteriaList,
)

from medusa_core import config as settings
from medusa_core.acceptance.sampling import COLDEST
from medusa_core.decoding import check_prompt
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError, reason_of
from medusa_core.evaluation.turns import Measurement
from medusa_core.text.stopping import Stopper

LOOKUP_TOKENS = 10  # drafted at most: what transformers' candidate generator takes when none are given
COMPILER = "inductor"  # the backend of torch.compile
_FAILURES = (
    RuntimeError, TypeError, ValueError, LookupError, AttributeError, ImportError, OSError, MemoryError,
)  # fmt: skip


class PeerError(MedusaError):
    """A peer cannot run here; the text is the reason alone."""


@dataclass(frozen=True)
class Peer:
    """A way to decode that is not ours."""

    help: str  # for the note below the table
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of ``generate``, or of another library
    drafts: bool = False  # whether a step can give several tokens
    compiles: bool = False


PEERS = {
    "hf": Peer("transformers' generate with a dynamic cache"),
    "hf-lookup": Peer(
        f"generate with prompt lookup, {LOOKUP_TOKENS} tokens a draft",
        {"prompt_lookup_num_tokens": LOOKUP_TOKENS},
        drafts=True,
    ),
    "hf-static": Peer(
        "generate with a static cache and its decoding step compiled by torch.compile",
        {"cache_implementation": "static"},
        compiles=True,
    ),
}


class PeerRunner:
    """A peer on an engine's model. What ``generate`` stores on its model stays on a copy of the outer object.

    The copy shares every layer and every weight.
    """

    def __init__(self, engine: Engine, name: str, config: settings.GenerationConfig) -> None:
        self._engine, self._peer, self._config = engine, PEERS[name], config
        self._model: Any = copy.copy(engine.target.model)
        self._model.generation_config = GenerationConfig()
        ends = set() if config.ignore_eos else engine.end_tokens()
        self._arguments = dict(self._peer.arguments) | {
            "eos_token_id": sorted(ends) or None,
            "pad_token_id": min(ends, default=0),  # pads shorter texts of a batch: there are none
        }
        if config.temperature > 0:
            # Without top_k=0 transformers would keep only the 50 likeliest tokens.
            sampling = {"do_sample": True, "temperature": max(config.temperature, COLDEST), "top_k": 0}
            self._arguments |= sampling | config.truncation
        if self._peer.compiles:
            # CUDA graphs, transformers' own choice, exist on GPUs only.
            mode = "reduce-overhead" if engine.target.device.type == "cuda" else "default"
            compiling = CompileConfig(backend=COMPILER, mode=mode)
            # Without it transformers compiles on accelerators only.
            compiling._compile_all_devices = True  # type: ignore[assignment]
            self._arguments["compile_config"] = compiling

    def prepare(self, longest: list[int]) -> None:
        """Run once on the longest prompt, unmeasured: memory is allocated and the compiler has run.

        Raises MedusaError for a bad prompt, and PeerError when the peer cannot run.
        """
        if self._config.penalises:
            raise PeerError(
                "transformers has no penalty on the last tokens alone: its repetition_penalty counts them all"
            )
        # The text must not end this run: if it did at once, compiling would be left to a measured run.
        self._run(longest, self._arguments | {"eos_token_id": None})
        # generate goes on silently where it cannot compile.
        if self._peer.compiles and "_compiled_call" not in vars(self._model):
            raise PeerError("transformers does not compile this model with its cache")

    def __call__(self, prompt: list[int]) -> Measurement:
        """Generate after ``prompt``, whose reading is part of the first step.

        Raises PeerError with the reason when that fails.
        """
        return self._run(prompt, self._arguments)

    def _run(self, prompt: list[int], arguments: dict[str, Any]) -> Measurement:
        engine, config = self._engine, self._config
        check_prompt(prompt, engine.target)
        ids = torch.tensor([prompt], device=engine.target.device)
        budget = min(config.max_new_tokens, engine.target.context - len(prompt))
        watch = _Watch(engine, config, len(prompt)) if self._peer.drafts or config.stop else None
        torch.manual_seed(config.seed)
        start = time.perf_counter()
        try:
            with torch.inference_mode(), engine.target.on_its_threads():
                output = self._model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=budget,
                    stopping_criteria=StoppingCriteriaList([watch] if watch else []),
                    **arguments,
                )
            tokens = output[0, len(prompt) :].tolist()
        except _FAILURES as error:
            # A compiler's message goes on with pages of advice.
            raise PeerError(reason_of(RuntimeError(str(error).strip().split("\n\n")[0]))) from error
        seconds = time.perf_counter() - start
        if watch and config.stop:
            tokens = watch.kept
        return Measurement(tokens, seconds, watch.steps if watch and self._peer.drafts else len(tokens))


class _Watch(StoppingCriteria):
    """Counts the steps of ``generate``, and ends it at our stop strings by the rule of our own loop."""

    def __init__(self, engine: Engine, config: settings.GenerationConfig, read: int) -> None:
        self.steps = 0
        self.kept: list[int] = []  # new tokens up to the end of a stop string; only where there are some
        self._ended = False
        self._read = read  # tokens that the stopper has seen, the prompt's included
        self._stopper = (
            Stopper(frozenset(), config.stop, config.max_new_tokens, engine.decode_text)
            if config.stop
            else None
        )

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Whether the one text of the batch ends here, [1]."""
        self.steps += 1
        if self._stopper is not None and not self._ended:  # on a GPU generate may ask once more
            kept, reason = self._stopper.cut(input_ids[0, self._read :].tolist())
            self.kept += kept
            self._read = input_ids.shape[1]
            self._ended = reason is not None
        return torch.full((1,), self._ended, device=input_ids.device)
