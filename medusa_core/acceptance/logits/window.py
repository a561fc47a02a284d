"""The last W tokens of a text: which ones there are, kept up to date as the text grows.

The work of an update is that of the tokens that come and go, however large the window is.

W tokens of the window · C distinct ones among them
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from itertools import islice

import torch


class TokenWindow:
    """The last ``size`` tokens, the number of copies of each, and the distinct ones as a tensor."""

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
        """Which places of ``distinct`` become wrong as ``more`` tokens come, whatever these are.

        By place, how many must come until the token's last copy has left the window.
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
