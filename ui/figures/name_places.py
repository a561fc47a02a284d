"""Where to place the names of points in a chart, so that each is read as the name of its own point alone.

All lengths are pixels, right and up. A name that finds no room at its point stands farther away, and a thin
line leads to it. A name that could be taken for another point's has no place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

LETTER, LINE_HEIGHT = 6.5, 18  # width and height of a letter
POINT = 13  # width and height of a point
GAP = 9  # between the middle of a point and the nearer edge of its name
CLEAR = 2 * GAP  # between a name and the middle of every other point, which so is clearly farther off
SAME = 2  # points no farther apart are seen as one, which may have several names
LENGTHS = tuple(range(30, 160, 15))  # lengths of a line, the first that fits counts
TURNS = 16  # directions of a line
LINE_PART = 2  # length of the pieces in which a line is compared with names and points
SIDES = ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))


@dataclass(frozen=True)
class NamePlace:
    """A name relative to its point: the middle of its nearer edge; its own middle where ``side`` is 0.

    ``side`` is 1 where the name begins there, to the right of its point, -1 where it ends there, to the
    left. ``led`` says that a line has to show whose name it is.
    """

    right: float
    up: float
    side: int
    led: bool


class _Box(NamedTuple):
    left: float
    right: float
    bottom: float
    top: float

    @classmethod
    def around(cls, x: float, y: float, width: float, height: float) -> _Box:
        return cls(x - width / 2, x + width / 2, y - height / 2, y + height / 2)

    def meets(self, other: _Box) -> bool:
        across = min(self.right, other.right) > max(self.left, other.left)
        return across and min(self.top, other.top) > max(self.bottom, other.bottom)

    def within(self, width: float, height: float) -> bool:
        return self.left >= 0 and self.right <= width and self.bottom >= 0 and self.top <= height


@dataclass(frozen=True)
class _Layout:
    """The chart in one size, with the boxes of placed names and their lines."""

    size: tuple[float, float]
    points: Sequence[tuple[float, float]]
    taken: list[_Box] = field(default_factory=list)

    def boxes(self, number: int, name: str, place: NamePlace) -> list[_Box]:
        """What a name and its line would cover; nothing where they cannot stand there."""
        x, y = self.points[number]
        own = _Box.around(x, y, POINT, POINT)
        others = [at for at in self.points if math.dist(at, (x, y)) > SAME]
        width = LETTER * len(name)
        middle = x + place.right + place.side * width / 2
        box = _Box.around(middle, y + place.up, width, LINE_HEIGHT)
        near = [_Box.around(*at, 2 * CLEAR, 2 * CLEAR) for at in others]
        if not box.within(*self.size) or any(box.meets(other) for other in (own, *near, *self.taken)):
            return []
        dots = [_Box.around(*at, POINT, POINT) for at in others]
        line = [bit for bit in _line(x, y, place) if not bit.meets(own)]
        if any(bit.meets(other) for bit in line for other in (*dots, *self.taken)):
            return []
        return [box, *line]


def name_places(
    points: Sequence[tuple[float, float]], names: Sequence[str], sizes: Sequence[tuple[float, float]]
) -> list[NamePlace | None]:
    """A place for each name that fits in every size of the chart; None where there is none.

    Those without a line come first, and the first names before the others. ``points`` are shares of the
    axes, from their lower left corner; ``sizes`` are the axes' widths and heights in pixels.
    """
    layouts = [_Layout(size, [(size[0] * x, size[1] * y) for x, y in points]) for size in sizes]
    found: list[NamePlace | None] = [None] * len(names)
    for places in (tuple(_beside()), tuple(_farther())):
        for number, name in enumerate(names):
            for place in places if found[number] is None else ():
                covered = list(takewhile(bool, (layout.boxes(number, name, place) for layout in layouts)))
                if len(covered) == len(layouts):
                    found[number] = place
                    for layout, boxes in zip(layouts, covered, strict=True):
                        layout.taken.extend(boxes)
                    break
    return found


def _line(x: float, y: float, place: NamePlace) -> list[_Box]:
    """What the line from a point to its name covers, if it has one."""
    parts = math.ceil(math.hypot(place.right, place.up) / LINE_PART) if place.led else 0
    shares = [part / parts for part in range(1, parts)]
    middles = [(x + share * place.right, y + share * place.up) for share in shares]
    return [_Box.around(*middle, LINE_PART, LINE_PART) for middle in middles]


def _beside() -> Iterator[NamePlace]:
    """Above the point, below, right, left and in the corners."""
    for right, up in SIDES:
        yield NamePlace(right * GAP, up * (GAP + LINE_HEIGHT / (4 if right else 2)), right, led=False)


def _farther() -> Iterator[NamePlace]:
    """At the end of a line, the shorter lines first."""
    for length in LENGTHS:
        for turn in range(TURNS):
            right, up = math.cos(math.tau * turn / TURNS), math.sin(math.tau * turn / TURNS)
            side = 0 if abs(right) < abs(up) / 2 else int(math.copysign(1, right))
            yield NamePlace(length * right, length * up, side, led=True)
