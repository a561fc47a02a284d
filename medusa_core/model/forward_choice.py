"""Which forward a target runs, and why; without torch, for those who only say it."""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.text.plural import counted


@dataclass(frozen=True)
class ForwardChoice:
    """The forward of a loaded model. ``why`` says what ruled others out."""

    native: bool = False  # in C
    why: str = ""
    threads: int | None = None  # where fewer than torch's own number are faster
    captured: bool = False  # its steps are replayed as graphs

    @property
    def exact(self) -> bool:
        """Whether a node of a tree gets the bits that its token gets alone.

        Greedy Medusa then gives plain decoding's tokens in the dtype of the weights.
        """
        return self.native

    def words(self) -> str:
        """For a person: ``forward in C, exact``."""
        parts = ["forward in C, exact" if self.native else "transformers' forward"]
        if self.captured:
            parts.append("captured as CUDA graphs, untested")
        if self.threads is not None:
            parts.append(counted(self.threads, "thread"))
        return ", ".join(parts) + (f" ({self.why})" if self.why else "")
