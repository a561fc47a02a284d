"""The training loop every recipe shares: steps, learning rates, checkpoints, metrics, stopping.

A recipe hands over the module it trains, its optimizers and a function that computes one forward pass's
loss. The loop is a generator of ``Progress`` records: the command line turns them into a bar, the app into
curves, and closing it saves a checkpoint and stops. It owns the run folder: ``config.json``,
``metrics.jsonl``, ``checkpoint.pt`` with the one before it and, at the end, ``result.json``. A run that is
killed goes on from its last checkpoint with the same batches and the same dropout, since both are functions
of the step; where that one is damaged, from the one before. accelerate spreads it over processes; every
process takes its share of each batch.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path

import torch
from accelerate import Accelerator

from medusa_core.errors import MedusaError
from medusa_core.training import checkpoint, run_folder
from medusa_core.training.config import RunConfig
from medusa_core.training.divergence import DivergenceLimit, LossTracker

Metrics = dict[str, float]
Losses = dict[str, torch.Tensor]
End = Callable[[], bool]  # asked before the first step and after each: whether the run ends here
LOG_EVERY = 10
# Settings that may differ when a run is resumed.
_FREE_TO_CHANGE = {
    "evaluate_every", "checkpoint_every", "checkpoint_minutes", "track", "out", "compile", "data_root",
}  # fmt: skip


def never() -> bool:
    """The end of a run that takes all of its steps."""
    return False


@dataclass(frozen=True)
class Progress:
    """How far a recipe is, and what this step measured; ``folder`` comes with the last record."""

    stage: str
    step: int
    steps: int
    tokens: int
    tokens_per_second: float
    metrics: Metrics = field(default_factory=dict)
    folder: Path | None = None


@dataclass(frozen=True)
class Schedule:
    """Learning-rate factor over a run: linear warm-up, constant, linear or cosine decay to zero.

    A function of the step alone, so that a resumed run may be longer. transformers' schedules start at a
    rate of zero, so their first step would change nothing.
    """

    steps: int
    warmup: int
    decay_share: float  # last share of the run over which the rate falls to zero, after the warm-up
    shape: str = "linear"

    def factor(self, step: int) -> float:
        """Factor in (0, 1] for the step about to be taken."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        decay = max(1, min(round(self.steps * self.decay_share), self.steps - self.warmup))
        left = min(1.0, (self.steps - step) / decay)
        return left if self.shape == "linear" else 0.5 * (1 - math.cos(math.pi * left))


class TrainRun:
    """One run folder and the state that must survive a kill: trained weights, optimizers, the step."""

    def __init__(
        self,
        config: RunConfig,
        module: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        schedule: Schedule,
        accelerator: Accelerator,
    ) -> None:
        self.folder = Path(config.out)
        self.step = 0
        self._course: LossTracker | None = None  # history of the watched loss
        self.accelerator = accelerator
        self._config = config
        self._module = module
        self._optimizers = optimizers
        self._schedule = schedule
        self._peak = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
        self.folder.mkdir(parents=True, exist_ok=True)
        self._resume()
        self._write(run_folder.CONFIG, asdict(config))
        self.forward = accelerator.prepare(module) if accelerator.num_processes > 1 else module

    def steps(
        self,
        losses_of: Callable[[int, int], Losses],
        evaluate: Callable[[], Metrics],
        stage: str,
        watch: DivergenceLimit,
        clip: float = 1.0,
        end: End = never,
    ) -> Generator[Progress, None, None]:
        """Take the remaining steps. ``losses_of(step, pass)`` returns tensors, "loss" the one to minimise.

        ``end`` may end the run before its last step; it must say the same in all processes.
        Raises MedusaError when the loss is not finite, or the course of the watched one shows divergence.
        """
        parameters = [p for o in self._optimizers for g in o.param_groups for p in g["params"]]
        started, first = time.perf_counter(), self.step
        saved = started
        done = self.step >= self._schedule.steps
        # A result that is missing or damaged is measured anew.
        if (done and run_folder.result_of(self.folder) is None) or (not done and end()):
            done = True
            self._finish(evaluate())
        try:
            while not done:
                metrics = self._one_step(losses_of, parameters, clip)
                self._stop_if_diverged(metrics, watch)
                done = self.step >= self._schedule.steps or end()
                looks = done or self.step % self._config.evaluate_every == 0
                if looks:
                    metrics |= evaluate()
                if looks or self.step % LOG_EVERY == 0:
                    self._log(metrics)
                if done:
                    self._finish(metrics)
                elif self._checkpoint_due(saved):
                    self.save()
                    saved = time.perf_counter()
                rate = (self.step - first) * self._config.batch_tokens / (time.perf_counter() - started)
                handed_on = time.perf_counter()
                yield Progress(stage, self.step, self._schedule.steps, self._tokens, rate, metrics)
                started += time.perf_counter() - handed_on  # the run may be paused here
        except GeneratorExit:
            self.save()
            raise

    def _checkpoint_due(self, saved: float) -> bool:
        minutes = (time.perf_counter() - saved) / 60
        return self.step % self._config.checkpoint_every == 0 or minutes >= self._config.checkpoint_minutes

    def _finish(self, metrics: Metrics) -> None:
        self._write(run_folder.RESULT, {"step": self.step, "tokens": self._tokens, **metrics})
        self.save()

    def _one_step(
        self,
        losses_of: Callable[[int, int], Losses],
        parameters: list[torch.nn.Parameter],
        clip: float,
    ) -> Metrics:
        self._set_rates()
        # Each step draws its dropout from its own seed, so that a resumed run draws the same.
        torch.manual_seed(hash((self._config.seed, self.step, self.accelerator.process_index)) & 0x7FFFFFFF)
        sums: Losses = {}
        accumulate = self._config.accumulate
        for number in range(accumulate):
            last = number == accumulate - 1  # processes exchange gradients once a step, not once a pass
            with nullcontext() if last else self.accelerator.no_sync(self.forward):
                losses = losses_of(self.step, number)
                self.accelerator.backward(losses["loss"] / accumulate)
            for name, value in losses.items():
                sums[name] = sums.get(name, 0.0) + value.detach().float() / accumulate
        metrics = {name: float(value) for name, value in self.accelerator.reduce(sums, "mean").items()}
        if not math.isfinite(metrics["loss"]):
            raise MedusaError(f"loss is {metrics['loss']} at step {self.step}: {self._advice()}")
        metrics["grad_norm"] = float(torch.nn.utils.clip_grad_norm_(parameters, clip))
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return metrics

    def _stop_if_diverged(self, metrics: Metrics, watch: DivergenceLimit) -> None:
        self._course = LossTracker.after(self._course, metrics[watch.name])
        if self.step > self._schedule.warmup and (fault := self._course.fault(watch)):
            raise MedusaError(f"at step {self.step} {fault}: the run has diverged; {self._advice()}")

    def _advice(self) -> str:
        if checkpoint.exists(self.folder):
            return (
                f"lower the learning rate and choose another --out; {self.folder} keeps its last checkpoint"
            )
        return "lower the learning rate"

    @property
    def _tokens(self) -> int:
        return self.step * self._config.batch_tokens

    def save(self) -> None:
        """Write the checkpoint; the old one stays as the one before."""
        if self.accelerator.is_main_process:
            checkpoint.save(self.folder, self.step, self._course, self._module, self._optimizers)

    def _resume(self) -> None:
        main = self.accelerator.is_main_process
        if not checkpoint.exists(self.folder):
            run_folder.refuse_model(self.folder)
            if main:  # entries before an earlier run's first checkpoint will be logged again
                (self.folder / run_folder.METRICS).unlink(missing_ok=True)
            return
        self._require_same_config()
        found = checkpoint.load(self.folder, self._module, self._optimizers, main=main)
        if found is None:
            return
        self.step, self._course = found.step, found.course
        if main:
            run_folder.cut_metrics(self.folder, self.step)

    def _require_same_config(self) -> None:
        before = run_folder.settings_of(self.folder)
        now = json.loads(json.dumps(asdict(self._config), default=str))
        changed = {name for name in before.keys() & now.keys() if before[name] != now[name]}
        # A pretraining run can be lengthened, since its order of text does not depend on its length.
        free = _FREE_TO_CHANGE | ({"tokens"} if "max_tokens" in now else set())
        if name := min(changed - free, default=""):
            raise MedusaError(
                f"{self.folder} holds a run with {name} {before[name]!r}, now it is {now[name]!r}: "
                "choose another --out, or the old settings to go on"
            )

    def _set_rates(self) -> None:
        factor = self._schedule.factor(self.step)
        for optimizer, peaks in zip(self._optimizers, self._peak, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * factor

    def _write(self, name: str, record: dict) -> None:
        if self.accelerator.is_main_process:
            run_folder.write_record(self.folder / name, record)

    def _log(self, metrics: Metrics) -> None:
        if self.accelerator.trackers:
            self.accelerator.log(metrics, step=self.step)
        if self.accelerator.is_main_process:
            run_folder.append_metrics(self.folder, {"step": self.step, "tokens": self._tokens, **metrics})


def make_accelerator(config: RunConfig) -> Accelerator:
    """accelerate's view of the processes and, when asked for, its tracker.

    Raises MedusaError when the tracker is not installed.
    """
    if config.track == "none":
        return Accelerator()
    if find_spec(config.track) is None:
        raise MedusaError(
            f"cannot track with {config.track}, it is not installed: pip install {config.track}"
        )
    accelerator = Accelerator(log_with=config.track, project_dir=config.out)
    settings = {k: v for k, v in asdict(config).items() if isinstance(v, int | float | str | bool)}
    accelerator.init_trackers("medusa", settings)
    return accelerator
