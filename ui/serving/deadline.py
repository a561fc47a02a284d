"""How a run ends before it is done: its time is up, or Stop comes while its model is still being loaded.

Knows nothing of what a run does.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from time import perf_counter
from typing import TypeVar

from ui.records.updates import StopFlag, Update
from ui.serving.model_loader import Loading

T = TypeVar("T")
GRACE_SECONDS = 20.0  # for a run to come to its end by itself, with what it has


def ended(
    items: Generator[T, None, None], flag: StopFlag | None, seconds: float | None
) -> Generator[T | Update, None, None]:
    """The items. After `seconds`, None for never, the flag is raised; what does not heed it is closed.

    The time in which a model is loaded does not count.
    """
    grace = GRACE_SECONDS if flag else 0.0
    flag = flag or StopFlag()
    started, late, last, loading = perf_counter(), -1.0, "", False
    with closing(items):
        for item in items:
            if loading:
                started = perf_counter()
            loading = isinstance(item, Loading)
            yield item
            if loading and flag.stopped:
                yield Update(status="Stopped before the model was loaded.")
                return
            if isinstance(item, Update):
                last = item.status or last
            late = -1.0 if seconds is None else perf_counter() - started - seconds
            if late > 0:
                flag.stopped = True
            if late > grace:
                last = ""  # it tells of a run that goes on
                break
    if late > 0:
        words = f"{last} Ended after {seconds:g} s, the longest that a run may take here."
        yield Update(status=words.strip())
