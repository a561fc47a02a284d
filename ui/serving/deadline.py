"""How a run ends before it is done: its time is up, or Stop comes while its model is still being loaded."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from ui.records.updates import StopFlag, Update
from ui.serving.model_loader import Loading

GRACE_SECONDS = 20.0  # for a run to come to its end by itself, with what it has


class TimeLimit:
    """Watches a run's updates. After ``seconds``, None for never, the flag is raised for the run to end.

    The time in which a model is loaded does not count, nor what ``clock`` leaves out.
    """

    def __init__(
        self, flag: StopFlag, seconds: float | None, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._flag = flag
        self._seconds = seconds
        self._clock = clock
        self._started = clock()
        self._loading = False
        self._last = ""  # last status of the run
        self.words = ""  # message for the end of the run

    def over(self, update: Any) -> bool:
        """Whether the run is to be closed behind this update, since it does not end by itself."""
        if self._loading:
            self._started = self._clock()
        self._loading = isinstance(update, Loading)
        if self._loading and self._flag.stopped:
            self.words = "Stopped before the model was loaded."
            return True
        if self._seconds is None:
            return False
        if isinstance(update, Update):
            self._last = update.status or self._last
        late = self._clock() - self._started - self._seconds
        if late <= 0:
            self.words = ""
            return False
        self._flag.stopped = True
        closes = late > GRACE_SECONDS
        last = "" if closes else self._last  # it describes a run that goes on
        self.words = f"{last} Ended after {self._seconds:g} s, the longest that a run may take here.".strip()
        return closes
