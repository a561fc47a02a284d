"""What one visitor has chosen: a model, heads they trained for it, a tree they made for those.

A frozen record in a `gr.State`, so it stays on the server and belongs to one visitor. It holds no weights: a
model is named by what it is loaded from, an engine by the id that the session gave it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from medusa_core.config import LoadConfig

YOURS = "yours"  # the entry of the Tree and Heads menus that stands for this record
DEFAULT = "default"
Entry = tuple[str, str]  # label and value of a menu's entry


@dataclass(frozen=True)
class Selection:
    """`engine` is an id of `Session.add_engine`, `choices` are rank tuples; empty: none of their own."""

    engine: str = ""
    label: str = ""  # the visitor's name for that engine's heads
    choices: tuple[tuple[int, ...], ...] = ()
    model: LoadConfig | None = None  # None: the model that the app was started with

    def with_model(self, model: LoadConfig | None) -> Selection:
        """Another model. Heads and tree go, since they were made for the model before it."""
        return Selection(model=model)

    def with_engine(self, engine: str, label: str) -> Selection:
        """Other heads. The tree goes, since it was grown for the heads before them."""
        return Selection(engine, label, model=self.model)

    def with_tree(self, choices: Iterable[Sequence[int]]) -> Selection:
        """Another tree for the same heads."""
        return replace(self, choices=tuple(tuple(choice) for choice in choices))

    def tree_entries(self) -> list[Entry]:
        """The Tree menu's entry for the visitor's own tree, when there is one."""
        nodes = len(self.choices) + 1
        return [(f"yours, from Trees: {nodes} nodes with the root", YOURS)] if self.choices else []

    def head_entries(self) -> list[Entry]:
        """The Heads menu: those of the app and, when there are any, the visitor's own."""
        own = [(f"yours: {self.label}", YOURS)] if self.engine else []
        return [("shipped with the model", DEFAULT), *own]
