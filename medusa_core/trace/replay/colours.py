"""The colours of the charts and of the linked view, written once.

The palette is Okabe and Ito's, which survives the common kinds of colour blindness; every meaning also has a
second sign (a line style, a digit, a word). Fonts are the ones the machine has, so no request leaves it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from medusa_core.drafters import drafter_names, method, method_names

SANS = ("ui-sans-serif", "system-ui", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif")
PHASES = ("propose", "verify", "accept", "commit", "other")  # phases of a step
MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace")


@dataclass(frozen=True)
class Palette:
    """One colour a meaning. Marks keep 3:1 and text 4.5:1 against `paper`."""

    accepted: str
    root: str
    rejected: str
    proposed: str
    selected: str
    focus: str  # the ring around what has the keyboard
    prefix: str
    text: str
    muted: str
    grid: str
    paper: str
    phases: tuple[str, str, str, str, str]  # in the order of PHASES
    scale: tuple[tuple[float, str], ...]  # from none to all, behind numbers in `text`


LIGHT = Palette(
    accepted="#0072B2",
    root="#009E73",
    rejected="#D55E00",
    proposed="#767676",
    selected="#E69F00",
    focus="#9A5B00",
    prefix="#BBBBBB",
    text="#27272A",
    muted="#5F6368",
    grid="#E4E4E7",
    paper="#FFFFFF",
    phases=("#009E73", "#0072B2", "#CC79A7", "#E69F00", "#999999"),
    scale=((0.0, "#FFFFFF"), (1.0, "#8CC4EA")),
)
DARK = Palette(
    accepted="#56B4E9",
    root="#1FC29A",
    rejected="#F0803C",
    proposed="#8A8A8A",
    selected="#E69F00",
    focus="#E69F00",
    prefix="#6B7280",
    text="#F4F4F5",
    muted="#A1A1AA",
    grid="#333843",
    paper="#141923",
    phases=("#1FC29A", "#56B4E9", "#CC79A7", "#E69F00", "#8A8A8A"),
    scale=((0.0, "#141923"), (1.0, "#1B5E8C")),
)


def palette(dark: bool = False) -> Palette:
    """The palette of the page's current theme."""
    return DARK if dark else LIGHT


def drafter_palette(name: str, dark: bool = False) -> Palette:
    """The palette in which accepted guesses have the colour of the drafter ``name``."""
    colours = palette(dark)
    if name in method_names():
        own = method(name).colour
    else:  # a drafter that is not known here gets the colour of another
        known = [colour for one in drafter_names() if (colour := method(one).colour)]
        own = known[sum(name.encode()) % len(known)] if name else None
    if own is None:
        return colours
    if dark:
        return replace(colours, accepted=own.dark)
    return replace(colours, accepted=own.light, scale=((0.0, own.pale), (1.0, own.deep)))


def css_variables(selector: str, dark: bool = False) -> str:
    """A rule that gives the style sheets of the browser's side the same colours as the charts."""
    colours = palette(dark)
    named = {
        "accept": colours.accepted,
        "base": colours.root,
        "reject": colours.rejected,
        "grey": colours.proposed,
        "select": colours.selected,
        "focus": colours.focus,
        "prefix": colours.prefix,
    }
    named |= {f"phase-{name}": colour for name, colour in zip(PHASES, colours.phases, strict=True)}
    return f"{selector} {{ {' '.join(f'--mdv-{name}: {colour};' for name, colour in named.items())} }}\n"
