"""The curves of a training run, collected from what its steps measure, over all of its stages. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ui.figures.training import Curves, LossPoint, ScorePoint

if TYPE_CHECKING:
    from medusa_core.training.loop import Metrics


class History:
    """Collects the curves of a run over its stages; steps go on counting where a stage ends."""

    def __init__(self) -> None:
        self._losses: list[LossPoint] = []
        self._scores: list[ScorePoint] = []
        self._stages: list[tuple[int, str]] = []
        self._offset = 0

    def begin(self, stage: str) -> None:
        """Another stage starts; an empty name leaves no mark."""
        self._offset = self._losses[-1].step if self._losses else 0
        if stage:
            self._stages.append((self._offset, stage))

    def add(self, step: int, metrics: Metrics) -> None:
        """What a step measured."""
        step += self._offset
        losses = _row(metrics, "loss")
        if losses:
            self._losses.append(LossPoint(step, losses, metrics.get("loss/base")))
        kinds = list(dict.fromkeys(name.split("/")[1] for name in metrics if name.startswith("heldout/")))
        if kinds:
            top1, top5 = (
                _means([_row(metrics, f"heldout/{kind}/{name}") for kind in kinds])
                for name in ("top1", "top5")
            )
            self._scores.append(ScorePoint(step, top1, top5))

    def curves(self) -> Curves:
        """What there is so far."""
        return Curves(tuple(self._losses), tuple(self._scores), tuple(self._stages))


def _row(metrics: Metrics, name: str) -> tuple[float, ...]:
    """The values `name/1`, `name/2` … of the heads."""
    found = [
        value
        for key, value in metrics.items()
        if key.startswith(f"{name}/") and key[len(name) + 1 :].isdigit()
    ]
    return tuple(found)


def _means(rows: list[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(sum(values) / len(values) for values in zip(*rows, strict=True))
