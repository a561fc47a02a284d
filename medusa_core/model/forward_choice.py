"""Which forward a target runs, and why; without torch, for those who only say it."""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.text.plural import counted


@dataclass(frozen=True)
class ForwardChoice:
    """The forward of a loaded model.

    ``exact``: a node of a tree gets the bits that its token gets alone, so that greedy Medusa gives plain
    decoding's tokens in the dtype of the weights. ``why`` says what ruled the rest out.
    """

    lean: bool = False
    packed: bool = False
    exact: bool = False
    why: str = ""
    threads: int | None = None  # where fewer than torch's own number are faster
    captured: bool = False  # its steps are replayed as graphs
    native: bool = False  # in C, where the rows are those of a step

    def words(self) -> str:
        """For a person: ``lean forward, packed weights, exact``."""
        parts = [
            "lean forward in C" if self.native else "lean forward" if self.lean else "transformers' forward",
            "packed weights" if self.packed else "",
            "exact" if self.exact else "",
        ]
        if self.captured:
            parts.append("captured as CUDA graphs, untested")
        if self.threads is not None:
            parts.append(counted(self.threads, "thread"))
        return ", ".join(filter(None, parts)) + (f" ({self.why})" if self.why else "")
