"""The Train tab's curves: steps count on over the stages, kinds of text are averaged, every head is drawn."""

from __future__ import annotations

import pytest

from ui.figures.training import Curves, LossPoint, ScorePoint, all_curves
from ui.tabs.train.run import History


def test_history_goes_on_counting_over_stages_and_averages_kinds():
    history = History()
    history.begin("one")
    history.add(1, {"loss": 9.0, "loss/1": 4.0, "loss/2": 5.0, "grad_norm": 1.0})
    history.add(2, {"loss": 8.0, "loss/1": 3.0, "loss/2": 4.0})
    history.begin("two")
    heldout = {
        f"heldout/{kind}/{name}/{head}": value
        for kind, value in (("a", 0.2), ("b", 0.4)) for name in ("top1", "top5") for head in (1, 2)
    }  # fmt: skip
    history.add(1, {"loss": 1.0, "loss/base": 0.5, "loss/1": 2.0, "loss/2": 3.0} | heldout)
    curves = history.curves()
    assert curves.losses[-1] == LossPoint(3, (2.0, 3.0), 0.5)
    assert curves.stages == ((0, "one"), (2, "two"))
    assert curves.scores[0].step == 3
    assert curves.scores[0].top1 == pytest.approx((0.3, 0.3))


@pytest.mark.parametrize("dark", [False, True])
def test_the_figures_draw_every_head(dark):
    empty = all_curves(Curves(), dark)
    assert all(len(figure.data) == 0 and figure.layout.annotations for figure in empty)
    losses = tuple(LossPoint(i, (9.0 / i, 10.0 / i), 1.0 if i > 500 else None) for i in range(1, 1001))
    scores = tuple(ScorePoint(i, (i / 2000, 0.1), (i / 1000, 0.3)) for i in (250, 1000))
    loss, top1, top5 = all_curves(Curves(losses, scores, ((0, "one"), (500, "two"))), dark)
    assert [trace.name for trace in loss.data] == ["head 1", "head 2", "the model itself"]
    assert max(len(trace.x) for trace in loss.data) <= 120
    assert loss.data[0].x[-1] == 1000
    assert list(top1.data[0].y) == [0.125, 0.5]
    assert list(top5.data[1].y) == [0.3, 0.3]
