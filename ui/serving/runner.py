"""Runs of all visitors, one at a time: on the engine's thread, or on a GPU that is borrowed for each.

Everything about a run besides its own work is here: its turn, its time limit, its errors as words for the
page, and the way of its updates from where they are computed to where they are shown.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import closing
from time import perf_counter
from typing import Any, TypeVar

from medusa_core.errors import MedusaError
from ui.records.settings import Selection, check_tokens
from ui.records.updates import StopFlag, Update
from ui.records.words import Words, joined
from ui.serving.engines import Engines
from ui.serving.model_loader import Loading
from ui.serving.policy import Policy
from ui.serving.turns import Place, TimeShare, Turns
from ui.serving.update_stream import Acks, EngineThread, UpdateStream, feed
from ui.serving.zero_gpu import borrowing, seconds_for

T = TypeVar("T")
log = logging.getLogger(__name__)
POLL_SECONDS = 0.2  # between two looks at Stop while a run waits for its turn
GRACE_SECONDS = 20.0  # for a run to end by itself, with what it has


class Request(ABC):
    """What a visitor asks for: a frozen record that can be pickled, as the GPU may be in another process."""

    selection: Selection  # the visitor's model, heads and tree
    share: TimeShare | None = None  # set where the run gives way to others; None: it keeps the engine

    def most_tokens(self) -> float:
        """The most tokens that the run makes. Raises MedusaError for what is refused before any waiting."""
        return math.inf

    def longest_run(self) -> float:
        """Tokens of its longest single run, if it has no limit of its own; the page's policy limits them."""
        return 0

    @abstractmethod
    def run(self, engines: Engines, flag: StopFlag) -> Generator[Any, None, None]:
        """The work, on the thread and in the process that computes. Raises MedusaError.

        The run may give way at each item; None is not an update, only such a point.
        """

    def broken_off(self, update: Update) -> Update | None:
        """The last update of a shown run that did not send its own end; None: the given one as it is."""
        return None


class Runner:
    """The engine's thread, the turns of the runs, and the lender of GPUs where there is one."""

    def __init__(self, engines: Engines, policy: Policy, gpu: Callable[..., Any] | None) -> None:
        """`policy` limits a run's time and tokens; `gpu` is what `ui.serving.zero_gpu.claim` gave."""
        self._engines = engines
        self._policy = policy
        self._thread = EngineThread()
        self.turns = Turns()
        # Whether runs are made in other processes, so that no model can be loaded here for them.
        self.borrows = gpu is not None
        self._work = self._compute if gpu is None else borrowing(gpu, self._compute)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result, computed on the engine's thread, between two steps of a run."""
        return self._thread.call(function, *arguments)

    def call_between(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result, computed between two runs, or within the run that calls this."""
        if self._thread.is_current:
            return function(*arguments)
        with self.turns.place() as place:
            place.wait()
            return self._thread.call(function, *arguments)

    def run(self, request: Request, flag: StopFlag, acks: Acks | None = None) -> Generator[Any, None, None]:
        """What the request yields, its errors as updates; ``acks`` set the pace where there are any."""
        shown = _Shown(request)
        try:
            check_tokens(request.longest_run(), self._policy.most_tokens)
            tokens = request.most_tokens()
            loaded = self._engines.models.at_hand(request.selection) is not None
            with (
                self._engines.models.in_use(request.selection),
                self.turns.place(gives_way=request.share is not None) as place,
            ):
                while not place.wait(POLL_SECONDS):
                    if flag.stopped:
                        yield Update(status=Words("Stopped before it began."))
                        return
                if request.share is not None:
                    request.share.begin()
                seconds = seconds_for(tokens, loaded=loaded) if self.borrows else self._policy.run_seconds
                with closing(self._updates(request, flag, acks, seconds)) as updates:
                    for update in updates:
                        if update is not None:
                            yield shown.passing(update)
                        if request.share is not None:
                            yield from _give_way(place, request.share, flag)
        except Exception as error:
            yield shown.passing(problem_of(error))
        if (last := shown.unfinished()) is not None:
            yield last

    def _updates(self, request: Request, flag: StopFlag, acks: Acks | None, seconds: Any) -> Any:
        """An iterator over the updates with ``close``. The run ends after ``seconds``; None: never."""
        updates = self._work(request, flag, seconds)
        if acks is None:
            return updates if self.borrows else self._thread.pulled(updates)
        stream = UpdateStream(acks)
        (feed if self.borrows else self._thread.feed)(updates, stream)
        return stream

    def _compute(self, request: Request, flag: StopFlag, seconds: float | None) -> Generator[Any, None, None]:
        """The run itself, on the thread and in the process that compute it."""
        limit = TimeLimit(flag, seconds, request.share.clock if request.share else perf_counter)
        try:
            with closing(request.run(self._engines, flag)) as updates:
                for update in updates:
                    yield update
                    if limit.over(update):
                        break
        except Exception as error:  # the lender's process would pass on only its type
            yield problem_of(error)
            return
        if limit.words:
            yield Update(status=limit.words)


def _give_way(place: Place, share: TimeShare, flag: StopFlag) -> Generator[Update, None, None]:
    """Let those who wait go first; meanwhile say how the time is shared, and that Stop was noticed."""
    if not share.slice_is_over or not (ahead := place.move_back()):
        return
    share.leave(ahead)
    said = ""
    while not place.wait(POLL_SECONDS):
        stops = Words("Stopping at its next turn, with what was done so far")
        words = joined(" · ", [stops if flag.stopped else Words("Paused for another run"), share.words])
        if words != said:
            said = words
            yield Update(status=words)
    share.come_back()


def problem_of(error: Exception) -> Update:
    """An error in words for the page; the app goes on."""
    if isinstance(error, MedusaError):
        return Update(status=as_sentence(str(error)), problem=True)
    log.error("a run failed", exc_info=error)
    words = f"The run failed ({type(error).__name__}); the terminal has the details."
    return Update(status=words, problem=True)


def as_sentence(words: str) -> str:
    """The words with a capital at their beginning, unless they begin with a name or a path."""
    return words[:1].upper() + words[1:] if words.partition(" ")[0].isalpha() else words


class _Shown:
    """Whether the page shows a run that has not ended, and so must be sent an end even after an error."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._live = False
        self._words = ""

    def passing(self, update: Any) -> Any:
        """The update, changed where it ends a run that is being shown."""
        if not isinstance(update, Update):
            return update
        self._words = update.status or self._words
        if self._live and update.problem:
            self._live = False
            return self._request.broken_off(update) or update
        self._live = (self._live or update.message is not None) and update.trace is None
        return update

    def unfinished(self) -> Update | None:
        """The last update for the page where the run has not said that it ended."""
        return self._request.broken_off(Update(status=self._words)) if self._live else None


class TimeLimit:
    """Watches a run's updates. After ``seconds``, None for never, the flag is raised for the run to end.

    Neither the time of loading a model counts nor what ``clock`` leaves out.
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
        """Whether to close the run after this update, since it does not end by itself."""
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
