"""The records of one step of a trace, with what a step may not contradict in itself."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from medusa_core.acceptance.sampling import ENTROPY_GUARD

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Entropy = Annotated[float, Field(ge=-ENTROPY_GUARD * 1.01)]  # which the guard makes a little less than 0


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=(), strict=True, allow_inf_nan=False)


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


class AfterTrace(Record):
    """The target's likeliest tokens after a node, with p at the run's temperature, at 1 for a run at 0.

    ``log_z`` and ``entropy`` are lists over the run's ``temperatures``: what p is at another temperature.
    """

    node: Count
    token_ids: list[Count]
    texts: list[str]
    p: list[Share]
    log_z: list[Amount]
    entropy: list[Entropy]

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
    entropy: Entropy | None
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
    after: list[AfterTrace] = []  # of the nodes that judge others, and of the path's last
    path: list[int]
    emitted: list[Count]
    bonus: BonusTrace | None
    ms: MillisecondsTrace
    # For a drafter that reads a part of the target's cache: the rows that at least one of its layers saw, as
    # rising ranges [start, end). Missing where it reads all rows or none.
    drafter_rows: list[list[Count]] | None = None

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

    @model_serializer(mode="wrap")
    def _without_what_is_not_said(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = dump(self)
        if self.drafter_rows is None:
            del fields["drafter_rows"]
        return fields

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
