"""The card of finished heads: how to use them, what they learned from, how often they are right, how fast.

Plain data to Markdown. ``report`` makes the data from a fit, the Train tab from what it measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from medusa_core.text.plural import counted


@dataclass(frozen=True)
class Card:
    """Lines of each part; a part without lines is left out."""

    title: str
    summary: Sequence[str]
    commands: Sequence[str]
    training: Sequence[str]
    accuracy: str  # text over which ``accuracies`` were counted
    accuracies: Sequence[Sequence[float]]
    tree: str
    speed: Sequence[str]

    def text(self) -> str:
        """As Markdown."""
        parts = {
            "Use": ("```bash", *self.commands, "```"),
            "Training": self.training,
            "Accuracy": tuple(self._accuracy()),
            "Speed": self.speed,
        }
        lines = [f"# {self.title}", *(("", *self.summary) if self.summary else ())]
        for name, part in parts.items():
            if part:
                lines += ["", f"## {name}", "", *part]
        return "\n".join(lines) + "\n"

    def _accuracy(self) -> Iterator[str]:
        if self.accuracies:
            yield f"How often each head's guess of a rank is the base's own next token, {self.accuracy}."
            yield from ("", "| head | 1st guess | 2nd | 3rd |", "|---|---|---|---|")
            for head, row in enumerate(self.accuracies, start=1):
                yield f"| {head} | " + " | ".join(f"{share:.3f}" for share in row[:3]) + " |"
            yield ""
        yield self.tree


def tree_line(nodes: int, depth: int, expected_length: float, *, timed: bool = True) -> str:
    """What is said of the tree beside heads, its size chosen by step times if any were ``timed``."""
    why = "the best size for the step times measured on this machine" if timed else "no size was timed"
    size = f"{counted(nodes, 'node')} with the root, depth {depth}"
    return f"Tree: {size}, {expected_length:.2f} tokens per step expected; {why}."


def use_commands(flags: str) -> list[str]:
    """How heads are used, by the flags that name them."""
    return [f'python -m medusa_core generate "Once upon a time" {flags}', f"python app.py {flags}"]
