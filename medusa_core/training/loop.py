"""The training loop every recipe shares: steps, learning rate, checkpoints, metrics, progress line.

A recipe hands over its modules, its optimizers and a function that does one step's forward and
backward. The loop owns the run folder: ``config.json``, ``metrics.jsonl``, ``checkpoint.pt``
and, at the end, ``result.json``. A run that
is killed goes on from its last checkpoint with the same batches, since batches are a function of the step.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from medusa_core.errors import MedusaError


@dataclass(frozen=True)
class Schedule:
    """Learning-rate factor over a run: linear warm-up, constant, linear or cosine decay to zero."""

    steps: int
    warmup: int
    decay_share: float  # last share of the run over which the rate falls to zero
    shape: str = "linear"

    def factor(self, step: int) -> float:
        """Factor in (0, 1] for the step about to be taken."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        decay = max(1, round(self.steps * self.decay_share))
        left = min(1.0, (self.steps - step) / decay)
        return left if self.shape == "linear" else 0.5 * (1 - math.cos(math.pi * left))


class TrainRun:
    """One run folder and the state that must survive a kill."""

    def __init__(
        self,
        folder: Path,
        config: Any,
        modules: dict[str, torch.nn.Module],
        optimizers: list[torch.optim.Optimizer],
        schedule: Schedule,
        checkpoint_every: int,
    ) -> None:
        self.folder = folder
        self.step = 0
        self._modules = modules
        self._optimizers = optimizers
        self._schedule = schedule
        self._checkpoint_every = checkpoint_every
        self._peak = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
        folder.mkdir(parents=True, exist_ok=True)
        self._write_config(config)
        self._resume()

    def run(
        self,
        forward_backward: Callable[[int], dict[str, float]],
        evaluate: Callable[[], dict[str, float]],
        tokens_per_step: int,
        evaluate_every: int,
        clip: float = 1.0,
    ) -> None:
        """Take the remaining steps. ``forward_backward(step)`` leaves gradients and returns metrics."""
        parameters = [p for o in self._optimizers for g in o.param_groups for p in g["params"]]
        bar = tqdm(
            total=self._schedule.steps,
            initial=self.step,
            unit="step",
            mininterval=5,
            file=sys.stderr,
            dynamic_ncols=True,
        )
        started, first = time.perf_counter(), self.step
        while self.step < self._schedule.steps:
            self._set_rates()
            metrics = forward_backward(self.step)
            if not math.isfinite(metrics["loss"]):
                raise MedusaError(
                    f"loss is {metrics['loss']} at step {self.step}: lower the learning rate and "
                    f"resume from {self.folder / 'checkpoint.pt'}"
                )
            metrics["grad_norm"] = float(torch.nn.utils.clip_grad_norm_(parameters, clip))
            for optimizer in self._optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            self.step += 1
            done = self.step == self._schedule.steps
            rate = (self.step - first) * tokens_per_step / (time.perf_counter() - started)
            bar.set_postfix(loss=f"{metrics['loss']:.3f}", tok_s=f"{rate:.0f}", refresh=False)
            bar.update()
            if self.step % evaluate_every == 0:
                metrics |= evaluate()
            if self.step % 10 == 0 or done:
                self._log({"step": self.step, "tokens": self.step * tokens_per_step, **metrics})
            if self.step % self._checkpoint_every == 0 or done:
                self.save()
        bar.close()
        result = {"step": self.step, "tokens": self.step * tokens_per_step, **evaluate()}
        (self.folder / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")

    def save(self) -> None:
        """Write the checkpoint; the old one stays until the new one is whole."""
        state = {
            "step": self.step,
            "modules": {name: module.state_dict() for name, module in self._modules.items()},
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
        }
        partial = self.folder / "checkpoint.partial"
        torch.save(state, partial)
        partial.replace(self.folder / "checkpoint.pt")

    def _resume(self) -> None:
        file = self.folder / "checkpoint.pt"
        if not file.is_file():
            return
        state = torch.load(file, map_location="cpu", weights_only=True)
        for name, module in self._modules.items():
            module.load_state_dict(state["modules"][name])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step = state["step"]

    def _set_rates(self) -> None:
        factor = self._schedule.factor(self.step)
        for optimizer, peaks in zip(self._optimizers, self._peak, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * factor

    def _write_config(self, config: Any) -> None:
        record = asdict(config) if is_dataclass(config) else dict(config)
        text = json.dumps(record, indent=2, default=str)
        (self.folder / "config.json").write_text(text + "\n", encoding="utf-8")

    def _log(self, record: dict[str, float]) -> None:
        with open(self.folder / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({k: round(v, 6) for k, v in record.items()}) + "\n")
