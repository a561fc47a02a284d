"""The colours of the charts and of the linked view, written once.

The palette is Okabe and Ito's, which survives the common kinds of colour blindness; every meaning also has a
second sign (a line style, a digit, a word). Fonts are the ones the machine has, so no request leaves it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from medusa_core.drafters import drafter_names

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
    scale: str | tuple[tuple[float, str], ...]  # from none to all


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
    scale="Blues",
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
    paper="#18181B",
    phases=("#1FC29A", "#56B4E9", "#CC79A7", "#E69F00", "#8A8A8A"),
    scale="Cividis",
)


# Of accepted guesses of drafters other than the first, which has the palette's own colour: on the light
# ground and on the dark one, and the light one's scale from none to all.
OTHERS = (
    ("#A6397F", "#E39BC8", ((0.0, "#F8EDF4"), (1.0, "#7E2460"))),
    ("#7A5C1E", "#D9BF7A", ((0.0, "#F6F1E4"), (1.0, "#5C4412"))),
    ("#6A3FB5", "#B79CF2", ((0.0, "#F1ECFA"), (1.0, "#4C2A8A"))),
    ("#00687A", "#5FC4D6", ((0.0, "#E6F4F6"), (1.0, "#004A57"))),
    ("#566B00", "#B9CC5A", ((0.0, "#F2F5E1"), (1.0, "#3E4D00"))),
    ("#8C2F39", "#E5A3A8", ((0.0, "#F8EBEC"), (1.0, "#6B1F28"))),
)
FIRST_DRAFTERS = ("medusa", "none", "")


def palette(dark: bool = False) -> Palette:
    """The palette of the page's current theme."""
    return DARK if dark else LIGHT


def drafter_palette(name: str, dark: bool = False) -> Palette:
    """The palette in which accepted guesses have the colour of the drafter ``name``."""
    colours = palette(dark)
    if name in FIRST_DRAFTERS:
        return colours
    others = [known for known in drafter_names() if known not in FIRST_DRAFTERS]
    place = others.index(name) if name in others else sum(name.encode())  # foreign names get any colour
    light, on_dark, scale = OTHERS[place % len(OTHERS)]
    if dark:
        return replace(colours, accepted=on_dark)
    return replace(colours, accepted=light, scale=scale)


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
