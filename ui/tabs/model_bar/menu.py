"""The menu of models: what it offers, what an entry means, and what a browser keeps of it.

What comes out of a browser is a suggestion: the session decides what may be loaded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from medusa_core.config import NO_HEADS, LoadConfig
from medusa_core.errors import MedusaError
from ui.runs.session import Session
from ui.serving.models import name_of
from ui.serving.policy import AllowedModel

MOST_RECENT = 6
DTYPES = ("float32", "bfloat16")  # dtypes of the embedded model, to compare without naming a folder
LONGEST_NAME = 300
OWN, OFFER, OTHER = "own", "offer", "other"  # entries of the menu that name no model by themselves
TEXTS = ("model", "heads", "dtype", "quantize")
NAMED = (*TEXTS, "capture")  # the fields that a visitor on their own machine sets
FIELDS = {field.name: field for field in fields(LoadConfig)}
Entry = tuple[str, str]  # label and value


def entries(session: Session, recent: Sequence[LoadConfig]) -> list[Entry]:
    """The menu: the app's own model, the owner's list, what this browser used, and any other."""
    own, policy = session.models.own_config, session.policy
    found = [(name_of(own), OWN)]
    found += [(_offer_label(offer), f"{OFFER} {number}") for number, offer in enumerate(policy.offers)]
    if policy.free_choice:
        embedded = replace(own, model="", heads="")
        in_dtypes = [replace(embedded, dtype=dtype) for dtype in DTYPES]
        others = [one for one in (embedded, *in_dtypes, *recent) if record_of(one) != record_of(own)]
        found += [(_label(one, own), value_of(one)) for one in others]
        found.append(("another one…", OTHER))
    return list(dict.fromkeys(found))


def remembered(stored: object) -> list[LoadConfig]:
    """What a browser kept, as far as it makes sense: anybody can write anything there."""
    found = []
    for record in stored[:MOST_RECENT] if isinstance(stored, list) else []:
        try:
            found.append(_wish(record))
        except MedusaError:
            continue
    return found


def remember(recent: Sequence[LoadConfig], used: LoadConfig) -> list[dict[str, str | bool]]:
    """What a browser is to keep: the newest first."""
    kept = [record_of(used), *(one for one in map(record_of, recent) if one != record_of(used))]
    return kept[:MOST_RECENT]


def wish_of(session: Session, menu: str, *fields: str | bool) -> LoadConfig:
    """The model that the form names. Raises MedusaError for an invalid name or setting."""
    if menu == OWN:
        return session.models.own_config
    if menu == OTHER:
        wish = _wish(dict(zip(NAMED, fields, strict=True)))
        if not wish.model.strip() and wish.heads.strip() in ("", NO_HEADS):
            raise MedusaError("there is no name: write a folder or a hub name")
        return wish
    for number, offer in enumerate(session.policy.offers):
        if menu == f"{OFFER} {number}":
            return replace(session.models.own_config, model=offer.model, heads=offer.heads)
    try:
        return _wish(json.loads(menu))
    except (ValueError, TypeError, RecursionError) as error:
        raise MedusaError("there is no such model: choose one from the list") from error


def _wish(record: object) -> LoadConfig:
    """The model in a browser's record. Raises MedusaError."""
    # A browser's record may be older than the setting.
    given: dict[str, Any] = {"capture": LoadConfig.capture} | (record if isinstance(record, dict) else {})
    for name in TEXTS:
        if not isinstance(given.get(name), str) or len(given[name]) > LONGEST_NAME:
            raise MedusaError(f"that names no model: a name has at most {LONGEST_NAME} characters")
    return LoadConfig(**{name: given[name] for name in NAMED})


def record_of(source: LoadConfig) -> dict[str, str | bool]:
    """A browser's record."""
    return {name: getattr(source, name) for name in NAMED}


def value_of(source: LoadConfig) -> str:
    """The menu's value for a model that has been used before."""
    return json.dumps(record_of(source))


def _label(source: LoadConfig, own: LoadConfig) -> str:
    """Its name as written, with what differs from the app's own settings."""
    other = [getattr(source, name) for name in TEXTS[2:] if getattr(source, name) != getattr(own, name)]
    if source.capture != own.capture:
        other.append("captured" if source.capture else "not captured")
    names = " + ".join(name for name in (source.model, _heads_words(source.heads)) if name)
    return " · ".join([names or "embedded model", *other])


def _offer_label(offer: AllowedModel) -> str:
    """The owner's words, but only the last part of a path, so that no local path leaks."""
    names = [name for name in (offer.model, _heads_words(offer.heads)) if name]
    return " + ".join(Path(name).name if name.startswith(("/", ".", "~")) else name for name in names)


def _heads_words(heads: str) -> str:
    return "no heads" if heads == NO_HEADS else heads
