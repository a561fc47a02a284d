"""Which base and which heads a pair of names means: heads know their base, a model may bring its heads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from medusa_core.checkpoints.files import Layout, files_with_heads, layout_of, read_config
from medusa_core.checkpoints.locate import ALL_FILES, Fetch, as_folder, embedded_model, locate, locate_model
from medusa_core.checkpoints.names import (
    BASE_KEY,
    DRAFTERS_FOLDER,
    EMBEDDED,
    HEAD_FILES,
    HEADS_FOLDER,
    HEADS_NAME,
    MODEL_FILES,
    WEIGHTS_NAME,
)
from medusa_core.config import NO_HEADS
from medusa_core.errors import MedusaError


@dataclass(frozen=True)
class Sources:
    """Folders of base and drafters' weights, and display names that leak no local path."""

    base: Path
    base_name: str
    named: tuple[Path, ...] = ()  # weights that were asked for, or the heads that belong to the model
    heads_name: str | None = None
    own: tuple[Path, ...] = ()  # weights of further drafters that the model brings

    @property
    def drafts(self) -> tuple[Path, ...]:
        return (*self.named, *self.own)

    @property
    def heads(self) -> Path | None:
        """The first weights that were asked for, which say what the base is."""
        return next(iter(self.named), None)


def find_sources(model: str, heads: str, fetch: Fetch = ALL_FILES) -> Sources:
    """What ``--model`` and ``--heads`` mean, downloaded if need be. Raises MedusaError.

    Either may be empty: a model brings its own heads and drafters, heads name their base, and nothing at all
    is the embedded model. ``model`` may also be the name of heads. ``heads`` may name weights of several
    drafters, joined by "+"; the first of them say which base they belong to.
    """
    first, *others = split_names(heads)
    found = _first_sources(model, first, fetch)
    if not others:
        return found
    more = tuple(locate_heads(name, fetch) for name in others)
    shown = " + ".join([found.heads_name or first, *map(shown_name, others)])
    return replace(found, heads_name=shown, named=(*found.named, *more))


def split_names(names: str) -> list[str]:
    """The names in "A+B"; a folder whose name has a plus sign is one. Raises MedusaError for an empty one."""
    if "+" not in names or as_folder(names):
        return [names]
    found = [name.strip() for name in names.split("+")]
    if wrong := [name for name in found if name in ("", NO_HEADS)]:
        raise MedusaError(
            f"{wrong[0]!r} in --heads {names} names no weights: write A+B, or {NO_HEADS} alone for no heads"
        )
    return found


def _first_sources(model: str, heads: str, fetch: Fetch) -> Sources:
    if not model and heads in ("", NO_HEADS):
        return _with_own_heads(embedded_model(), EMBEDDED, heads)
    if model:
        folder = locate(model, MODEL_FILES, fetch)
        if not is_heads_only(folder):
            folder = locate_model(model, fetch)
            if heads in ("", NO_HEADS):
                return _with_own_heads(folder, shown_name(model), heads)
            given = locate_heads(heads, fetch)
            return Sources(folder, shown_name(model), (given,), shown_name(heads), _own_drafters(folder))
        if heads not in ("", NO_HEADS):
            raise MedusaError(f"{model} holds heads and no model: give --model the base of the heads {heads}")
    name = model or heads
    folder = locate_heads(name, fetch)
    base, base_name = base_of_heads(folder, name, fetch)
    if heads == NO_HEADS:
        return Sources(base, base_name)
    return Sources(base, base_name, (folder,), shown_name(name), _own_drafters(base))


def heads_folder(model_folder: Path) -> Path | None:
    """The heads that belong to a model: in its ``heads`` folder, beside its weights or among them."""
    own = model_folder / HEADS_FOLDER
    if own.is_dir() and layout_of(own):
        return own
    # A folder in vLLM's format has heads and no model.
    return model_folder if layout_of(model_folder) in (Layout.HEADS, Layout.FULL) else None


def is_heads_only(folder: Path) -> bool:
    """Whether a folder holds heads whose base lies elsewhere."""
    layout, config = layout_of(folder), read_config(folder)
    # The config of heads in files of their own names no kind of model, but their base.
    alone = "model_type" not in config and (layout is Layout.HEADS or BASE_KEY in config)
    return layout is Layout.VLLM or (alone and layout is not Layout.FULL)


def locate_heads(name: str, fetch: Fetch = ALL_FILES) -> Path:
    """The folder of heads, downloaded if need be: of a whole model only the shards that hold heads.

    Raises MedusaError.
    """
    folder = locate(name, HEAD_FILES, fetch)
    if as_folder(name):
        own = folder / HEADS_FOLDER
        return own if layout_of(folder) is None and own.is_dir() else folder
    found = layout_of(folder)
    if found is Layout.FULL:
        return locate(name, [*HEAD_FILES, *files_with_heads(folder)], fetch)
    if found is not Layout.HEADS:
        folder = locate(name, [*HEAD_FILES, WEIGHTS_NAME, f"{HEADS_FOLDER}/*"], fetch)
        own = folder / HEADS_FOLDER
        if layout_of(folder) is None and own.is_dir():
            return own
        if layout_of(folder) is None and "model_type" in read_config(folder):
            return locate_model(name, fetch)  # a whole model that drafts
    return folder


def base_of_heads(folder: Path, name: str, fetch: Fetch = ALL_FILES) -> tuple[Path, str]:
    """The folder and the name of the base that the heads in ``folder``, called ``name``, were made for.

    Raises MedusaError when they do not say or it cannot be had.
    """
    if layout_of(folder) is Layout.FULL:
        return locate_model(name, fetch), shown_name(name)
    base = _named_base(read_config(folder))
    if base is None:
        # Other drafters' weights than Medusa's come with a config.
        there = layout_of(folder) or read_config(folder)
        what = "do not name their base" if there else f"are missing: no {HEADS_NAME}* is there"
        raise MedusaError(f"the heads in {folder} {what}: give the base with --model, the heads with --heads")
    known = base_path(base, folder)
    try:
        return locate_model(known, fetch), EMBEDDED if base == EMBEDDED else shown_name(known)
    except MedusaError as error:
        raise MedusaError(
            f"the heads in {folder} belong to a base that is missing: {error}; or give --model"
        ) from error


def base_path(base: str, heads: Path) -> str:
    """The name or path of the base that heads name: a path starts from here, or else from the heads."""
    if base == EMBEDDED:
        return str(embedded_model())
    beside = as_folder(str(heads / base))
    return str(beside) if beside and not as_folder(base) else base


def _named_base(config: dict[str, Any]) -> str | None:
    """The base that a config of heads names: at its top, or where speculators puts it."""
    base: Any = config.get(BASE_KEY)
    if not base:
        base = config
        for name in ("speculators_config", "verifier", "name_or_path"):
            base = base.get(name) if isinstance(base, dict) else None
    return base if isinstance(base, str) and base else None


def shown_name(name: str) -> str:
    """A folder by its name alone, since traces are shared; a hub repository by its own."""
    folder = as_folder(name)
    return name if folder is None else folder.resolve().name


def _with_own_heads(folder: Path, name: str, heads: str) -> Sources:
    if heads == NO_HEADS:
        return Sources(folder, name)
    own, further = heads_folder(folder), _own_drafters(folder)
    if own is None:
        return Sources(folder, name, own=further)
    shown = name if name == EMBEDDED or own == folder else own.name
    return Sources(folder, name, (own,), shown, further)


def _own_drafters(folder: Path) -> tuple[Path, ...]:
    """Folders with weights of further drafters beside a model, by name; hidden ones are not drafters."""
    inside = folder / DRAFTERS_FOLDER
    if not inside.is_dir():
        return ()
    return tuple(sorted(path for path in inside.iterdir() if path.is_dir() and path.name[0] != "."))
