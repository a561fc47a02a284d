"""The compact form of a trace, version 3 of the file: what repeats stands once, and records are lists.

It takes a fifth of the room that the records take. `unpacked` gives the records of `format` again; the page
has the same in `assets/web/unpack.js`. The file holds what a RunTrace holds, but

tokens   [id, text] of each token that occurs; steps name a token by its place here
origins  [by, head, rank, label, note, back] of each origin, the last one left out where it is none
shapes   {"parents", "origins"} of each tree, -1 for the root's parent, origins by their places
reasons  the reasons why nodes were kept or not
steps    {"length": cache_length, "shape", "tokens": [N], "draft_p": [N], "p": [N], "entropy", "threshold",
         "passes": "110…", "reasons": [N], "path", "emitted": how many, "bonus": token or null, "ms", "after"}
         and "drafter_rows" as in the records, where a step has them
after    of a step: the recorded "nodes" and, one behind the other, the model's likeliest "tokens", their
         "heights" −ln p, "log_z" and "entropy", these three in ten-thousandths; "penalised", only where
         there is one, [row, token, copies] of each place where the penalty put another token first

`entropy` and `threshold` belong to the place where a node was judged, its parent: they are lists over the
parents in the order of their first child, over all nodes where children of one parent differ, and empty where
there are none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from medusa_core.trees.tree import depths_of

PACKED_VERSION = 3
UNPACKED_VERSION = 2
TABLES = ("tokens", "origins", "shapes", "reasons")
PHASES = ("propose", "verify", "accept", "commit", "total")
TOKEN = ("token_id", "text")
ORIGIN = ("by", "head", "rank", "label", "note", "back")  # the last one is left out where it is none
PARTS = 10_000  # of one, in the numbers of "after"
HIGHEST = 80 * PARTS  # of −ln p: a smaller p is as good as 0
SMALLEST = math.exp(-HIGHEST / PARTS)
ENTRY_BYTES, NUMBER_BYTES = 300, 20  # about what a table takes for an entry, and for each part of its key
MOST_CHARACTERS = 2_000  # limit of a token's text: a small file must not become a huge record

Record = dict[str, Any]


class Tables:
    """What the steps of a run name by its place, collected while they are packed."""

    def __init__(self) -> None:
        self._places: dict[str, dict[Any, int]] = {name: {} for name in TABLES}
        self._entries: dict[str, list[Any]] = {name: [] for name in TABLES}
        self._told = dict.fromkeys(TABLES, 0)
        self.size = 0  # about how many bytes they take

    def place(self, table: str, key: Any, entry: Any) -> int:
        """The place of what ``key`` stands for, in ``table``; ``entry`` is how the file holds it."""
        places = self._places[table]
        if (found := places.get(key)) is None:
            found = places[key] = len(places)
            self._entries[table].append(entry)
            self.size += ENTRY_BYTES + NUMBER_BYTES * (len(key) if isinstance(key, tuple) else 1)
        return found

    def token(self, token: int, text: str) -> int:
        """The place of a token with its text."""
        return self.place("tokens", (token, text), [token, text])

    def shape(self, parents: Sequence[int], origins: Iterable[Sequence[Any]]) -> int:
        """The place of a tree's shape; ``origins`` are the fields of each node's origin, as in ORIGIN."""
        fields = [each[:-1] if each[-1] is None else each for each in map(list, origins)]
        places = [self.place("origins", tuple(each), each) for each in fields]
        return self.place("shapes", (*parents, None, *places), {"parents": list(parents), "origins": places})

    def whole(self) -> Record:
        """All entries so far."""
        return {name: list(entries) for name, entries in self._entries.items()}

    def grown(self) -> Record:
        """The entries since the last call."""
        news = {name: entries[self._told[name] :] for name, entries in self._entries.items()}
        self._told = {name: len(entries) for name, entries in self._entries.items()}
        return news


def packed(trace: Record) -> Record:
    """A RunTrace dictionary in the compact form; one without output, as of a run that goes on, as well."""
    tables = Tables()
    steps = [packed_step(step, tables) for step in trace["steps"]]
    head = {name: value for name, value in trace.items() if name not in ("schema_version", "steps", "output")}
    return compact(head, tables.whole(), steps, trace.get("output"))


def compact(head: Record, tables: Record, steps: list[Record], output: Record | None) -> Record:
    """The compact form from its parts. ``head`` is what stands before the steps."""
    whole = {**head, "schema_version": PACKED_VERSION, **tables, "steps": steps}
    return whole if output is None else {**whole, "output": output}


def packed_step(step: Record, tables: Tables) -> Record:
    """A StepTrace dictionary in the compact form."""
    nodes = step["nodes"]
    parents = [-1 if node["parent"] is None else node["parent"] for node in nodes]
    token, after = tables.token, step.get("after", [])
    return {
        "length": step["cache_length"],
        "shape": tables.shape(parents, ([node["origin"].get(name) for name in ORIGIN] for node in nodes)),
        "tokens": [token(node["token_id"], node["text"]) for node in nodes],
        "draft_p": [node["draft_p"] for node in nodes],
        "p": [node["p"] for node in nodes],
        "entropy": by_parent(parents, [node["entropy"] for node in nodes]),
        "threshold": by_parent(parents, [node["threshold"] for node in nodes]),
        "passes": "".join("1" if node["passes"] else "0" for node in nodes),
        "reasons": [tables.place("reasons", node["reason"], node["reason"]) for node in nodes],
        "path": step["path"],
        "emitted": len(step["emitted"]),
        "bonus": step["bonus"] and token(step["bonus"]["token_id"], step["bonus"]["text"]),
        "ms": [step["ms"][name] for name in PHASES],
        "after": {
            "nodes": [row["node"] for row in after],
            "tokens": [
                token(*each) for row in after for each in zip(row["token_ids"], row["texts"], strict=True)
            ],
            "heights": [round(-math.log(max(p, SMALLEST)) * PARTS) for row in after for p in row["p"]],
            "log_z": [round(value * PARTS) for row in after for value in row["log_z"]],
            "entropy": [round(value * PARTS) for row in after for value in row["entropy"]],
            **_packed_penalised(after, tables),
        },
        **seen_rows(step.get("drafter_rows")),
    }


def seen_rows(ranges: Sequence[Sequence[int]] | None) -> Record:
    """The field of a step for the cache rows that its drafter saw; none where nothing was said of them."""
    return {} if ranges is None else {"drafter_rows": [list(each) for each in ranges]}


def _packed_penalised(after: Sequence[Record], tables: Tables) -> Record:
    found = [
        [place, tables.token(own["token_id"], own["text"]), own["copies"]]
        for place, row in enumerate(after)
        if (own := row.get("penalised")) is not None
    ]
    return {"penalised": found} if found else {}


def by_parent(parents: Sequence[int], values: Sequence[float | None]) -> list[float | None]:
    """One value a parent where its children agree, none where there are none, else the values as they are."""
    if all(value is None for value in values):
        return []
    known: dict[int, float | None] = {}
    if values[0] is not None:
        return list(values)
    for parent, value in zip(parents[1:], values[1:], strict=True):
        if known.setdefault(parent, value) != value:
            return list(values)
    return list(known.values())


def unpacked(trace: Record) -> Record:
    """The records of a compact trace. Raises ValueError for one that does not hold together."""
    try:
        tables = {name: trace[name] for name in TABLES}
        _check_texts(tables["tokens"])
        tables["origins"] = [_unpacked_origin(fields) for fields in tables["origins"]]
        steps = [_unpacked_step(index, step, tables) for index, step in enumerate(trace["steps"])]
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is missing") from error
    except IndexError as error:
        raise ValueError(
            "a step names a node, token, tree, origin or reason that its table does not hold"
        ) from error
    except (TypeError, AttributeError, OverflowError) as error:
        raise ValueError("tables or steps are not the lists they should be") from error
    own = {name: value for name, value in trace.items() if name not in TABLES}
    return {**own, "schema_version": UNPACKED_VERSION, "steps": steps}


def _unpacked_origin(fields: list[Any]) -> Record:
    whole = fields if len(fields) == len(ORIGIN) else [*fields, None]
    return dict(zip(ORIGIN, whole, strict=True))


def _check_texts(tokens: list[list[Any]]) -> None:
    longest = max((len(text) for _, text in tokens), default=0)
    if longest > MOST_CHARACTERS:
        raise ValueError(f"the text of a token has {longest} characters, it may have {MOST_CHARACTERS}")


def _unpacked_step(index: int, step: Record, tables: Record) -> Record:
    shape = tables["shapes"][_place(step["shape"])]
    parents, path = shape["parents"], step["path"]
    _check_places(path, step["tokens"], step["reasons"], shape["origins"])
    tokens, origins, reasons = tables["tokens"], tables["origins"], tables["reasons"]
    on_path = set(path)
    columns = zip(
        parents, depths_of(parents), shape["origins"], step["tokens"], step["draft_p"], step["p"],
        _of_nodes(parents, step["entropy"]), _of_nodes(parents, step["threshold"]), step["passes"],
        step["reasons"],
        strict=True,
    )  # fmt: skip
    nodes = [
        {
            "id": node, "parent": None if parent < 0 else parent, "depth": depth,
            "token_id": tokens[token][0], "text": tokens[token][1], "origin": origins[origin],
            "draft_p": draft_p, "p": p, "entropy": entropy, "threshold": threshold,
            "passes": passed == "1", "accepted": node in on_path, "reason": reasons[reason],
        }
        for node, (parent, depth, origin, token, draft_p, p, entropy, threshold, passed, reason)
        in enumerate(columns)
    ]  # fmt: skip
    bonus = step["bonus"]
    return {
        "index": index,
        "cache_length": step["length"],
        "nodes": nodes,
        "after": _unpacked_after(step["after"], tokens),
        "path": path,
        "emitted": [nodes[node]["token_id"] for node in path[: _place(step["emitted"])]],
        "bonus": None if bonus is None else dict(zip(TOKEN, tokens[_place(bonus)], strict=True)),
        "ms": dict(zip(PHASES, step["ms"], strict=True)),
        **seen_rows(step.get("drafter_rows")),
    }


def _unpacked_after(after: Record, tokens: list[list[Any]]) -> list[Record]:
    count = len(after["nodes"])
    _check_places(after["tokens"])
    columns = {name: _in_rows(after[name], count) for name in ("tokens", "heights", "log_z", "entropy")}
    penalised = {
        _place(row): {**dict(zip(TOKEN, tokens[_place(token)], strict=True)), "copies": copies}
        for row, token, copies in after.get("penalised", ())
    }
    if penalised and max(penalised) >= count:
        raise ValueError(f"{max(penalised)} is none of the {count} places of a step")
    return [
        {
            "node": node,
            "token_ids": [tokens[place][0] for place in places],
            "texts": [tokens[place][1] for place in places],
            "p": [significant(math.exp(-height / PARTS), 5) for height in heights],
            "log_z": [value / PARTS for value in log_z],
            "entropy": [value / PARTS for value in entropy],
            **({"penalised": penalised[row]} if row in penalised else {}),
        }
        for row, (node, places, heights, log_z, entropy) in enumerate(
            zip(after["nodes"], *columns.values(), strict=True)
        )
    ]


def _in_rows(values: Sequence[int], count: int) -> list[Sequence[int]]:
    """The values in rows of equal length."""
    width = len(values) // count if count else 0
    if width * count != len(values):
        raise ValueError(f"{len(values)} numbers cannot be those of {count} places")
    return [values[row * width : (row + 1) * width] for row in range(count)]


def _of_nodes(parents: Sequence[int], values: Sequence[float | None]) -> Sequence[float | None]:
    """The opposite of `by_parent`."""
    if not values:
        return [None] * len(parents)
    if len(values) == len(parents):
        return values
    known: dict[int, float | None] = {}
    rest = iter(values)
    spread = [
        None,
        *(
            known[parent] if parent in known else known.setdefault(parent, next(rest, None))
            for parent in parents[1:]
        ),
    ]
    if len(known) != len(values):
        raise ValueError(f"{len(values)} numbers for {len(known)} places where nodes are judged")
    return spread


def _place(value: int) -> int:
    _check_places([value])
    return value


def _check_places(*lists: Sequence[int]) -> None:
    for places in lists:
        if places and min(places) < 0:
            raise ValueError(f"{min(places)} is not a place in a table or tree")


def significant(value: float, digits: int) -> float | None:
    """The value with so many significant digits; NaN becomes null."""
    return float(f"{value:.{digits}g}") if value == value else None  # noqa: PLR0124 - only NaN differs from itself
