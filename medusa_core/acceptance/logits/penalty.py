"""The contextual penalty: tokens of the recent text become less likely, so that long texts repeat less.

The logit of each distinct token among the last W tokens is divided by θ where it is positive and multiplied
by θ where it is negative; a token that stands there several times is penalised once. The window is that of
the text a logit continues. For a node of a tree that is the committed text, the prompt included, and the
path from the root to the node itself, so every node gets the logits that plain decoding would have there.
TokenSwift (arXiv 2502.18890), §2.4.

N nodes · V vocabulary · C distinct tokens of the committed text's window · P tokens of the longest path
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from medusa_core.trees.token_tree import TokenTree


def weakened(logits: torch.Tensor, penalty: float) -> torch.Tensor:
    """The logits, each as if its token stood in the window."""
    return torch.where(logits > 0, logits / penalty, logits * penalty)


class ContextualPenalty:
    """The penalty of one run, which follows its text."""

    def __init__(self, penalty: float, window: int) -> None:
        """``window`` is at least 1."""
        self._penalty = penalty
        self._size = window
        self._window: TokenWindow | None = None
        self._paths: _Paths | None = None  # paths of the previous tree, which often has the same shape

    def begin(self, prompt: Sequence[int], device: torch.device) -> None:
        """The text so far is ``prompt``; its logits will lie on ``device``."""
        self._window = TokenWindow(self._size, prompt[-self._size :], device)

    def observe(self, tokens: Sequence[int]) -> None:
        """The text goes on with ``tokens``."""
        assert self._window is not None
        self._window.add(tokens)

    def after_text(self, logits: torch.Tensor) -> torch.Tensor:
        """``logits`` [V] after the text so far, penalised."""
        assert self._window is not None
        tokens = self._window.distinct()
        return logits.index_copy(0, tokens, weakened(logits[tokens], self._penalty))

    def after_nodes(self, logits: torch.Tensor, tree: TokenTree) -> torch.Tensor:
        """``logits`` [N, V] after each node of the tree, penalised."""
        assert self._window is not None
        if self._paths is None or self._paths.parents != tree.parents:
            self._paths = _Paths(tree.parents, tree.depths, self._size, logits.device)
        columns = self._window.distinct()
        before = logits.index_select(1, columns)  # [N, C]
        after = weakened(before, self._penalty)
        nodes, places = self._outgrown(tree.depths)
        if nodes:
            # Tokens that a long path has pushed out of its window keep their logits.
            where = columns.new_tensor([nodes, places])
            after[where[0], where[1]] = before[where[0], where[1]]
        found = logits.index_copy(1, columns, after)
        # A token of the path may also stand in the text before it: it then gets the same value twice, since
        # both are computed from the model's own logit.
        own = tree.tokens.to(logits.device)[self._paths.nodes]  # [N, P]
        return found.scatter_(1, own, weakened(logits.gather(1, own), self._penalty))

    def _outgrown(self, depths: Sequence[int]) -> tuple[list[int], list[int]]:
        """Nodes, each paired with the column of a committed token that lies outside its window."""
        assert self._window is not None
        lost = self._window.lost_after(max(depths) + 1)
        pairs = [
            (node, place)
            for node, depth in (enumerate(depths) if lost else ())
            for place, come in lost.items()
            if come <= depth + 1
        ]
        return [node for node, _ in pairs], [place for _, place in pairs]


class _Paths:
    """For each node of a tree the nodes whose tokens stand in its window: ``nodes`` [N, P]."""

    def __init__(
        self, parents: Sequence[int], depths: Sequence[int], window: int, device: torch.device
    ) -> None:
        self.parents = list(parents)
        longest = min(max(depths) + 1, window)
        rows: list[list[int]] = []
        for node, parent in enumerate(parents):
            rows.append([node, *(rows[parent] if parent >= 0 else ())][:longest])
        # Short paths are filled with the node itself, which is penalised anyway.
        filled = [row + row[:1] * (longest - len(row)) for row in rows]
        self.nodes = torch.tensor(filled, device=device)


class TokenWindow:
    """The last ``size`` tokens, the number of copies of each, and the distinct ones as a tensor.

    The work of an update is that of the tokens that come and go, however large the window is.
    """

    def __init__(self, size: int, tokens: Iterable[int], device: torch.device) -> None:
        """``tokens`` is the text so far; ``size`` is at least 1."""
        self.size = size
        self._last: deque[int] = deque(tokens, maxlen=size)
        self._copies = Counter(self._last)
        # Distinct tokens without gaps: where one leaves, the last one takes its place.
        self._distinct = list(self._copies)
        self._places = {token: place for place, token in enumerate(self._distinct)}
        self._tensor = torch.tensor(self._distinct, dtype=torch.long, device=device)
        self._changed: set[int] = set()  # places that the tensor does not have yet

    def __len__(self) -> int:
        return len(self._last)

    def add(self, tokens: Iterable[int]) -> None:
        """The text goes on with ``tokens``."""
        for token in tokens:
            if len(self._last) == self.size:
                self._forget(self._last[0])
            self._last.append(token)
            self._copies[token] += 1
            if token not in self._places:
                self._put(token, len(self._distinct))

    def distinct(self) -> torch.Tensor:
        """The distinct tokens [C], each once."""
        count = len(self._distinct)
        if count > len(self._tensor):
            room = self._tensor.new_zeros(min(self.size, 2 * count))
            room[: len(self._tensor)] = self._tensor
            self._tensor = room
        if self._changed:
            places = [place for place in self._changed if place < count]
            values = [self._distinct[place] for place in places]
            both = self._tensor.new_tensor([places, values])  # one transfer to the device
            self._tensor[both[0]] = both[1]
            self._changed.clear()
        return self._tensor[:count]

    def lost_after(self, more: int) -> dict[int, int]:
        """The places of ``distinct`` whose tokens leave the window within ``more`` tokens.

        By place, the number of new tokens after which the last copy has left the window, whatever they are.
        """
        copies: dict[int, int] = {}
        lost: dict[int, int] = {}
        free = self.size - len(self._last)
        for number, token in enumerate(islice(self._last, max(0, more - free)), start=1):
            copies[token] = copies.get(token, self._copies[token]) - 1
            if copies[token] == 0:
                lost[self._places[token]] = free + number
        return lost

    def _forget(self, token: int) -> None:
        self._copies[token] -= 1
        if self._copies[token]:
            return
        del self._copies[token]
        place, moved = self._places.pop(token), self._distinct.pop()
        if moved != token:
            self._put(moved, place)

    def _put(self, token: int, place: int) -> None:
        self._distinct[place : place + 1] = [token]
        self._places[token] = place
        self._changed.add(place)
