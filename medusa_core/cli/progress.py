"""Progress bars of trainings; while they are shown, Ctrl-C and SIGTERM end a training between two steps."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from medusa_core.cli.signals import stop_by

if TYPE_CHECKING:
    from medusa_core.training.loop import Progress


def show_progress(records: Generator[Progress, None, None]) -> Progress:
    """Show a training's records until its end; return the last one.

    A signal closes ``records`` after a step, and the training then saves a checkpoint. Raises
    KeyboardInterrupt then.
    """
    with StageBars() as bars, closing(records):
        for record in records:
            bars.update(record)
    return record


@contextmanager
def going_on_later(out: str) -> Iterator[None]:
    """Tell a person who stops what is within that the folder ``out`` keeps it."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"{out} keeps what is done: the same command goes on from there", file=sys.stderr)
        raise


class StageBars:
    """A bar for each stage on standard error, with throughput, loss and the time left.

    From entering to leaving it, a signal is heard at the next record.
    """

    _bar: tqdm | None = None
    _stage = ""
    _stop: KeyboardInterrupt | None = None

    def __enter__(self) -> StageBars:
        self._before: dict[int, Any] = {
            number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._close()  # ends the bar's line, so that an error stands on the next

    def update(self, record: Progress) -> None:
        """Show a record. Raises KeyboardInterrupt when a signal came since the last one."""
        if self._bar is None or record.stage != self._stage:
            self._close()
            self._stage = record.stage
            self._bar = tqdm(
                total=record.steps,
                initial=max(0, record.step - 1),  # a resumed run does not count what was done before
                desc=record.stage,
                mininterval=1,
                miniters=0,  # a record within a step, as of answers being written, moves the figures
                file=sys.stderr,
                dynamic_ncols=True,
                disable=os.environ.get("LOCAL_RANK", "0") != "0",
            )
        self._bar.update(max(0, record.step - self._bar.n))
        words = {}
        if record.tokens_per_second:
            words = {"tokens": f"{record.tokens:,}", "tok/s": f"{record.tokens_per_second:.0f}"}
        if "loss" in record.metrics:
            words["loss"] = f"{record.metrics['loss']:.3f}"
        if words:
            self._bar.set_postfix(words, refresh=record.step == record.steps)
        if self._stop is not None and record.folder is None:  # a folder means that this training is done
            raise self._stop

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar = None

    def _ask(self, number: int, _frame: object) -> None:
        self._stop = stop_by(number)
        if number == signal.SIGINT:  # launchers may send SIGTERM several times
            signal.signal(number, self._before[number])
        print("\nstopping after this step; Ctrl-C once more stops at once", file=sys.stderr)
