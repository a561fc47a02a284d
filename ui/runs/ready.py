"""Engine and settings of a run, from what the controls hold."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from medusa_core.config import GenerationConfig
from medusa_core.drafters import drafters_of, method
from medusa_core.drafters.medusa import NAME as MEDUSA
from medusa_core.drafters.medusa import medusa_draft
from ui.records.lanes import PLAIN_METHOD
from ui.records.settings import BY_BUDGET, LONGEST_RUN, YOURS, RunSettings, Selection, make_config, own_tree
from ui.records.updates import Update
from ui.records.words import Words
from ui.serving.engines import Engines
from ui.serving.runner import Request

if TYPE_CHECKING:
    from medusa_core.engine import Engine


class SettingsRequest(Request):
    """A request that the page's controls describe."""

    settings: RunSettings

    @property
    def selection(self) -> Selection:  # type: ignore[override]  # a field of other requests
        return self.settings.selection


def ready(
    engines: Engines, settings: RunSettings
) -> Generator[Update, None, tuple[Engine, GenerationConfig]]:
    """What the visitor should know while the model loads is yielded. Raises MedusaError."""
    config = make_config(settings, LONGEST_RUN)  # whether so many are allowed was asked before the run
    engine = yield from engines.ready(settings.selection, settings.heads)
    if config.method not in engine.methods():
        title = method(config.method).title
        yield Update(
            badge=Words("{0}: this model has no weights for it, so plain decoding, one token a step.", title)
        )
        # Plain decoding, which accepts nothing, so that the rule does not count.
        return engine, config.changed(method=PLAIN_METHOD, acceptance="match")
    if MEDUSA not in drafters_of(config.method):
        return engine, config
    if settings.tree == BY_BUDGET:
        config = config.changed(tree=medusa_draft(engine).budget_tree(int(settings.budget) - 1))
    elif settings.tree == YOURS:
        tree = own_tree(settings.selection)
        tree.check(medusa_draft(engine).heads.count)
        config = config.changed(tree=tree)
    return engine, config
