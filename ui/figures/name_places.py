"""Where to place the names of points in a chart, so that none overlaps another name or point.

All lengths are pixels, right and up. A name that finds no room at its point stands farther away, and a thin
line leads to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LETTER, LINE_HEIGHT = 6.5, 18  # width and height of a letter
POINT = 13  # width and height of a point
GAP = 9  # between the middle of a point and the nearer edge of its name
FARTHER = tuple(range(0, 200, 22))  # extra distances of a name, in the order tried
LINE_PARTS = 12
SIDES = ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))


@dataclass(frozen=True)
class NamePlace:
    """The middle of a name relative to its point; ``led`` where a line has to show whose name it is."""

    right: float
    up: float
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


def name_places(
    points: Sequence[tuple[float, float]], names: Sequence[str], size: tuple[float, float]
) -> list[NamePlace | None]:
    """A place for each name, the first names first; None where there is no room even far from its point.

    A name is placed even if its line crosses another name.
    ``points`` are pixels from the lower left corner of axes that are ``size`` wide and high.
    """
    dots = [_Box.around(x, y, POINT, POINT) for x, y in points]
    taken: list[_Box] = []  # boxes of placed names and their lines
    found: list[NamePlace | None] = []
    for (x, y), name in zip(points, names, strict=True):
        width = LETTER * len(name)
        chosen: NamePlace | None = None
        own: list[_Box] = []
        for place in _places(width):
            box = _Box.around(x + place.right, y + place.up, width, LINE_HEIGHT)
            if not box.within(*size) or any(box.meets(other) for other in (*dots, *taken)):
                continue
            line = [_Box.around(*at, 1, 1) for at in _along(x, y, place)]
            crosses = any(bit.meets(other) for bit in line for other in taken)
            if chosen is None or not crosses:
                chosen, own = place, [box, *line]
            if not crosses:
                break
        taken += own
        found.append(chosen)
    return found


def _along(x: float, y: float, place: NamePlace) -> list[tuple[float, float]]:
    """Points on the line that leads from a point to its name, if one does."""
    parts = [part / LINE_PARTS for part in range(1, LINE_PARTS)] if place.led else []
    return [(x + part * place.right, y + part * place.up) for part in parts]


def _places(width: float) -> Iterator[NamePlace]:
    """Close to the point above, below, right, left and in the corners; then farther away."""
    for off in FARTHER:
        for right, up in SIDES:
            across = right * (width / 2 + GAP + (off / 2 if up else off))
            above = up * (GAP + LINE_HEIGHT / 2 - (LINE_HEIGHT / 4 if right else 0) + off)
            yield NamePlace(across, above, off > 0)
