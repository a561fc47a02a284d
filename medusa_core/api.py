"""The Python interface: load an engine, follow a run step by step, or have its text.

    engine = load("lmsys/vicuna-7b-v1.3", heads="FasterDecoding/medusa-vicuna-7b-v1.3")
    for step in decode(engine, "Why is the sky blue?", temperature=0.7, acceptance="typical"):
        print(step.emitted)
    print(generate(engine, "Why is the sky blue?").text)

Settings are the fields of ``GenerationConfig`` and the settings of drafters and acceptance rules, by name.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from medusa_core.config import AUTO_METHOD, GenerationConfig, LoadConfig
from medusa_core.decoding import Step, check_prompt
from medusa_core.drafters._options import check_options
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError, counted, name_fix, shortened
from medusa_core.evaluation.step_times import with_known_step_times
from medusa_core.loading.load import load_engine
from medusa_core.trace.builder import TraceBuilder
from medusa_core.trace.format import RunTrace
from medusa_core.trace.replay.page import replay_frame, write_replay

Settings = TypeVar("Settings")


@dataclass(frozen=True, repr=False)
class Generation:
    """The result of a run. ``seconds`` adds up the steps; reading the prompt is not counted."""

    text: str  # new tokens as text, cut before the end-of-text token or a stop string
    token_ids: list[int]  # new tokens only
    finish_reason: str  # "eos", "stop", "length" or "context"
    steps: int
    seconds: float
    tokens_per_step: float
    decode_tokens_per_second: float  # by the time inside steps
    end_to_end_tokens_per_second: float  # by the time of the whole call
    trace: RunTrace | None = None  # every step with its tree and numbers, when it was asked for

    def __repr__(self) -> str:
        """A summary in one line; every step of a trace would fill a screen."""
        made = f"{counted(len(self.token_ids), 'token')} in {counted(self.steps, 'step')}"
        return f"<Generation: {made}, ended by {self.finish_reason}: {shortened(self.text, 60)!r}>"

    def save_replay(self, path: str | Path) -> None:
        """Write the run as one HTML file that replays it. Raises MedusaError, also without a trace."""
        if self.trace is None:
            raise MedusaError("the result holds no steps to replay: call generate(..., trace=True)")
        write_replay(self.trace, Path(path))

    def _repr_html_(self) -> str | None:
        """In a notebook, the linked view of the run; the plain text of the record where there is no trace."""
        return None if self.trace is None else replay_frame(self.trace)


def load(model: str | os.PathLike[str] = "", *, heads: str | os.PathLike[str] = "", **options: Any) -> Engine:
    """Load a model with its heads and tokenizer, as ``--model`` and ``--heads`` do.

    ``model`` and ``heads`` are folders or hub names; without them it is the embedded model. ``options`` are
    the other fields of ``LoadConfig``, such as ``dtype="float32"`` (or torch's own) and ``device="cpu"``.
    Step times that the command line or the page has measured on this machine choose the tree "auto".
    Raises MedusaError that names what is missing or does not fit.
    """
    for name, value in (("model", model), ("heads", heads)):
        if not isinstance(value, str | os.PathLike):
            raise MedusaError(
                f"{name} is a {type(value).__name__}: load takes a folder or a hub name; with a model of "
                "transformers' own call load_medusa_heads(model, HEADS) and medusa_generate"
            )
    # A folder may come as a Path, dtype and device as torch's own.
    for name in {"dtype", "device"} & set(options):
        options[name] = str(options[name]).removeprefix("torch.")
    engine = load_engine(_load_config({"model": str(model), "heads": str(heads), **options}))
    return with_known_step_times(engine)


def decode(engine: Engine, prompt: str | Sequence[int], **settings: Any) -> Generator[Step, None, None]:
    """Decode after ``prompt``, text or token ids: a generator of ``Step`` records.

    ``settings`` are those of the command line by name: ``method``, ``acceptance``, ``temperature``, ``tree``,
    ``epsilon``, ``max_new_tokens``, ``seed``, ``stop`` and so on. A step's tree and logits are valid until
    the next one; the last one carries the finish reason. Raises MedusaError: here for settings and text, at
    the first step for a prompt that does not fit the model.
    """
    config = _run_config(engine, settings)
    return engine.stream(_tokens(engine, prompt), config)


def generate(
    engine: Engine, prompt: str | Sequence[int], *, trace: bool = False, **settings: Any
) -> Generation:
    """Decode after ``prompt``, text or token ids, to the end; settings as for ``decode``.

    With ``trace`` the result carries the run's ``RunTrace``. Raises MedusaError.
    """
    config = _run_config(engine, settings)
    ids = _tokens(engine, prompt)
    check_prompt(ids, engine.target)
    builder = TraceBuilder(engine, config, ids) if trace else None
    summary = engine.summary(config)
    for step in engine.stream(ids, config):
        summary.add(step)
        if builder is not None:
            builder.add(step)
    return Generation(
        text=summary.text,
        token_ids=summary.token_ids,
        finish_reason=summary.finish_reason or "cancelled",
        steps=summary.steps,
        seconds=summary.seconds,
        tokens_per_step=summary.tokens_per_step,
        decode_tokens_per_second=summary.decode_tokens_per_second,
        end_to_end_tokens_per_second=summary.end_to_end_tokens_per_second,
        trace=RunTrace.model_validate(builder.finish()) if builder is not None else None,
    )


def _run_config(engine: Engine, values: dict[str, Any]) -> GenerationConfig:
    """Settings of a run, by default with the method whose weights are loaded.

    Raises MedusaError for unknown names, wrong types and values out of range.
    """
    if isinstance(values.get("stop"), str):
        values = {**values, "stop": (values["stop"],)}  # one text, not its characters
    config = _right_kind(GenerationConfig.of, {"method": AUTO_METHOD, **values})
    check_options(config)
    return engine.with_method(config)


def _load_config(values: dict[str, Any]) -> LoadConfig:
    """What to load. Raises MedusaError for unknown names, wrong types and values out of range."""
    known = [item.name for item in fields(LoadConfig)]
    if unknown := [name for name in values if name not in known]:
        raise MedusaError(f"no setting is called {unknown[0]!r:.30}: {name_fix(unknown[0], known)}")
    return _right_kind(LoadConfig, values)


def _right_kind(make: Callable[..., Settings], values: dict[str, Any]) -> Settings:
    try:
        return make(**values)
    except TypeError as error:
        given = ", ".join(f"{name}={value!r}" for name, value in values.items())
        raise MedusaError(f"a setting is of the wrong kind ({error}): {given}") from error


def _tokens(engine: Engine, prompt: str | Sequence[int]) -> list[int]:
    if isinstance(prompt, str):
        return engine.encode(prompt)
    try:
        tokens = list(prompt.tolist() if hasattr(prompt, "tolist") else prompt)  # of torch or numpy
        if not isinstance(prompt, bytes | bytearray) and bool not in map(type, tokens):
            return [operator.index(token) for token in tokens]
    except (TypeError, ValueError, RuntimeError):  # torch's own for a tensor without numbers
        pass
    raise MedusaError(
        f"the prompt is a {type(prompt).__name__}: give text, or token ids as a list of whole numbers"
    )
