"""Which of the further drafters that a model brings are to be loaded."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from medusa_core.checkpoints.sources import Sources
from medusa_core.drafters import drafters_of, owner_of
from medusa_core.errors import MedusaError


def needed(sources: Sources, methods: Collection[str] | None = None, *, warn: bool = False) -> Sources:
    """The sources with the model's own drafters that ``methods`` use; None: all of them.

    Weights that were named take the place of the model's own for the same method. A folder whose files are
    not known is left out, which ``warn`` says.
    """
    wanted = None if methods is None else {drafters_of(name)[0] for name in methods}
    taken = {_owner(folder) for folder in sources.named}
    own = []
    for folder in sources.own:
        name = _owner(folder)
        if name is None and warn:
            logging.getLogger(__name__).warning(
                "warning: %s holds no weights of a drafter that is known here: it is left out", folder
            )
        if name is not None and name not in taken and (wanted is None or name in wanted):
            own.append(folder)
    return replace(sources, own=tuple(own))


def _owner(folder: Path) -> str | None:
    try:
        return owner_of(folder)
    except MedusaError:
        return None
