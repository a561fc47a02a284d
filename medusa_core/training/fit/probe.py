"""How fast this machine answers, trains and decodes with the actual model: the recipes themselves, in short.

A batch or two of answers, a few training steps and a few decoded tokens; nothing of it is kept.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from medusa_core.config import GenerationConfig
from medusa_core.errors import MedusaError
from medusa_core.evaluation.turns import measure_run
from medusa_core.loading.load import load_engine
from medusa_core.training.config import Medusa1Config
from medusa_core.training.fit.plan import Plan, Rates
from medusa_core.training.fit.settings import FitConfig
from medusa_core.training.fit.stages import answer_config, head_config, joint_config
from medusa_core.training.fit.timed import step_seconds
from medusa_core.training.loop import Progress
from medusa_core.training.self_distill import self_distill

OnProgress = Callable[[Progress], None]
_LONG_ENOUGH = 8.0  # seconds after which a part of the probe has seen enough
_STEPS = 7  # training steps at most; the first is not counted
_DECODED = 24


def probe(config: FitConfig, plan: Plan, folder: Path, watch: OnProgress) -> Rates:
    """Measure; uses and removes ``<folder>/probe``. Raises MedusaError as the recipes do."""
    started = time.perf_counter()
    place = folder / "probe"
    shutil.rmtree(place, ignore_errors=True)
    parts = 4 if config.joint else 3

    def done(part: int) -> None:
        watch(Progress("probe", part, parts, 0, 0.0))

    try:
        answer_rate, tokens_per_answer = _answers(config, plan, place)
        done(1)
        heads = _training(head_config(config, plan, place), place)
        done(2)
        joint = None
        if config.joint:
            # Without heads to start from, joint training would begin with a stage of its own.
            own = replace(joint_config(config, plan, place, Path()), start="", head_warmup="none")
            joint = _training(own, place)
            done(3)
        decoding, load_seconds = _decoding(config)
        done(parts)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return Rates(
        answers=answer_rate,
        tokens_per_answer=tokens_per_answer,
        heads=heads,
        joint=joint,
        decoding=decoding,
        load_seconds=load_seconds,
        probe_seconds=time.perf_counter() - started,
    )


def _answers(config: FitConfig, plan: Plan, place: Path) -> tuple[float, float]:
    """Tokens a second, and tokens an answer."""
    settings = answer_config(config, replace(plan, answers=2 * config.answer_batch))
    with closing(self_distill(replace(settings, out=str(place)))) as records:
        batches = tokens = 0
        for record in records:
            if record.step == batches:  # it is within a batch
                continue
            batches, tokens, rate = record.step, record.tokens, record.tokens_per_second
            if batches == record.steps or (tokens and tokens / rate > _LONG_ENOUGH):
                break
    if not tokens:
        raise MedusaError("the base wrote nothing in the probe: check that it writes text at all")
    return rate, tokens / (batches * config.answer_batch)


def _training(config: Medusa1Config, place: Path) -> float:
    """Training tokens a second."""
    return config.batch_tokens / step_seconds(config, place / "steps", _STEPS, _LONG_ENOUGH)


def _decoding(config: FitConfig) -> tuple[float, float]:
    """Tokens a second of plain decoding, and seconds to load the model."""
    before = time.perf_counter()
    engine = load_engine(config.load())
    loaded = time.perf_counter() - before
    begin = engine.require_tokenizer().eos_token_id
    settings = GenerationConfig(method="none", max_new_tokens=_DECODED, ignore_eos=True)
    measure_run(engine, [begin], settings)  # first calls pay for allocation and kernel selection
    measured = measure_run(engine, [begin], settings)
    return len(measured.tokens) / measured.seconds, loaded
