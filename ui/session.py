"""The only bridge between page and engine: runs the model of one visitor at a time.

What all visitors share is here (the models, the place of the runs); what belongs to a run lives in the
generator that serves it. Knows the messages of the views, but no component and no event of the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from medusa_core.acceptance import rule_names
from medusa_core.config import NO_HEADS, GenerationConfig, LoadConfig
from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError
from medusa_core.trees.tree import published_trees
from ui.components.decode_view import told_to_the_end
from ui.records.conversation import Talk, check_message
from ui.records.examples import ASSETS
from ui.records.selection import DEFAULT, YOURS, Chosen
from ui.records.settings import BY_BUDGET, check_prompt, make_config, own_tree
from ui.records.updates import StopFlag, Update, told
from ui.runs.chat import chat_notice, chat_run
from ui.runs.compare import Contest
from ui.runs.conversation_cache import ReadShelf
from ui.runs.decode import decode_run
from ui.serving.engine_cache import EngineShelf
from ui.serving.kept_runs import KeptRuns
from ui.serving.models import Models, badge_of
from ui.serving.page_channel import PageChannel
from ui.serving.policy import Policy
from ui.serving.runner import RunPlace

if TYPE_CHECKING:
    from medusa_core.engine import Engine

T = TypeVar("T")
PLAIN_METHOD = "none"
PLAIN = "This model has no Medusa heads: plain decoding, one token a step."


class Session:
    """One app's engines: the models, the heads that visitors trained, and the lock of the runs."""

    def __init__(
        self,
        load: LoadConfig,
        assets: Path = ASSETS,
        policy: Policy | None = None,
        gpu: Callable[..., Any] | None = None,
    ):
        """`gpu` is what `ui.serving.zero_gpu.claim` gave: unless None, runs borrow their GPU through it."""
        self.assets = assets
        self.policy = policy or Policy()
        self.channel = PageChannel()
        self.runs = KeptRuns()
        self._load = load
        self._models = Models(load, self.policy, elsewhere=gpu is not None)
        self._own = EngineShelf()
        self._read = ReadShelf()
        self._place = RunPlace(self._begun, self.policy.run_seconds, gpu)

    @property
    def busy(self) -> bool:
        """Whether a run has the engine now."""
        return self._place.busy

    @property
    def load_config(self) -> LoadConfig:
        """What the app's own model is loaded from."""
        return self._load

    def load_config_of(self, chosen: Chosen) -> LoadConfig:
        """What the visitor's model is loaded from."""
        return self._models.config_of(chosen)

    # ---- what the page offers --------------------------------------------------------------------------

    def badge(self, chosen: Chosen | None = None) -> str:
        """The visitor's model in one line: name, heads, size, device and dtype, or what will be loaded."""
        return self._models.badge(chosen or Chosen())

    def rule_names(self) -> list[str]:
        """The acceptance rules there are."""
        return rule_names()

    def tree_choices(self) -> list[tuple[str, str]]:
        """(label, name) of each tree; the first is the default."""
        published = [(f"published: {name}", name) for name in published_trees()]
        return [("shipped with the heads", DEFAULT), ("by node budget", BY_BUDGET), *published]

    def accuracies_file(self, chosen: Chosen) -> Path | None:
        """The accuracies that lie beside the heads of the visitor's model, when both are on this disk."""
        from medusa_core.checkpoints.locate import beside_heads, embedded_model  # noqa: PLC0415
        from medusa_core.checkpoints.names import ACCURACIES_NAME  # noqa: PLC0415
        from medusa_core.checkpoints.sources import heads_folder  # noqa: PLC0415

        load = self.load_config_of(chosen)
        if load.heads == NO_HEADS:
            return None
        folder = Path(load.model) if load.model else embedded_model()
        heads = Path(load.heads) if load.heads else heads_folder(folder)
        return beside_heads(heads, ACCURACIES_NAME) if heads else None

    def model_at_hand(self, chosen: Chosen) -> Engine | None:
        """The visitor's model, unless it would have to be loaded."""
        return self._models.at_hand(chosen)

    def own_engine(self, chosen: Chosen) -> Engine:
        """The engine that a visitor made. Raises MedusaError when it is gone."""
        return self._place.call(self._own.get, chosen.engine).engine

    # ---- choosing a model ------------------------------------------------------------------------------

    def choose_model(self, wish: LoadConfig, chosen: Chosen, flag: StopFlag) -> Generator[Update, None, None]:
        """Load what a visitor wishes for, beside the runs of others; a last `ModelUpdate` has their choice.

        An error is said, and like the flag it leaves what they have `chosen` in place.
        """
        yield from self._models.choose(wish, chosen, flag)

    def estimate_model(self, wish: LoadConfig, flag: StopFlag) -> Generator[Update, None, None]:
        """Say how much memory a visitor's wish would take, and load nothing large."""
        yield from self._models.estimate(wish, flag)

    # ---- running ---------------------------------------------------------------------------------------

    def load(self) -> str:
        """Load the engine, if that has not happened yet, and say what it is; an error is said as well."""
        if self._place.borrows:
            return self.badge()  # loaded at the start, or by each run that finds it missing
        return self._badge_after(lambda: self._place.call(self._models.own))

    def load_at_start(self) -> str:
        """As `load`, but on the caller's thread: only the one that claimed the GPUs can load for them."""
        return self._badge_after(self._models.own)

    def _badge_after(self, load: Callable[[], Engine]) -> str:
        try:
            load()
        except MedusaError as error:
            return f"not loaded: {error}"
        return self.badge()

    def decode(self, prompt: str, settings: dict[str, Any], flag: StopFlag) -> Generator[Update, None, None]:
        """One run for the Decode tab: a begin, a step each and an end message."""

        def tokens() -> int:
            check_prompt(prompt)
            return make_config(settings).max_new_tokens

        run = self._run("_decode", (prompt, settings, flag), chosen_in(settings), flag, tokens)
        yield from told_to_the_end(run)

    def chat(
        self, text: str, talk: Talk, settings: dict[str, Any], flag: StopFlag
    ) -> Generator[Update, None, None]:
        """One reply for the Decode tab's chat: as ``decode``, and the last update has the new ``talk``."""

        def tokens() -> int:
            check_message(text, talk)
            return make_config(settings).max_new_tokens

        run = self._run("_chat", (text, talk, settings, flag), chosen_in(settings), flag, tokens)
        yield from told_to_the_end(run)

    def chat_notice(self, chosen: Chosen) -> str:
        """What a visitor should know before chatting with their model; nothing while it is put away."""

        def look() -> str:
            there = chosen.model is not None or self._place.borrows
            engine = self._models.at_hand(chosen) if there else self._models.own()
            return chat_notice(engine) if engine else ""

        try:
            return self._place.call(look)
        except MedusaError as error:
            return str(error)

    def compare(
        self, prompt: str, settings: dict[str, Any], repetitions: int, flag: StopFlag
    ) -> Iterator[Update]:
        """Medusa and plain decoding in turn, `repetitions` times each, then the race message."""

        def tokens() -> int:
            check_prompt(prompt)
            return 2 * repetitions * make_config(settings).max_new_tokens

        arguments = (prompt, settings, repetitions, flag)
        yield from self._run("_compare", arguments, chosen_in(settings), flag, tokens)

    def on_engine(
        self,
        work: Callable[[Engine], Generator[T, None, None]],
        chosen: Chosen | None = None,
        flag: StopFlag | None = None,
    ) -> Iterator[T | Update]:
        """Any other run: what `work(engine)` yields, computed on the engine's thread while no other run is.

        The engine is loaded first where that has not happened; it has the visitor's own heads where `chosen`
        names some. Errors end the run with an `Update` that says so, exactly as in `decode`; where runs have
        an end, `flag` is raised for it. On a borrowed GPU `work` has to be a function that can be pickled.
        """
        chosen = chosen or Chosen()
        yield from self._run("_with_engine", (work, chosen), chosen, flag or StopFlag(), lambda: math.inf)

    def add_engine(self, label: str, source: LoadConfig | Engine) -> str:
        """Keep one more engine beside the shared one and return its id, for `Chosen.with_engine`.

        `source` is what to load, its folders made by the app and never named by a visitor, or an engine that
        is there already, such as a `dataclasses.replace` of another one, which shares the weights. Waits for
        a run that is going on, unless called from within one. Raises MedusaError when loading fails.
        """
        return self._place.call_between(self._add_engine, label, source)

    def _add_engine(self, label: str, source: LoadConfig | Engine) -> str:
        if isinstance(source, LoadConfig):
            from medusa_core.loading.load import load_engine  # noqa: PLC0415 - transformers takes seconds

            source = load_engine(source)
        return self._own.add(label, source)

    def _run(
        self, name: str, arguments: Sequence[Any], chosen: Chosen, flag: StopFlag, tokens: Callable[[], float]
    ) -> Generator[Any, None, None]:
        """A run of one of the methods below; errors become a visible line, and the app goes on.

        `tokens` looks at what was asked for, before any waiting, and says how many tokens that is at most.
        """

        def items() -> Generator[Any, None, None]:
            most, loaded = tokens(), self._models.at_hand(chosen) is not None
            with self._models.in_use(chosen):
                yield from self._place.run(name, arguments, flag, most, loaded=loaded)

        yield from told(items())

    def _begun(self, name: str, arguments: Sequence[Any]) -> Generator[Any, None, None]:
        return getattr(self, name)(*arguments)

    def _decode(self, prompt: str, settings: dict[str, Any], flag: StopFlag) -> Generator[Update, None, None]:
        engine, config = yield from self._ready(settings)
        yield from decode_run(engine, engine.encode(prompt), config, flag)

    def _chat(
        self, text: str, talk: Talk, settings: dict[str, Any], flag: StopFlag
    ) -> Generator[Update, None, None]:
        engine, config = yield from self._ready(settings)
        yield from chat_run(engine, self._read, text, talk, config, flag)

    def _compare(
        self, prompt: str, settings: dict[str, Any], repetitions: int, flag: StopFlag
    ) -> Generator[Update, None, None]:
        engine, ours = yield from self._ready(settings)
        if ours.method == PLAIN_METHOD:
            raise MedusaError(
                f"{engine.info.base} has no Medusa heads, so there is nothing to compare with plain "
                "decoding: choose a model with heads"
            )
        yield from Contest.of(engine, engine.encode(prompt), ours).run(repetitions, flag)

    def _with_engine(
        self, work: Callable[[Engine], Generator[T, None, None]], chosen: Chosen
    ) -> Generator[T | Update, None, None]:
        yield from work((yield from self._chosen_engine(YOURS if chosen.engine else DEFAULT, chosen)))

    def _ready(self, settings: dict[str, Any]) -> Generator[Update, None, tuple[Engine, GenerationConfig]]:
        """Engine and settings of a run; what the visitor should know while the model loads is yielded."""
        config, chosen = make_config(settings), chosen_in(settings)
        engine = yield from self._chosen_engine(settings.get("heads", DEFAULT), chosen)
        if config.method not in engine.methods():
            # Plain decoding, which accepts nothing, so that the rule does not count.
            return engine, config.changed(method=PLAIN_METHOD, acceptance="match")
        if config.method != MEDUSA:
            return engine, config
        if settings["tree"] == BY_BUDGET:
            config = config.changed(tree=medusa_draft(engine).budget_tree(int(settings["budget"]) - 1))
        elif settings["tree"] == YOURS:
            tree = own_tree(chosen)
            tree.check(medusa_draft(engine).heads.count)
            config = config.changed(tree=tree)
        return engine, config

    def _chosen_engine(self, heads: str, chosen: Chosen) -> Generator[Update, None, Engine]:
        if heads == YOURS and not chosen.engine:
            raise MedusaError("there are no heads of yours: train some, or choose those shipped")
        if heads == YOURS:
            own = self._own.get(chosen.engine)
            yield Update(badge=f"your heads “{own.label}” · {badge_of(own.engine)}")
            return own.engine
        engine = yield from self._models.ready(chosen)
        yield Update(badge="" if engine.drafts else PLAIN)
        return engine


def chosen_in(settings: dict[str, Any]) -> Chosen:
    """What the visitor has chosen, by the settings of their run."""
    return settings.get("chosen") or Chosen()
