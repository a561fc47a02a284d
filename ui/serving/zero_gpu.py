"""Runs on a borrowed GPU: a ZeroGPU Space lends one for the length of a run, to a forked process of the app.

Everything that crosses is pickled: the request and what its run yields. The process may live
on and serve the next run, so it never sees what the app changes after the fork, and it has none of the app's
threads. The lender is the package ``spaces`` of Hugging Face; away from such a Space it is neither imported
nor needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from typing import Any

import gradio as gr

from medusa_core.errors import MedusaError
from ui.records.updates import StopFlag
from ui.serving.policy import borrows_gpu

# What is asked for, its flag, and the seconds it may take.
Work = Callable[[Any, StopFlag, float], Generator[Any, None, None]]

START_SECONDS = 10.0  # a process, the weights' way to the GPU, the prompt, the first slow steps
LOAD_SECONDS = 45.0  # for a model that the app has not read at its start
TOKENS_PER_SECOND = 20.0  # of plain decoding; a 7B model in transformers gives about this much or more
END_SECONDS = 5.0  # kept back, so that a run ends itself, with its trace, before the lender ends it
SHORTEST, LONGEST = 15, 110  # a visitor without an account has two minutes a day


def claim(environment: Mapping[str, str]) -> Callable[..., Any] | None:
    """The lender's decorator on a ZeroGPU Space, None elsewhere. To be called before torch meets CUDA.

    Raises MedusaError where the Space lends GPUs and the package that asks for them is missing.
    """
    if not borrows_gpu(environment):
        return None
    try:
        import spaces  # type: ignore[import-not-found]  # noqa: PLC0415 - it changes torch for the whole process, so nowhere but here
    except ImportError as error:
        raise MedusaError("this Space lends GPUs through the package spaces: install it") from error
    # The library stands in for a GPU only on this thread; transformers would read weights with several.
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    return spaces.GPU


def seconds_for(tokens: float, *, loaded: bool = True) -> int:
    """Whole seconds of GPU to ask for, for a run that makes at most ``tokens`` tokens.

    ``START_SECONDS`` + tokens / ``TOKENS_PER_SECOND``, and ``LOAD_SECONDS`` where the process has to read the
    model itself, kept between ``SHORTEST`` and ``LONGEST``. What a run does not need is given back; a short
    run waits less in the lender's queue.
    """
    seconds = START_SECONDS + tokens / TOKENS_PER_SECOND + (0.0 if loaded else LOAD_SECONDS)
    return round(min(max(seconds, SHORTEST), LONGEST))


def borrowing(gpu: Callable[..., Any], work: Work) -> Work:
    """``work`` on a GPU that each run borrows for the seconds it is given; its flag reaches it there.

    To be called before the launch: the Space looks for such work then. A run raises MedusaError with the
    lender's words where it has no GPU to give, or takes it back.
    """
    lent = gpu(duration=_seconds)(work)

    def run(request: Any, flag: StopFlag, seconds: float) -> Generator[Any, None, None]:
        with flag.crossing():
            try:
                yield from lent(request, flag, seconds - END_SECONDS)
            except gr.Error as error:
                raise MedusaError(f"{error.title}: {error.message}") from error

    return run


def _seconds(request: Any, flag: StopFlag, seconds: float) -> int:
    """What to ask for; the lender calls this with the run's own arguments."""
    return round(seconds + END_SECONDS)
