"""Which of the further drafters that a model brings are to be loaded."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from medusa_core.checkpoints.sources import Sources
from medusa_core.config import AUTO_METHOD
from medusa_core.drafters import auto_method, drafters_of, owner_of, require_weights
from medusa_core.errors import MedusaError


def needed(sources: Sources, methods: Collection[str] | None = None, *, warn: bool = False) -> Sources:
    """The sources with the model's own drafters that ``methods`` use; None: all of them.

    Weights that were named take the place of the model's own for the same method. A folder whose files are
    not known is left out, which ``warn`` says. Raises MedusaError for a method whose weights are nowhere.
    """
    named = [_owner(folder) for folder in sources.named]
    brought = [_owner(folder) for folder in sources.own]
    there = [name for name in (*named, *brought) if name is not None]
    if methods is not None:
        methods = [auto_method(there) if name == AUTO_METHOD else name for name in methods]
        if None not in named:  # else reading these weights says what is wrong with them
            for asked in methods:
                require_weights(asked, there, sources.base_name)
    wanted = None if methods is None else {drafters_of(name)[0] for name in methods}
    own = []
    for folder, name in zip(sources.own, brought, strict=True):
        if name is None and warn:
            logging.getLogger(__name__).warning(
                "warning: %s holds no weights of a drafter that is known here: it is left out", folder
            )
        if name is not None and name not in named and (wanted is None or name in wanted):
            own.append(folder)
    return replace(sources, own=tuple(own))


def _owner(folder: Path) -> str | None:
    try:
        return owner_of(folder)
    except MedusaError:
        return None
