"""What a visitor has chosen, and how values of the page's controls become the engine's settings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any

from medusa_core.acceptance import rule_names
from medusa_core.config import RUN_SETTINGS, GenerationConfig, LoadConfig
from medusa_core.drafters import PLUS, drafter_names, drafters_of, method, method_names
from medusa_core.drafters._head_trees import dynamic_nodes, is_dynamic
from medusa_core.drafters._options import check_options, option_defaults, option_kinds
from medusa_core.drafters.medusa import AUTO
from medusa_core.errors import MedusaError
from medusa_core.text.prompt_check import check_characters
from medusa_core.trees.tree import Topology, published_trees

MAX_PROMPT_CHARACTERS = 8000
MOST_TOP_K = 200  # largest value of the top-k slider
MOST_WINDOW = 4096  # tokens, largest value of the penalty window's slider
MOST_TOKENS = 512  # limit of a run that is repeated, or where visitors share one engine
LONGEST_RUN = 20_000  # limit of a run in the linked view of a private page
PAGE_HIGHEST = {"max_new_tokens": MOST_TOKENS, "penalty_window": MOST_WINDOW, "top_k": MOST_TOP_K}
BY_BUDGET, DYNAMIC = "node budget", "dynamic"
BUDGETED = (BY_BUDGET, DYNAMIC)  # trees whose size a slider sets
MOST_NODES = 64  # limit of a tree by budget, the root included
COPYING = "lookup"  # the drafter that the tick adds
COPIES_LABEL = "Also copy from the text"
COPIES_HELP = "adds to the guesses what followed the last words earlier in the text"


YOURS = "yours"  # the entry of the Tree and Heads menus that stands for this record
DEFAULT = "default"
Entry = tuple[str, str]  # label and value of a menu's entry


@dataclass(frozen=True)
class Selection:
    """A model, the heads that a visitor trained for it, and the tree made for those heads.

    It lies in a `gr.State`, so it stays on the server, and holds no weights: a model is named by what it
    is loaded from, `engine` is an id of `Session.add_engine`, `choices` are rank tuples; both are empty where
    the visitor has none.
    """

    engine: str = ""
    label: str = ""  # the visitor's name for that engine's heads
    choices: tuple[tuple[int, ...], ...] = ()
    model: LoadConfig | None = None  # None: the model that the app was started with

    @property
    def heads(self) -> str:
        """Entry of the Heads menu: the visitor's own where there are any."""
        return YOURS if self.engine else DEFAULT

    def with_engine(self, engine: str, label: str) -> Selection:
        """Other heads. The tree goes, since it was grown for the previous ones."""
        return Selection(engine, label, model=self.model)

    def with_tree(self, choices: Iterable[Sequence[int]]) -> Selection:
        return replace(self, choices=tuple(tuple(choice) for choice in choices))

    def tree_entries(self) -> list[Entry]:
        """The Tree menu's entry for the visitor's own tree, when there is one."""
        nodes = len(self.choices) + 1
        return [(f"yours, from Trees: {nodes} nodes with the root", YOURS)] if self.choices else []

    def head_entries(self) -> list[Entry]:
        """The Heads menu: those of the app and, when there are any, the visitor's own."""
        own = [(f"yours: {self.label}", YOURS)] if self.engine else []
        return [("shipped with the model", DEFAULT), *own]


@dataclass(frozen=True)
class RunSettings(GenerationConfig):
    """What the controls hold for one run, each value as gradio hands it over: `make_config` checks them."""

    tree: str = AUTO
    budget: float = 16  # nodes of a `BUDGETED` tree, the root included
    heads: str = DEFAULT
    selection: Selection = field(default_factory=Selection)

    def __post_init__(self) -> None:
        """Checks nothing: sliders send whole numbers as floats, which `make_config` converts and checks."""


def greedy_settings(method: str, tokens: int, selection: Selection, **others: Any) -> RunSettings:
    """Settings for comparing methods: all write the same text, with the visitor's heads if any."""
    return RunSettings(
        method=method, max_new_tokens=tokens, temperature=0.0, heads=selection.heads, selection=selection,
        **others,
    )  # fmt: skip


def make_config(settings: RunSettings, most: int = MOST_TOKENS) -> GenerationConfig:
    """The engine's settings from the page's. Raises MedusaError for values outside their range.

    ``most`` is the page's limit of new tokens for such a run.
    """
    tree = DEFAULT if settings.tree in (BY_BUDGET, YOURS) else settings.tree  # `ready` makes these two
    if tree == DYNAMIC:
        tree = f"{DYNAMIC}-{int(settings.budget)}"
    elif tree not in (AUTO, DEFAULT, *published_trees()):
        # The engine would also take a file's name here; a visitor of the page must not name files.
        raise MedusaError(f"no tree is called {settings.tree!r}: choose one from the list")
    check_tokens(int(settings.max_new_tokens), most)
    # A slider gives a whole number as a float, and an empty field gives None.
    numbers = {name: type(default)(getattr(settings, name) or 0) for name, default in RUN_SETTINGS.items()}
    options = {
        name: type(default)(settings.options[name])
        for name, default in option_defaults().items()
        if name in settings.options
    }
    config = GenerationConfig.of(
        method=settings.method,
        acceptance=settings.acceptance,
        **numbers | options | {"tree": tree},
    )
    check_options(config)
    return config


def check_tokens(tokens: float, most: float) -> None:
    """Raises MedusaError for a run of more new tokens than the page allows."""
    if tokens > most:
        raise MedusaError(
            f"{int(tokens)} new tokens asked for, the page allows {int(most)}: lower the number"
        )


def settings_of(trace: dict[str, Any]) -> dict[str, Any]:
    """What the page's controls hold for a run like this one, prompt included.

    The node budget stays as it is unless the tree was a dynamic one. A tree that has no name in the menu was
    chosen for a machine, so it becomes "auto". A value that no control can hold, as in a recording by
    another version of the engine, is left at its default.
    """
    config = trace["config"]
    nodes = {tuple(node) for node in config["tree"] or ()}
    named = (name for name, tree in published_trees().items() if {tuple(node) for node in tree} == nodes)
    drafter, rule = config["drafter"], config["acceptance"]
    given = {**drafter["settings"], **rule["settings"], **config}
    name = drafter["name"] if drafter["name"] in method_names() else GenerationConfig.method
    kinds = (*option_kinds().values(), method(name).settings, GenerationConfig)
    items = {item.name: item for kind in kinds for item in fields(kind)}
    numbers = [name for name, default in option_defaults().items() if isinstance(default, int | float)]
    return {
        "prompt": trace["prompt"]["text"],
        **{one: _held(items[one], given.get(one, items[one].default)) for one in (*RUN_SETTINGS, *numbers)},
        **parted_method(name),
        "acceptance": rule["name"] if rule["name"] in rule_names() else GenerationConfig.acceptance,
        "tree": next(named, DEFAULT if drafter["settings"].get("tree") == DEFAULT else AUTO),
        **_dynamic(drafter["settings"].get("tree", "")),
        "heads": DEFAULT,
    }


def _dynamic(name: Any) -> dict[str, Any]:
    """Values of menu and slider for a dynamic tree; empty for others, and for one beyond the slider."""
    with suppress(MedusaError):
        if is_dynamic(name) and (nodes := dynamic_nodes(name)) <= MOST_NODES:
            return {"tree": DYNAMIC, "budget": nodes}
    return {}


def _held(item: Field[Any], value: Any) -> Any:
    """The value of a setting where its control can hold it, else the default."""
    low, high = item.metadata["low"], PAGE_HIGHEST.get(item.name, item.metadata["high"])
    if low is None or high is None:
        return value if type(value) is type(item.default) else item.default
    number = type(value) in (int, float) and low <= value <= high
    return value if number else item.default


def own_tree(selection: Selection) -> Topology:
    """The visitor's own tree. Raises MedusaError when there is none, or it is not a tree."""
    if not selection.choices:
        raise MedusaError("you have no tree of your own: make one in Lab, Trees, or choose another")
    return Topology.from_choices(selection.choices)


def check_prompt(prompt: str) -> None:
    """Raises MedusaError for a prompt that is empty, too long for the page or unreadable."""
    if not prompt or not prompt.strip():
        raise MedusaError("The prompt is empty: write a few words, or choose one of the examples.")
    if len(prompt) > MAX_PROMPT_CHARACTERS:
        raise MedusaError(
            f"The prompt has {len(prompt)} characters, the page takes {MAX_PROMPT_CHARACTERS}: shorten it."
        )
    check_characters(prompt, "the prompt")  # before a model is loaded for it


def menu_entries() -> list[tuple[str, str]]:
    """(title, name) of each drafter: Medusa's heads, others by title, then the one that proposes nothing."""
    first = GenerationConfig.method
    entries = [(method(name).title, name) for name in drafter_names()]
    return sorted(entries, key=lambda one: (one[1] != first, not method(one[1]).mark, one[0].casefold()))


BUDGET_ENTRIES = [("by node budget", BY_BUDGET), ("dynamic: regrown in each step", DYNAMIC)]


def tree_choices(own: Sequence[tuple[str, str]] = ()) -> list[tuple[str, str]]:
    """(label, name) of each tree, ``own`` after the first one, which is the default."""
    published = [(f"published: {name}", name) for name in published_trees()]
    auto = ("auto: fastest on this machine", AUTO)
    return [auto, *own, ("the heads’ own", DEFAULT), *BUDGET_ENTRIES, *published]


def whole_method(drafter: str, copies: bool) -> str:
    """The method's name; the tick has no effect on a drafter without weights to join."""
    joined = copies and drafter in drafter_names() and method(drafter).has_weights
    return f"{drafter}{PLUS}{COPYING}" if joined else drafter


def page_methods() -> list[str]:
    """The methods that the page measures together: each drafter, and each that also copies from the text."""
    return list(
        dict.fromkeys(whole_method(name, copies) for copies in (False, True) for name in drafter_names())
    )


def of_choice(names: Collection[str], copies: bool) -> list[str]:
    """The ``names`` that fit the tick: one per drafter, the plain one where its pair is missing."""
    wanted = {name: whole_method(name, copies) for name in drafter_names()}
    chosen = {whole if whole in names else name for name, whole in wanted.items()}
    return [name for name in names if name in chosen]


def parted_method(name: str) -> dict[str, Any]:
    """Values of menu and tick for a method, by the names of their controls."""
    first, *joining = drafters_of(name)
    return {"method": first, "copies": COPYING in joining}
