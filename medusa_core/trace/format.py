"""The records of a trace, versioned by ``schema_version``, and the reader of its files.

Files are written in the compact form of `packed`, version 3, and become records that say 2. Those of version
2, which hold these records as they are, and of version 1, which knew Medusa's heads alone, are still read.

The pydantic models say what is wrong with a bad file: wrong kinds, numbers that are none or out of range, and
steps that contradict themselves or each other.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from medusa_core.acceptance.sampling import ENTROPY_GUARD
from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import read_bytes
from medusa_core.trace.asked import Amount, ConfigTrace, Count, Record, Share
from medusa_core.trace.packed import PACKED_VERSION, UNPACKED_VERSION, unpacked
from medusa_core.trace.version1 import upgraded

_Entropy = Annotated[float, Field(ge=-ENTROPY_GUARD * 1.01)]  # the guard makes it a little less than 0


class ModelTrace(Record):
    """What was loaded.

    ``context`` positions, by ``extend``, where that is more than the model was trained with; ``window``: how
    many positions every layer sees, where that is not all of them; ``exact``: whether a guess gets the bits
    that its token gets alone.
    """

    name: str
    base: str
    heads: str | None
    dtype: str
    device: str
    parameters: Count
    context: Count | None = Field(default=None, exclude_if=lambda value: value is None)
    extend: Literal["yarn", "window"] | None = Field(default=None, exclude_if=lambda value: value is None)
    window: Count | None = Field(default=None, exclude_if=lambda value: value is None)
    exact: bool = Field(default=False, exclude_if=lambda value: not value)

    @model_validator(mode="after")
    def _context_is_whole(self) -> ModelTrace:
        if (self.context is None) != (self.extend is None) or (self.extend == "window" and not self.window):
            raise ValueError("context, extend and window do not say together how far the model sees")
        return self


class PromptTrace(Record):
    """The prompt; ``text`` is what its ids decode to, ``texts`` what each does by itself, if it is said."""

    text: str
    token_ids: list[Count]
    texts: list[str] = Field(default_factory=list)


class OriginTrace(Record):
    """Who proposed a node: the drafter's name, "" for the root; head and rank for drafters that have such.

    ``back``, for copied guesses: how many tokens before the guess's own place the same token stands.
    """

    by: str
    head: Count | None = None
    rank: Count | None = None
    label: str = ""
    note: str = ""
    back: Count | None = None


class PenalisedTrace(Record):
    """The model's own likeliest token after a node where the contextual penalty put another one before it.

    ``copies`` is how often it stands in the window there.
    """

    token_id: Count
    text: str
    copies: Annotated[int, Field(ge=1)]


class AfterTrace(Record):
    """The target's likeliest tokens after a node.

    ``p`` is at the run's temperature; for a greedy run (temperature 0) it is at temperature 1.

    ``log_z`` and ``entropy`` are lists over the run's ``temperatures``: what p is at another temperature. All
    are of the processed logits, which the verdict was made from.
    """

    node: Count
    token_ids: list[Count]
    texts: list[str]
    p: list[Share]
    log_z: list[Amount]
    entropy: list[_Entropy]
    penalised: PenalisedTrace | None = Field(default=None, exclude_if=lambda value: value is None)

    @model_validator(mode="after")
    def _lists_fit(self) -> AfterTrace:
        sizes = len(self.token_ids), len(self.texts), len(self.p)
        if len(set(sizes)) > 1:
            raise ValueError(f"{sizes[0]} tokens, {sizes[1]} texts and {sizes[2]} probabilities after a node")
        return self


class NodeTrace(Record):
    """One candidate; p, entropy (nats) and threshold are the target's at its parent, the root has none."""

    id: int
    parent: int | None
    depth: int
    token_id: Count
    text: str
    origin: OriginTrace
    draft_p: Share | None
    p: Share | None
    entropy: _Entropy | None
    threshold: Share | None
    passes: bool
    accepted: bool
    reason: str


class BonusTrace(Record):
    """The token chosen after the accepted path: the next step's root."""

    token_id: Count
    text: str


class MillisecondsTrace(Record):
    """Milliseconds of a step by phase."""

    propose: Amount
    verify: Amount
    accept: Amount
    commit: Amount
    total: Amount


class StepTrace(Record):
    """One decoding step."""

    index: Count
    cache_length: Count
    nodes: list[NodeTrace]
    after: list[AfterTrace] = Field(
        default_factory=list
    )  # for nodes that judge others, and for the path's last
    path: list[int]
    emitted: list[Count]
    bonus: BonusTrace | None
    ms: MillisecondsTrace
    # For a drafter that reads a part of the target's cache: the rows that at least one of its layers saw, as
    # rising ranges [start, end). Missing where it reads all rows or none.
    drafter_rows: list[list[Count]] | None = Field(default=None, exclude_if=lambda value: value is None)

    @model_validator(mode="after")
    def _rows_are_ranges(self) -> StepTrace:
        at = 0
        for each in self.drafter_rows or ():
            if len(each) != 2 or not at <= each[0] < each[1] <= self.cache_length:
                raise ValueError(
                    f"drafter_rows of step {self.index} has {each} behind row {at}: ranges [start, end) rise "
                    f"and end within the {self.cache_length} cached rows"
                )
            at = each[1]
        return self

    @model_validator(mode="after")
    def _is_a_tree(self) -> StepTrace:
        for place, node in enumerate(self.nodes):
            if node.id != place:
                raise ValueError(f"node {place} of step {self.index} has id {node.id}: ids count from 0")
            if place and not (node.parent is not None and 0 <= node.parent < place):
                raise ValueError(
                    f"node {place} of step {self.index} has parent {node.parent}, not an earlier node"
                )
            if not place and node.parent is not None:
                raise ValueError(f"the root of step {self.index} has parent {node.parent}: it must have none")
            if (node.origin.by == "") != (place == 0):
                raise ValueError(
                    f"node {place} of step {self.index} has origin {node.origin.by!r}: every node but the "
                    "root has its drafter's name"
                )
            depth = 0 if node.parent is None else self.nodes[node.parent].depth + 1
            if node.depth != depth:
                raise ValueError(
                    f"node {place} of step {self.index} has depth {node.depth}, its parents make it {depth}"
                )
        parents = [None, *self.path[:-1]]
        if not self.path or any(
            not 0 <= node < len(self.nodes) or self.nodes[node].parent != parent
            for node, parent in zip(self.path, parents, strict=True)
        ):
            raise ValueError(f"path {self.path} of step {self.index} does not lead down from the root")
        return self

    @model_validator(mode="after")
    def _is_the_verdict_on_it(self) -> StepTrace:
        path = set(self.path)
        for node in self.nodes:
            on_path = node.id in path
            if node.accepted != on_path or (on_path and not node.passes):
                raise ValueError(
                    f"node {node.id} of step {self.index} is {'on' if on_path else 'off'} the path, but "
                    f"accepted is {node.accepted} and passes {node.passes}"
                )
        tokens = [self.nodes[node].token_id for node in self.path]
        if not self.emitted or tokens[: len(self.emitted)] != self.emitted:
            raise ValueError(f"step {self.index} emits {self.emitted}, the tokens of its path are {tokens}")
        return self


class OutputTrace(Record):
    """The result: new tokens only. ``seconds`` adds up the steps; reading the prompt is not counted."""

    text: str
    token_ids: list[Count]
    finish_reason: Literal["eos", "stop", "length", "context", "cancelled"]
    new_tokens: Count
    steps: Count
    tokens_per_step: Amount
    tokens_per_second: Amount
    seconds: Amount


class SizesTrace(Record):
    """Sizes of the target: hidden states d, vocabulary V and layers."""

    hidden: Count
    vocabulary: Count
    layers: Count


class RunTrace(Record):
    """A whole run. Fields with a default are not in every file of this version."""

    schema_version: Literal[2]
    model: ModelTrace
    config: ConfigTrace
    prompt: PromptTrace
    sizes: SizesTrace | None = None
    temperatures: list[Annotated[float, Field(gt=0)]] = Field(default_factory=list)
    steps: list[StepTrace]
    output: OutputTrace

    @model_validator(mode="after")
    def _is_one_run(self) -> RunTrace:
        for place, step in enumerate(self.steps):
            if step.index != place:
                raise ValueError(f"step {place} has index {step.index}: steps count from 0")
        for step in self.steps:
            for after in step.after:
                found = {len(after.log_z), len(after.entropy)}
                if found != {len(self.temperatures)} or after.node >= len(step.nodes):
                    raise ValueError(
                        f"after node {after.node} of step {step.index} there are {sorted(found)} numbers: "
                        f"the step has {len(step.nodes)} nodes, the run {len(self.temperatures)} temperatures"
                    )
        for step, following in itertools.pairwise(self.steps):
            if step.bonus is None or step.bonus.token_id != following.nodes[0].token_id:
                raise ValueError(
                    f"the bonus token of step {step.index} is not the root of step {following.index}"
                )
            length = step.cache_length + len(step.path)
            if len(step.emitted) != len(step.path) or following.cache_length != length:
                raise ValueError(
                    f"step {step.index} has a path of {len(step.path)} tokens and emits {len(step.emitted)}, "
                    f"the cache grows from {step.cache_length} to {following.cache_length}"
                )
        emitted = [token for step in self.steps for token in step.emitted]
        output = self.output
        if (output.token_ids, output.new_tokens, output.steps) != (emitted, len(emitted), len(self.steps)):
            raise ValueError(
                f"the output says {output.new_tokens} new tokens in {output.steps} steps, the steps emit "
                f"{len(emitted)} in {len(self.steps)}: both must be the same tokens"
            )
        return self


WRITERS = "generate --trace or Share"  # they write the files that are read here
_AGAIN = "record the run again"
_OTHER_FILE = f"take a file that {WRITERS} wrote"


def read_trace(path: str | Path) -> RunTrace:
    """Read and check a trace file of any version. Raises MedusaError that says where it is wrong."""
    try:
        data = read_bytes(Path(path))
    except OSError as error:
        raise MedusaError(
            f"cannot read the trace {path}: {error.strerror}: name a file that {WRITERS} wrote"
        ) from error
    return parse_trace(data, str(path))


def parse_trace(data: bytes, name: str) -> RunTrace:
    """The trace in a file's bytes, as `read_trace`; ``name`` is what a message calls it."""
    try:
        trace = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MedusaError(f"{name} is not a trace ({reason_of(error)}): {_OTHER_FILE}") from error
    if not isinstance(trace, dict):
        raise MedusaError(f"{name} is not a trace (it is not a JSON object): {_OTHER_FILE}")
    stated = trace.get("schema_version")
    if type(stated) is int and stated > PACKED_VERSION:
        raise MedusaError(
            f"{name} is a trace of version {stated}, versions 1 to {PACKED_VERSION} are read here: "
            "update this program, or record the run again"
        )
    version = stated if type(stated) is int and stated in _UPGRADES else UNPACKED_VERSION
    try:
        json.dumps(trace, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise MedusaError(f"{name} has half a character in a text: {_AGAIN}") from error
    try:
        return RunTrace.model_validate(_UPGRADES.get(version, dict)(trace))
    except ValidationError as error:
        first = error.errors()[0]
        what = "not a trace" if stated is None else f"not a trace of version {version}"
        place = ".".join(map(str, first["loc"])) or "the whole"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise MedusaError(f"{name} is {what}: {place}: {first['msg']}{more}; {_AGAIN}") from error
    except ValueError as error:
        raise MedusaError(f"{name} is not a trace of version {version}: {error}; {_AGAIN}") from error


_UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: upgraded, PACKED_VERSION: unpacked}
