"""A suffix automaton: all substrings of a text in linear space, grown token by token, with their frequencies.

A state stands for the substrings that end at the same places. A transition goes to the substring that is one
token longer, and a state's link to its longest suffix that ends at more places. Blumer et al., 1985 (The
smallest automaton recognizing the subwords of a text).

T tokens of the text
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

EMPTY = 0  # the state of the empty substring
_NONE = -1


@dataclass(frozen=True)
class Match:
    """An ending of some text that stands in the automaton's: its state and how many tokens it has."""

    state: int
    length: int


class SuffixAutomaton:
    """Every substring of the text so far: how often it stands there, and which tokens followed it.

    It has at most 2 T states. A further token costs a constant number of steps on average to add, and one for
    each suffix link to count, which are few unless the text is one short loop.
    """

    def __init__(self) -> None:
        self.length = 0  # T
        self._next: list[dict[int, int]] = [{}]
        self._link = [_NONE]
        self._longest = [0]  # tokens of a state's longest substring
        self._count = [0]
        self._latest = [0]  # the length of the text at the substring's latest end
        self._whole = EMPTY

    def extend(self, tokens: Iterable[int]) -> None:
        """The text goes on with ``tokens``."""
        for token in tokens:
            self._add(token)

    def end(self, token: int) -> Match:
        """The longest ending of the text and ``token`` behind it that stands in the text; maybe empty."""
        state = self._link[self._whole]
        while state != _NONE:
            if token in self._next[state]:
                return Match(self._next[state][token], self._longest[state] + 1)
            state = self._link[state]
        return Match(EMPTY, 0)

    def shorter(self, match: Match) -> Iterator[Match]:
        """``match`` and the shorter endings of the same text that stand at more places, the longest first."""
        while match.length > 0:
            yield match
            link = self._link[match.state]
            match = Match(link, self._longest[link])

    def followers(self, match: Match) -> dict[int, int]:
        """How often each token followed the ending, by token."""
        return {token: self._count[state] for token, state in self._next[match.state].items()}

    def longer(self, match: Match, token: int) -> Match:
        """The ending with ``token`` behind it, which followed it somewhere."""
        return Match(self._next[match.state][token], match.length + 1)

    def count(self, match: Match) -> int:
        """At how many places the ending stands."""
        return self._count[match.state]

    def latest(self, match: Match) -> int:
        """The place of the ending's last token where it stood last, from 0."""
        return self._latest[match.state] - 1

    def _add(self, token: int) -> None:
        self.length += 1
        new = self._state({}, self.length)
        state, self._whole = self._whole, new
        while state != _NONE and token not in self._next[state]:
            self._next[state][token] = new
            state = self._link[state]
        self._link[new] = EMPTY if state == _NONE else self._suffix(state, token)
        while new != EMPTY:
            self._count[new] += 1
            self._latest[new] = self.length
            new = self._link[new]

    def _suffix(self, state: int, token: int) -> int:
        """The state whose longest substring is that of ``state`` and ``token``, split off where needed."""
        longer = self._next[state][token]
        if self._longest[longer] == self._longest[state] + 1:
            return longer
        split = self._state(dict(self._next[longer]), self._longest[state] + 1)
        self._link[split], self._link[longer] = self._link[longer], split
        self._count[split], self._latest[split] = self._count[longer], self._latest[longer]
        while state != _NONE and self._next[state].get(token) == longer:
            self._next[state][token] = split
            state = self._link[state]
        return split

    def _state(self, following: dict[int, int], longest: int) -> int:
        self._next.append(following)
        self._longest.append(longest)
        self._link.append(_NONE)
        self._count.append(0)
        self._latest.append(0)
        return len(self._next) - 1
