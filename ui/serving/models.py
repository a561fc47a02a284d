"""The models of the page: the app's own, those that visitors may choose, and the one that each has chosen.

All that a visitor names passes the owner's policy here, and device and trust are always the owner's.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa_core.config import NO_HEADS, LoadConfig
from medusa_core.errors import MedusaError
from medusa_core.evaluation.computed_step import embedded_options
from medusa_core.evaluation.limits import NO_LIMIT, Limit
from medusa_core.files import folder_title
from medusa_core.library_messages import collector_paused
from medusa_core.loading.devices import place
from medusa_core.words import count_words
from ui.records.settings import Selection
from ui.records.updates import StopFlag, Update
from ui.records.words import Words, sentences
from ui.serving.model_loader import Loading, ModelCache, ModelLoader
from ui.serving.policy import AllowedModel, Policy

if TYPE_CHECKING:
    from medusa_core.engine import Engine

BUSY_SECONDS = 60  # after a failed measurement of step times, no run waits for another one

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelUpdate(Update):
    """`selection` comes once, when a model is ready to be used."""

    selection: Selection | None = None


class Models:
    """The models that runs use, apart from heads that visitors trained."""

    def __init__(self, load: LoadConfig, policy: Policy, *, elsewhere: bool = False) -> None:
        """`elsewhere`: runs are made in other processes, which read the models that visitors choose."""
        self.own_config = load
        self._policy = policy
        self._elsewhere = elsewhere
        self._engine: Engine | None = None
        self._tried_at = -float(BUSY_SECONDS)  # when measuring step times was last tried, in seconds
        self._cache = ModelCache()
        self._loader = ModelLoader(self._cache)

    def config_of(self, selection: Selection) -> LoadConfig:
        """What the visitor's model is loaded from."""
        return selection.model or self.own_config

    def badge(self, selection: Selection) -> str:
        """The visitor's model in one line: name, heads, size, device and dtype, as far as it is loaded."""
        if (engine := self.at_hand(selection)) is not None:
            source = self.config_of(selection)
            return badge_of(engine, name_of(source) if source.model else "")
        later = "each run reloads it" if self._elsewhere else "put away; the next run loads it again"
        state = "not loaded yet" if selection.model is None else later
        return f"{name_of(self.config_of(selection))} · {state}"

    def at_hand(self, selection: Selection) -> Engine | None:
        """The visitor's model; None if it would have to be loaded."""
        return self._engine if selection.model is None else self._cache.get(selection.model)

    def settings_brought(self, selection: Selection) -> Mapping[str, Mapping[str, Any]]:
        """The settings stored with the weights of the visitor's model, by drafter.

        Those of the embedded model are known before it is loaded, those of others are not.
        """
        if (engine := self.at_hand(selection)) is not None:
            return {name: draft.settings for name, draft in engine.drafts.items()}
        config = self.config_of(selection)
        if config.model or config.heads:
            return {}
        with suppress(MedusaError):  # the load reports a damaged file or a missing device
            return embedded_options(place(config.device, "float32").device.type)
        return {}

    def in_use(self, selection: Selection) -> AbstractContextManager[None]:
        """A context in which the visitor's model is not dropped."""
        return self._cache.in_use(self.config_of(selection))

    def own(self) -> Engine:
        """The app's own model; called only on the engine's thread, so that no two load at once."""
        if self._engine is None:
            with collector_paused():
                # Imported here: transformers takes seconds, and the page should be up before that.
                from medusa_core.loading.load import load_engine  # noqa: PLC0415

                self._engine = load_engine(self.own_config)
        return self._engine

    def measure(self, limit: Limit = NO_LIMIT) -> bool:
        """Measure the time of a step by tree size, for the tree "auto"; on the engine's thread.

        Returns False where the machine is too busy, so that another try is worthwhile.
        """
        if self._engine is not None:
            self._engine = _with_step_times(self._engine, limit)
        return not self._lacks_step_times

    def measure_now(self, limit: Limit) -> None:
        """Like ``measure``, for comparing speeds: twice if needed, then not soon again unless stopped."""
        if not self.measure(limit):
            self.measure(limit)
        if not limit.stopped:
            self._tried_at = time.monotonic()

    def wants_step_times(self, selection: Selection) -> bool:
        """Whether step times are missing, can be measured here, and no measurement has just failed."""
        own = selection.model is None and not self._elsewhere
        return own and self._lacks_step_times and time.monotonic() > self._tried_at + BUSY_SECONDS

    @property
    def _lacks_step_times(self) -> bool:
        from medusa_core.evaluation.step_times import lacks_step_times  # noqa: PLC0415 - imports torch

        return self._engine is not None and lacks_step_times(self._engine)

    def ready(self, selection: Selection) -> Generator[Loading, None, Engine]:
        """The visitor's model for a run. One that was put away is loaded again, with progress messages."""
        if selection.model is not None:
            self._require(selection.model)
            engine = yield from self._loader.load(selection.model, StopFlag())
            assert engine is not None  # only a raised flag ends a load without a model
            if not self._elsewhere and (timed := _with_step_times(engine)) is not engine:
                engine = timed
                self._cache.add(selection.model, engine)
            return engine
        if self._engine is None:
            yield Loading(status="Loading the model…")
        return self.own()

    def in_dtype(self, selection: Selection, dtype: str) -> Engine:
        """A second copy of the visitor's model, in another dtype, for as long as the caller keeps it.

        Raises MedusaError as loading does, and where the owner decides on the dtype.
        """
        if not self._policy.free_choice:
            raise MedusaError(
                "the owner of this page has chosen the dtype: it is not measured in others here"
            )
        from medusa_core.loading.load import load_engine  # noqa: PLC0415 - transformers takes seconds

        source = replace(self.config_of(selection), dtype=dtype)
        return _with_step_times(load_engine(source))

    def choose(self, wish: LoadConfig, selection: Selection, flag: StopFlag) -> Generator[Update, None, None]:
        """Load what a visitor asks for. An error, or the flag, leaves their selection in place."""
        still = f"Still using {name_of(self.config_of(selection))}."
        yield from _errors_as_sentences(self._choose(wish, selection, flag), "Not loaded", still)

    def estimate(self, wish: LoadConfig, flag: StopFlag) -> Generator[Update, None, None]:
        """Say how much memory a visitor's wish would take, and load nothing large."""
        unknown = "The memory it needs cannot be estimated"
        yield from _errors_as_sentences(self._estimate(wish, flag), unknown, "")

    def wanted(self, wish: LoadConfig) -> LoadConfig | None:
        """What a visitor's wish names; None is the app's own model. Raises MedusaError if not allowed."""
        own, model = self.own_config, wish.model.strip()
        # Where others can reach the page, the owner also decides on the dtype.
        held = wish if self._policy.free_choice else own
        source = replace(
            own, model=model, heads=wish.heads.strip(), dtype=held.dtype, quantize=held.quantize,
            context=own.context if model == own.model else 0,  # a longer one is only for the app's own model
            capture=held.capture,
        )  # fmt: skip
        if source == own:
            return None
        self._require(source)
        return source

    def _require(self, source: LoadConfig) -> None:
        self._policy.require(AllowedModel(source.model, source.heads))

    def _choose(
        self, wish: LoadConfig, selection: Selection, flag: StopFlag
    ) -> Generator[Update, None, None]:
        source = self.wanted(wish)
        notes: tuple[str, ...] = ()
        if source is not None and not self._elsewhere:
            engine = yield from self._loader.load(source, flag)
            if engine is None:
                yield Update(status=Words("Cancelled; still using {0}.", name_of(self.config_of(selection))))
                return
            notes = engine.info.notes
        if source == selection.model:
            yield Update(status="This is the model in use.")
            return
        words = [Words("Now using {0}.", name_of(source or self.own_config))]
        words += [Words("Note: {0}.", note) for note in notes]
        if selection.engine or selection.choices:
            words.append(Words("What you made for the previous model, heads or a tree, is put away."))
        yield ModelUpdate(status=sentences(*words), selection=Selection(model=source))

    def _estimate(self, wish: LoadConfig, flag: StopFlag) -> Generator[Update, None, None]:
        source = self.wanted(wish) or self.own_config
        found = yield from self._loader.estimate(source, flag)
        words = "Cancelled." if found is None else f"{name_of(source)} {in_page(found.sentence())}."
        yield Update(status=words)


def _with_step_times(engine: Engine, limit: Limit = NO_LIMIT) -> Engine:
    """A copy of the engine with the step times that the tree "auto" needs, where they can be had."""
    # Imported here, since it imports torch.
    from medusa_core.evaluation.step_times import with_step_times  # noqa: PLC0415

    return with_step_times(engine, limit)


def name_of(source: LoadConfig) -> str:
    """A model's name before it is loaded."""
    name = source.model or ("" if source.heads == NO_HEADS else source.heads)
    return folder_title(Path(name)) if name else "embedded model"


def badge_of(engine: Engine, title: str = "") -> str:
    """A loaded model in one line; ``title`` is what its base is called where that says more."""
    info = engine.info
    heads = ", ".join(info.drafts) or "no Medusa heads"
    if info.own_drafts:
        count = len(info.own_drafts)
        heads += f" and {count} other drafter{'s' if count > 1 else ''}"
    name = "embedded model" if info.base == "embedded" else title or info.base
    forward = info.forward.partition(" (")[0]  # without the reason against another one
    size = f"{count_words(info.parameters)} parameters"
    parts = [name, heads, size, info.device, info.dtype, forward, info.extended]
    return " · ".join(filter(None, parts))


def in_page(words: str) -> str:
    """The words with flags replaced by the page's fields of the same name."""
    return re.sub(r"--(model|heads|dtype|quantize)\b", r"“\1”", words)


def _errors_as_sentences(
    updates: Generator[Update, None, None], before: str, after: str
) -> Generator[Update, None, None]:
    """The updates; an error becomes a sentence between ``before`` and ``after``."""
    try:
        yield from updates
    except MedusaError as error:
        words = f"{before}: {in_page(str(error)).rstrip('.')}. {after}"
        yield Update(status=words.strip(), problem=True)
    except Exception as error:
        log.exception("a model could not be loaded")
        words = f"{before} ({type(error).__name__}); the terminal has the details. {after}"
        yield Update(status=words.strip(), problem=True)
