"""From what the page's controls hold to the engine's settings, with the page's own limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from medusa_core.acceptance import rule_names
from medusa_core.config import GenerationConfig
from medusa_core.drafters import method, method_names
from medusa_core.drafters.medusa import AUTO
from medusa_core.errors import MedusaError
from medusa_core.options import check_options, option_defaults, option_kinds
from medusa_core.text.prompt_check import check_characters
from medusa_core.trees.tree import Topology, published_trees
from ui.records.selection import DEFAULT, YOURS, Selection

MAX_PROMPT_CHARACTERS = 8000
MOST_WINDOW = 4096  # tokens that the slider of the penalty's window goes to
MOST_TOKENS = 512  # limit of a run that is repeated, or where visitors share one engine
LONGEST_RUN = 20_000  # limit of a run in the linked view of one's own page
PAGE_HIGHEST = {"max_new_tokens": MOST_TOKENS, "penalty_window": MOST_WINDOW}
OF_A_RUN = ("temperature", "max_new_tokens", "seed", "penalty", "penalty_window", "min_p", "ignore_eos")
BY_BUDGET = "node budget"
MOST_NODES = 64  # limit of a tree by budget, the root included


@dataclass(frozen=True)
class RunSettings:
    """What the controls hold for one run, each value as gradio hands it over."""

    acceptance: str
    temperature: float
    max_new_tokens: float
    tree: str = AUTO
    budget: float = 16  # nodes of the tree `BY_BUDGET`, the root included
    seed: float | None = 0
    heads: str = DEFAULT
    method: str = GenerationConfig.method
    selection: Selection = field(default_factory=Selection)
    penalty: float = GenerationConfig.penalty
    penalty_window: float = GenerationConfig.penalty_window
    min_p: float = GenerationConfig.min_p
    ignore_eos: bool = GenerationConfig.ignore_eos
    options: Mapping[str, Any] = field(default_factory=dict)  # settings of the rule and the drafter, by name

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RunSettings:
        """From the values of the controls by name."""
        own = {item.name for item in fields(cls)} - {"options"}
        options = {name: value for name, value in values.items() if name not in own}
        return cls(**{name: value for name, value in values.items() if name in own}, options=options)


def make_config(settings: RunSettings, most: int = MOST_TOKENS) -> GenerationConfig:
    """The engine's settings from the page's. Raises MedusaError for values outside their range.

    ``most`` are the new tokens that the page allows for such a run.
    """
    made_here = settings.tree in (BY_BUDGET, YOURS)
    if not made_here and settings.tree not in (AUTO, DEFAULT, *published_trees()):
        # The engine would also take a file's name here; a visitor of the page must not name files.
        raise MedusaError(f"no tree is called {settings.tree!r}: choose one of the list")
    tokens = int(settings.max_new_tokens)
    check_tokens(tokens, most)
    # A slider hands a whole number over as a float.
    options = {
        name: type(default)(settings.options[name])
        for name, default in option_defaults().items()
        if name in settings.options
    }
    config = GenerationConfig.of(
        method=settings.method,
        acceptance=settings.acceptance,
        temperature=float(settings.temperature),
        max_new_tokens=tokens,
        seed=int(settings.seed or 0),
        penalty=float(settings.penalty),
        penalty_window=int(settings.penalty_window),
        min_p=float(settings.min_p),
        ignore_eos=settings.ignore_eos,
        **options | {"tree": DEFAULT if made_here else settings.tree},
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
    """What the page's controls hold for a run like this one, prompt included; the node budget stays as it is.

    A tree that has no name in the menu was chosen for the heads and a machine: here that is "auto". What the
    controls cannot hold, as of a recording that another version of the engine made, is left at its default.
    """
    config = trace["config"]
    nodes = {tuple(node) for node in config["tree"] or ()}
    named = (name for name, tree in published_trees().items() if {tuple(node) for node in tree} == nodes)
    drafter, rule = config["drafter"], config["acceptance"]
    given = {**drafter["settings"], **rule["settings"], **config}
    name = drafter["name"] if drafter["name"] in method_names() else GenerationConfig.method
    kinds = (*option_kinds(), method(name).settings, GenerationConfig)
    items = {item.name: item for kind in kinds for item in fields(kind)}
    # The page has no control for how typical acceptance picks a root.
    names = [*OF_A_RUN, *(name for name in option_defaults() if name != "root")]
    return {
        "prompt": trace["prompt"]["text"],
        **{one: _held(items[one], given.get(one, items[one].default)) for one in names},
        "method": name,
        "acceptance": rule["name"] if rule["name"] in rule_names() else GenerationConfig.acceptance,
        "tree": next(named, AUTO),
        "heads": DEFAULT,
    }


def _held(item: Field[Any], value: Any) -> Any:
    """The value of a setting where its control can hold it, else the default."""
    low, high = item.metadata["low"], PAGE_HIGHEST.get(item.name, item.metadata["high"])
    if low is None or high is None:
        return value if type(value) is type(item.default) else item.default
    number = type(value) in (int, float) and low <= value <= high
    return value if number else item.default


def own_tree(selection: Selection) -> Topology:
    """The visitor's own tree. Raises MedusaError when there is none, or it is no tree."""
    if not selection.choices:
        raise MedusaError("there is no tree of yours: make one in the Trees tab, or choose another")
    return Topology.from_choices(selection.choices)


def check_prompt(prompt: str) -> None:
    """Raises MedusaError for a prompt that is empty, too long for the page or not to be read."""
    if not prompt or not prompt.strip():
        raise MedusaError("The prompt is empty: write a few words, or choose one of the examples.")
    if len(prompt) > MAX_PROMPT_CHARACTERS:
        raise MedusaError(
            f"The prompt has {len(prompt)} characters, the page takes {MAX_PROMPT_CHARACTERS}: shorten it."
        )
    check_characters(prompt, "the prompt")  # before a model is loaded for it
