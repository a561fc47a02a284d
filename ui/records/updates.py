"""The records that pass between a run and the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from medusa_core.trace.run_record import RunRecord

T = TypeVar("T")


class StopFlag:
    """A flag that a visitor's Stop button raises; that visitor's run sees it between two steps.

    A button keeps one flag while its page is open, and each of its runs has its own: lowering the button's
    flag for the next run leaves the flags of earlier runs as they are.
    """

    def __init__(self, stopped: bool = False) -> None:
        self._stopped = stopped
        self._file: Path | None = None
        self._runs: list[StopFlag] = []

    @property
    def stopped(self) -> bool:
        """Whether it is raised, here or in a process that has a copy of it."""
        return self._stopped or (self._file is not None and self._file.exists())

    @stopped.setter
    def stopped(self, value: bool) -> None:
        self._stopped = value
        if self._file is not None:
            with suppress(FileNotFoundError):  # the run has just ended and taken the folder away
                self._file.touch() if value else self._file.unlink()
        if value:
            for run in list(self._runs):
                run.stopped = True

    @contextmanager
    def of_run(self) -> Iterator[StopFlag]:
        """A context with the flag of one run, which is raised with this one or by itself."""
        own = StopFlag()
        self._runs.append(own)
        try:
            if self.stopped:  # checked once it is in the list, so that no Stop is lost in between
                own.stopped = True
            yield own
        finally:
            self._runs.remove(own)

    @contextmanager
    def crossing(self) -> Iterator[None]:
        """A context in which a copy pickled into another process is raised with this one.

        Both look for a file in a private folder that is removed with the run.
        """
        with TemporaryDirectory(prefix="medusa-stop-", ignore_cleanup_errors=True) as folder:
            self._file = Path(folder) / "stop"
            self.stopped = self._stopped
            try:
                yield
            finally:
                self._stopped, self._file = self.stopped, None


def with_flag_of_run(work: Callable[..., Iterator[T]]) -> Callable[..., Iterator[T]]:
    """`work(flag, ...)` called with a button's flag and given a flag of its own run."""

    @wraps(work)
    def run(flag: StopFlag, *values: Any) -> Iterator[T]:
        with flag.of_run() as own:
            yield from work(own, *values)

    return run


@dataclass(frozen=True)
class Update:
    """One change of the page. None leaves that part as it is.

    `trace` comes once, with a finished run; `run_record` at the start of a run in the linked view, whose
    steps are added to it, and at its end.
    """

    messages: ClassVar[tuple[str, ...]] = ("message",)  # fields that are messages to a view: none is dropped
    message: str | None = None
    status: str | None = None
    badge: str | None = None
    trace: dict[str, Any] | None = None
    run_record: RunRecord | None = field(default=None, compare=False)
    problem: bool = False

    def joins(self, later: Update) -> bool:
        """Whether this and the next one may reach the page as one change. A problem is shown by itself."""
        return type(self) is type(later) and not self.problem and not later.problem

    def after(self, earlier: Sequence[Update]) -> Update:
        """All of them as one change: the newest value of each part, and the messages in order."""
        parts: dict[str, Any] = {}
        for name in vars(self):
            values = [getattr(update, name) for update in (*earlier, self)]
            parts[name] = several(values) if name in self.messages else newest(values)
        return replace(self, **parts)


def several(messages: Sequence[str | None]) -> str | None:
    """Messages to one view as a single message, which the view takes one by one."""
    said = [message for message in messages if message is not None]
    if len(said) < 2:
        return said[0] if said else None
    return f'{{"kind": "several", "messages": [{", ".join(said)}]}}'


def newest(values: Sequence[T | None]) -> T | None:
    """The last value that is not None."""
    return next((value for value in reversed(values) if value is not None), None)
