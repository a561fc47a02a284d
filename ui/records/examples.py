"""What ships with the page's code: example prompts and recorded runs."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from medusa_core.errors import MedusaError, one_line
from medusa_core.files import read_asset, read_bytes
from medusa_core.trace.format import read_trace
from ui.records.settings import settings_of

ASSETS = Path(__file__).resolve().parents[2] / "assets"
RACE_FILE = "race.json"


@dataclass(frozen=True)
class Recording:
    """A finished run from `assets/traces`."""

    name: str
    trace: dict[str, Any]

    @property
    def rule(self) -> str:
        return self.trace["config"]["acceptance"]["name"]

    @property
    def settings(self) -> dict[str, Any]:
        """What the page's controls hold for such a run, by name."""
        return settings_of(self.trace)


def example_prompts(assets: Path = ASSETS) -> list[dict[str, Any]]:
    """Kinds of text with their one-click prompts."""
    return read_asset(assets / "prompts.json", list)


def example_texts(assets: Path = ASSETS) -> list[str]:
    """The prompts, one of each kind first, so that a measurement cut short has seen every kind."""
    kinds = [[prompt["text"] for prompt in kind["prompts"]] for kind in example_prompts(assets)]
    return [text for texts in zip_longest(*kinds) for text in texts if text is not None]


def recordings(assets: Path = ASSETS) -> list[Recording]:
    """The recorded runs in the order of their file names; a broken one is left out and logged."""
    found = []
    for file in sorted((assets / "traces").glob("*.json")):
        try:
            found.append(Recording(_title(file), read_trace(file).model_dump(mode="json")))
        except MedusaError as error:  # a page without one of its recordings is better than none
            logging.getLogger(__name__).warning("warning: a recorded run is left out: %s", error)
    return found


def recorded_race(assets: Path = ASSETS) -> dict[str, Any] | None:
    """The race shown before anything has run, as `python -m tools.record_race` wrote it, if there is one.

    A broken one is logged and left out.
    """
    file = assets / RACE_FILE
    if not file.exists():
        return None
    try:
        race = json.loads(read_bytes(file))
        recorded, lanes = race["recorded"], [(lane["name"], lane["trace"]["steps"]) for lane in race["lanes"]]
        if race["kind"] != "race" or len(lanes) < 2 or not all(steps for _, steps in lanes) or not recorded:
            raise ValueError("it holds no race of two lanes")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        words = "warning: the recorded race is left out: %s holds none (%s): record it anew"
        logging.getLogger(__name__).warning(words, file, one_line(str(error)))
        return None
    return race


def _title(file: Path) -> str:
    # "1-booking--long-paths.json" is called "Booking: long paths": the number only sets the order.
    # The hyphen of a name such as EAGLE-3 stays.
    title = re.sub(r"-(?!\d)", " ", re.sub(r"^\d+-", "", file.stem).replace("--", ": "))
    return title[:1].upper() + title[1:]
