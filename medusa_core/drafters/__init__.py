"""Drafters, one file or folder each, found by its name: who proposes the tree that the target verifies.

Modules whose names begin with an underscore are what drafters share.
A method is one drafter, or one and another that joins in ("medusa+ngram"): their trees are merged.
A drafter's module defines ``METHOD``, a ``Method`` that says what the drafter is called, which settings it
has and where its code is. That code is imported when it is needed, so a module costs nothing until then. The
command line, the page's menu and the trace read ``METHOD``; nothing outside a drafter's own module names it.
Imports: acceptance, checkpoints, hardware, llama, model, trees.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Collection, Mapping
from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa_core.acceptance import NoSettings as NoSettings
from medusa_core.config import WITHOUT_WEIGHTS, GenerationConfig, pick_settings
from medusa_core.drafters._drafter import Colour as Colour
from medusa_core.drafters._drafter import Draft as Draft
from medusa_core.drafters._drafter import Drafter as Drafter
from medusa_core.drafters._drafter import Drafting as Drafting
from medusa_core.drafters._drafter import DraftSize as DraftSize
from medusa_core.drafters._drafter import Method as Method
from medusa_core.drafters._drafter import Reading as Reading
from medusa_core.drafters._head_trees import HeadsDraft as HeadsDraft
from medusa_core.drafters._head_trees import is_dynamic
from medusa_core.errors import MedusaError, name_fix

if TYPE_CHECKING:
    from medusa_core.hardware.operators import Product, Work
    from medusa_core.hardware.shapes import ModelShape
    from medusa_core.loading.model_size import ModelSize
    from medusa_core.model.target import Target
    from medusa_core.trees.tree import Topology


PLUS = "+"  # between the drafters of a method that merges their trees


@functools.cache
def drafter_names() -> tuple[str, ...]:
    """The names of all drafters, including the one that proposes nothing."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in names if not name.startswith("_")))


@functools.cache
def method_names() -> tuple[str, ...]:
    """The names of all methods: each drafter, and each with weights joined by each that may join in."""
    names = drafter_names()
    leading = [name for name in names if method(name).has_weights]
    joining = [name for name in names if method(name).joins]
    return (*names, *(f"{first}{PLUS}{second}" for first in leading for second in joining))


def methods_in_words() -> str:
    """The methods for a sentence; pairs of drafters by their parts, as all names are too long for a line."""
    return f"{', '.join(drafter_names())}, those with weights also as {merged_in_words()}"


def merged_in_words() -> str:
    """The names of the methods of two drafters for a sentence: "NAME+lookup or NAME+ngram"."""
    return " or ".join(f"NAME{PLUS}{name}" for name in drafter_names() if method(name).joins)


@functools.cache
def method(name: str) -> Method:
    """The description of a method. Raises MedusaError for an unknown name."""
    if name in drafter_names():
        return importlib.import_module(f"{__name__}.{name}").METHOD
    if name not in method_names():
        raise MedusaError(f"no method {name!r:.30}: {name_fix(name, method_names(), methods_in_words())}")
    first, second = map(method, drafters_of(name))
    # Settings of both, each name once; where they share one it has the first drafter's default.
    settings = make_dataclass("Settings", (), bases=(first.settings, second.settings), frozen=True)
    return replace(
        first,
        title=f"{first.title} + {second.joins}",
        mark=first.mark + second.mark,
        help="both draft, and their guesses are merged into one tree",
        settings=settings,
        fixed_tree=False,
        cost="",
        design="",
        drafting=None,
    )


def title_of(name: str) -> str:
    """A method's title, "Medusa heads + lookup"; what follows a comma is kept.

    An unknown name stays as it is.
    """
    known, comma, rest = name.partition(", ")
    return method(known).title + comma + rest if known in method_names() else name


def drafters_of(name: str) -> list[str]:
    """The drafters of a method, the one whose weights it uses first."""
    return name.split(PLUS)


def auto_method(with_weights: Collection[str]) -> str:
    """The drafter where none is named: the default one or else another whose weights are there.

    Without any weights it is one that copies from the text before.
    """
    if GenerationConfig.method in with_weights:
        return GenerationConfig.method
    return next(iter(with_weights), WITHOUT_WEIGHTS)


def require_weights(name: str, there: Collection[str], model: str = "the model") -> None:
    """Raises MedusaError where a method's weights are not among those of the methods ``there``."""
    own = drafters_of(name)[0]
    if own in there or not method(name).has_weights:
        return
    fits = ", train some with the command fit" if own == GenerationConfig.method else ""
    raise MedusaError(
        f"method {name} needs weights, and {model} brings none: name them with --heads{fits}, or use "
        f"--method {auto_method(there)}"
    )


def draft_of(drafts: Mapping[str, Draft], config: GenerationConfig) -> Draft | None:
    """The loaded weights that a run uses, None where it needs none or they are not there."""
    return drafts.get(drafters_of(config.method)[0])


def drafter_settings(config: GenerationConfig, draft: Draft | None = None) -> Any:
    """The method's settings: given, else brought by ``draft``, else the defaults. Raises MedusaError."""
    brought = draft.settings if draft is not None else {}
    return pick_settings(method(config.method).settings, {**brought, **config.options})


def make_drafter(target: Target, drafts: Mapping[str, Draft], config: GenerationConfig) -> Drafter:
    """The drafter of ``config.method``. Raises MedusaError when its weights are not loaded."""
    require_weights(config.method, drafts)
    draft = draft_of(drafts, config)
    made = []
    # Merged drafters get the same value of a setting that they share, by default the first one's.
    options = vars(drafter_settings(config, draft))
    for found in map(method, drafters_of(config.method)):
        own = draft if found.has_weights else None
        made.append(pkgutil.resolve_name(found.build)(target, own, pick_settings(found.settings, options)))
    return made[0] if len(made) == 1 else pkgutil.resolve_name(f"{__name__}._merged:MergedDrafter")(made)


def fixed_tree(drafts: Mapping[str, Draft], config: GenerationConfig) -> Topology | None:
    """The tree of a drafter whose tree is the same in every step, None for others."""
    draft: Any = draft_of(drafts, config)
    if draft is None or not method(config.method).fixed_tree:
        return None
    name = drafter_settings(config, draft).tree
    return None if is_dynamic(name) else draft.tree(name)


def options_in_use(drafts: Mapping[str, Draft], config: GenerationConfig) -> dict[str, Any]:
    """The settings of a run by name, with the tree itself in place of a tree's name."""
    draft = draft_of(drafts, config)
    options = dict(vars(drafter_settings(config, draft)))
    if "tree" in options and isinstance(draft, HeadsDraft) and not is_dynamic(options["tree"]):
        options["tree"] = draft.tree(options["tree"])
    return options


def draft_products(name: str, options: Mapping[str, Any], shape: ModelShape, plain: Work) -> list[Product]:
    """The products that a method's drafters compute in a step beside a model of that shape, by their counts.

    ``options`` are their settings by name; other names are ignored.
    """
    products: list[Product] = []
    for found in map(method, drafters_of(name)):
        if found.cost:
            settings: Any = pick_settings(found.settings, options)
            products += pkgutil.resolve_name(found.cost)(shape, settings, plain)
    return products


def owner_of(folder: Path) -> str:
    """The method whose weights are in ``folder``, by its files. Raises MedusaError for unknown files."""
    names = sorted(drafter_names(), key=lambda name: method(name).any_model)
    for name in names:
        owns = method(name).owns
        if owns and pkgutil.resolve_name(owns)(folder):
            return name
    known = " or ".join(method(name).files for name in names if method(name).has_weights)
    raise MedusaError(f"{folder} holds no heads: name a folder with {known}")


def load_draft(name: str, folder: Path, target: Target) -> Draft:
    """Weights of the method ``name`` for ``target``, with the settings that lie beside them.

    Raises MedusaError when they do not fit it, and for damaged files.
    """
    found, read_settings = method(name), pkgutil.resolve_name(f"{__name__}._own_settings:read_own_settings")
    draft: Draft = pkgutil.resolve_name(found.load)(folder, target)
    return replace(draft, settings=read_settings(folder, found.settings, target.output_device))


def draft_size(folder: Path, base: ModelSize) -> DraftSize:
    """The memory that weights in ``folder`` take beside ``base``. Raises MedusaError for a damaged file."""
    return pkgutil.resolve_name(method(owner_of(folder)).size)(folder, base)
