"""Loads models while runs go on: one at a time, each in its own thread; a load can be cancelled.

The thread ends with its load: each thread that computes gets a pool of workers from OpenMP, and a second pool
that stayed would slow down the engine's. A few models are kept, and dropped when memory is short.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from ui.records.updates import StopFlag, Update

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.loading.load import LoadProgress
    from medusa_core.loading.memory import MemoryEstimate

MOST_MODELS = 3
POLL_SECONDS = 0.2  # between two messages; a raised flag and a closed page are noticed as often
WAITING = "Waiting: another model is being loaded…"
STARTING = "Starting…"
T = TypeVar("T")
Say = Callable[[str], None]  # raises _GivenUp once the load was cancelled


@dataclass(frozen=True)
class Loading(Update):
    """A load's progress."""


class _GivenUp(Exception):  # noqa: N818 - not an error: it ends a load that was cancelled
    """Ends a load from within."""


class ModelCache:
    """Models by what they are loaded from, so that visitors who choose the same one share it. Thread-safe.

    The least recently used model is dropped first, but never one that a run is using.
    """

    def __init__(self, most: int = MOST_MODELS) -> None:
        self._most = most
        self._models: OrderedDict[LoadConfig, Engine] = OrderedDict()
        self._users: Counter[LoadConfig] = Counter()
        self._lock = threading.Lock()

    def add(self, source: LoadConfig, engine: Engine) -> None:
        """Keep a model, dropping others if there are too many."""
        with self._lock:
            self._models[source] = engine
            self._models.move_to_end(source)
            while len(self._models) > self._most and (oldest := self._unused(but=source)):
                del self._models[oldest]

    def get(self, source: LoadConfig) -> Engine | None:
        """The model, if it is there; that counts as use."""
        with self._lock:
            if source in self._models:
                self._models.move_to_end(source)
            return self._models.get(source)

    @contextmanager
    def in_use(self, source: LoadConfig) -> Iterator[None]:
        """A context in which this model is not dropped, whether it is there already or comes meanwhile."""
        with self._lock:
            self._users[source] += 1
        try:
            yield
        finally:
            with self._lock:
                self._users[source] -= 1

    def drop_oldest(self) -> bool:
        """Drop the least recently used model; False when none can be dropped."""
        with self._lock:
            oldest = self._unused()
            return oldest is not None and self._models.pop(oldest) is not None

    def droppable_bytes(self) -> int:
        """Bytes that dropping every droppable model would free."""
        with self._lock:
            return sum(_bytes_of(self._models[source]) for source in self._models if not self._users[source])

    def _unused(self, but: LoadConfig | None = None) -> LoadConfig | None:
        return next((one for one in self._models if not self._users[one] and one != but), None)


def _bytes_of(engine: Engine) -> int:
    drafts = (tensor for draft in engine.drafts.values() for tensor in draft.tensors())
    return engine.target.weight_bytes + sum(tensor.nbytes for tensor in drafts)


class ModelLoader:
    """One load at a time. What is loaded goes into the cache."""

    def __init__(self, cache: ModelCache) -> None:
        self._cache = cache
        self._current: threading.Thread | None = None
        self._starting = threading.Lock()

    def load(self, source: LoadConfig, flag: StopFlag) -> Generator[Loading, None, Engine | None]:
        """The model, from the cache or else from its files; yields progress messages while it loads.

        Returns None soon after `flag` is raised, and closing this has the same effect: the load ends at its
        next progress message and leaves nothing behind. Raises what `load_engine` raises.
        """
        if (engine := self._cache.get(source)) is not None:
            return engine
        return (yield from self._follow(lambda say: self._load(source, say), flag))

    def estimate(self, source: LoadConfig, flag: StopFlag) -> Generator[Loading, None, MemoryEstimate | None]:
        """What a load would need, without loading anything large; otherwise as `load`."""

        def work(say: Say) -> MemoryEstimate:
            from medusa_core.loading.memory import estimate_memory  # noqa: PLC0415 - pulls in transformers

            say("Reading the model's description…")
            return estimate_memory(source)

        return (yield from self._follow(work, flag))

    def _follow(self, work: Callable[[Say], T], flag: StopFlag) -> Generator[Loading, None, T | None]:
        job = _Job(work)
        try:
            while not flag.stopped:
                self._start(job)
                if wait([job.found], POLL_SECONDS).done:
                    return job.found.result()
                yield Loading(status=job.words)
            return None
        finally:
            job.given_up = True

    def _start(self, job: _Job) -> None:
        """Start the job unless another one is going on. After a fork, a load's thread no longer runs."""
        with self._starting:
            if not job.started and (self._current is None or not self._current.is_alive()):
                self._current = threading.Thread(target=job.run, name="loader", daemon=True)
                job.started = True
                self._current.start()

    def _load(self, source: LoadConfig, say: Say) -> Engine:
        from medusa_core.loading.load import load_engine  # noqa: PLC0415 - transformers takes seconds

        # The model may have come into the cache while this load waited for its turn.
        if (engine := self._cache.get(source)) is not None:
            return engine
        say("Looking for room…")
        self._make_room(source)
        engine = load_engine(source, lambda stage: say(words_of(stage)))
        say("Loaded.")  # a load just given up must not push another model out of the cache
        self._cache.add(source, engine)
        return engine

    def _make_room(self, source: LoadConfig) -> None:
        """Drop models until this one fits, if possible; if not, the load says so."""
        from medusa_core.loading.memory import estimate_memory  # noqa: PLC0415 - pulls in transformers

        try:
            needed = estimate_memory(source)
        except MedusaError:  # the load reports the same error, or works anyway
            return
        if needed.total > needed.free + needed.spare + self._cache.droppable_bytes():
            return
        while not needed.fits and self._cache.drop_oldest():
            gc.collect()
            needed = estimate_memory(source)


def words_of(stage: LoadProgress) -> str:
    """A stage of a load in one line: what is being done, how far it is, and the memory it takes."""
    done = "…" if stage.done is None else f": {stage.done:.0%}"
    if stage.estimate is None or stage.name == "memory":
        return stage.message + done
    return f"{stage.message}{done} · {stage.estimate.sentence()}"


class _Job(Generic[T]):
    """One piece of work in a thread, and what is known of it outside."""

    def __init__(self, work: Callable[[Say], T]) -> None:
        self._work = work
        self.found: Future[T | None] = Future()
        self.words = WAITING
        self.started = False
        self.given_up = False

    def run(self) -> None:
        self.words = STARTING
        try:
            self.found.set_result(self._work(self._say))
        except _GivenUp:
            self.found.set_result(None)
        except Exception as error:
            self.found.set_exception(error)
        finally:
            if not self.found.done():  # a panic of a Rust library is not an Exception
                self.found.set_exception(RuntimeError("the loading ended without a result"))

    def _say(self, words: str) -> None:
        if self.given_up:
            raise _GivenUp
        self.words = words
