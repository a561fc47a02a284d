"""The trace of a run: plain numbers and strings that the page, exports and outside checks read.

``TraceBuilder`` turns steps into the records of ``format``, which reads them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from medusa_core.acceptance.verdict import Verdict, alive_nodes
from medusa_core.config import GenerationConfig
from medusa_core.decoding import PhaseTimes, Step
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.model.threads import cpu_threads
from medusa_core.trace.alternatives import (
    Answers,
    Penalised,
    PenalisedChoices,
    answers,
    recorded_rows,
    significant_all,
)
from medusa_core.trace.header import header_of
from medusa_core.trace.packed import (
    HIGHEST,
    PARTS,
    UNPACKED_VERSION,
    Record,
    Tables,
    by_parent,
    seen_rows,
    significant,
    unpacked,
)
from medusa_core.trace.run_record import RunRecord

# Steps whose numbers are computed together, which costs less than one by one, and the logits kept for them.
TOGETHER = 16
MOST_LOGITS = 1 << 23


@dataclass(frozen=True)
class _Rows:
    """Which places of a step are recorded; ``judges`` [N - 1] says which of them judged each other node."""

    nodes: list[int]
    index: torch.Tensor
    judges: list[int]


@dataclass(frozen=True)
class _Kept:
    """What is needed of a step once the next one has begun; ``logits`` are those of ``rows``."""

    parents: list[int]
    shape: int  # place in the table
    rows: _Rows
    cache_length: int
    tokens: list[int]
    draft_logp: torch.Tensor
    verdict: Verdict
    emitted: list[int]
    finished: bool
    ms: PhaseTimes
    logits: torch.Tensor
    drafter_rows: Sequence[tuple[int, int]] | None
    penalised: list[Penalised]


class TraceBuilder:
    """Collects the steps of one run. Their numbers are computed some steps later, or when a reader asks."""

    def __init__(self, engine: Engine, config: GenerationConfig, prompt: list[int]) -> None:
        self._engine = engine
        self._config = config
        self._texts: dict[int, int] = {}  # places of tokens
        self._tables = Tables()
        self._kept: list[_Kept] = []
        self._news: list[Record] | None = None  # steps that a following reader was not given yet
        self._summary = engine.summary(config)
        self._penalised = PenalisedChoices(prompt, config.penalty_window)
        self._header = header_of(engine, config, prompt)
        self.record = RunRecord(self._header, self._tables)

    @property
    def text(self) -> str:
        """The text so far, cut before the end-of-text token or a stop string."""
        return self._summary.text

    def begin(self) -> Record:
        """The record of a trace without steps and output, for a reader that follows a live run by `news`."""
        self._news = []
        return {"schema_version": UNPACKED_VERSION, **self._header, "steps": []}

    @cpu_threads(1)  # the forward in C goes on right behind it
    def add(self, step: Step) -> None:
        """Record a step."""
        self._summary.add(step)
        tree = step.tree
        rows = _rows_of(step)
        logits = step.logits.index_select(0, rows.index)
        self._kept.append(
            _Kept(
                parents=tree.parents,
                shape=self._tables.shape(tree.parents, (tuple(vars(each).values()) for each in tree.origins)),
                rows=rows,
                cache_length=step.cache_length,
                tokens=tree.tokens.tolist(),
                draft_logp=tree.draft_logp.clone(),
                verdict=step.verdict,
                emitted=step.emitted,
                finished=step.finish_reason is not None,
                ms=step.ms,
                logits=logits,
                drafter_rows=tree.drafter_rows,
                penalised=self._penalised.of(step, logits, rows.nodes, rows.index),
            )
        )
        if len(self._kept) >= TOGETHER or sum(kept.logits.numel() for kept in self._kept) >= MOST_LOGITS:
            self._compute()

    def news(self) -> Record:
        """Steps and entries of the tables since `begin` or the last call, in the compact form."""
        self._compute()
        steps, self._news = self._news or [], []
        return {**self._tables.grown(), "steps": steps}

    def ended(self) -> RunRecord:
        """The whole run. One that was broken off finishes as "cancelled"."""
        self._compute()
        self.record.output = self._summary.record()
        return self.record

    def finish(self) -> Record:
        """The whole RunTrace as a dictionary."""
        return unpacked(self.ended().packed())

    @cpu_threads(1)
    def _compute(self) -> None:
        """Make the records of the steps that were kept."""
        kept, self._kept = self._kept, []
        if not kept:
            return
        # Nodes in the order of the rows that judge them, as `answers` wants them.
        rows, tokens, order, first, node = [], [], [], 0, 0
        for step in kept:
            judges = step.rows.judges
            sequence = sorted(range(len(judges)), key=judges.__getitem__)
            rows += [first + judges[each] for each in sequence]
            tokens += [step.tokens[each + 1] for each in sequence]
            order += [node + each for each in sequence]
            first, node = first + len(step.rows.nodes), node + len(judges)
        judging, judged, places = (torch.tensor(each, dtype=torch.long) for each in (rows, tokens, order))
        logits = torch.cat([step.logits for step in kept])
        found = answers(logits, self._config.temperature, judging, judged)
        node_p = torch.empty_like(found.node_p).scatter_(0, places.to(found.node_p.device), found.node_p)
        numbers = _Numbers(found, node_p, torch.cat([step.draft_logp for step in kept]).exp())
        records = [self._record(step, numbers) for step in kept]
        self.record.steps.add(records)
        if self._news is not None:
            self._news += records

    def _record(self, step: _Kept, numbers: _Numbers) -> Record:
        parents, verdict, ms = step.parents, step.verdict, step.ms
        draft_p, p, entropy, after = numbers.take(len(step.tokens), step.rows)
        if verdict.statistics is not None:
            p = [None, *(significant(each, 6) for each in verdict.statistics.p[1:])]
            entropy = [None, *(significant(each, 6) for each in verdict.statistics.entropy[1:])]
        threshold: list[float | None] = [None] * len(p)
        if verdict.threshold:
            threshold[1:] = [significant(each, 6) for each in verdict.threshold[1:]]
        return {
            "length": step.cache_length,
            "shape": step.shape,
            "tokens": [self._token(token) for token in step.tokens],
            "draft_p": draft_p,
            "p": p,
            "entropy": by_parent(parents, entropy),
            "threshold": by_parent(parents, threshold),
            "passes": "".join("1" if passes else "0" for passes in verdict.passes),
            "reasons": [
                self._tables.place("reasons", reason, reason) for reason in _reasons(parents, verdict)
            ],
            "path": verdict.path,
            "emitted": len(step.emitted),
            "bonus": None if step.finished else self._token(verdict.bonus),
            "ms": [round(value, 4) for value in (ms.propose, ms.verify, ms.accept, ms.commit, ms.total)],
            "after": {
                **after,
                "tokens": [self._token(token) for token in after["tokens"]],
                **self._penalised_record(step),
            },
            **seen_rows(step.drafter_rows),
        }

    def _penalised_record(self, step: _Kept) -> Record:
        found = [[each.row, self._token(each.token), each.copies] for each in step.penalised]
        return {"penalised": found} if found else {}

    def _token(self, token: int) -> int:
        if (place := self._texts.get(token)) is None:
            place = self._texts[token] = self._tables.token(token, self._engine.token_text(token))
        return place


def _rows_of(step: Step) -> _Rows:
    nodes = recorded_rows(step.tree.parents, step.verdict.path)
    places = {node: place for place, node in enumerate(nodes)}
    judges = [places[parent] for parent in step.tree.parents[1:]]
    return _Rows(nodes, torch.tensor(nodes, device=step.logits.device), judges)


class _Numbers:
    """The numbers of several steps as lists, handed out step by step."""

    def __init__(self, found: Answers, node_p: torch.Tensor, draft_p: torch.Tensor) -> None:
        """``node_p`` of all nodes but the roots, ``draft_p`` of all nodes."""
        self._draft_p, self._p = iter(significant_all(draft_p, 6)), iter(significant_all(node_p, 6))
        self._entropy = iter(significant_all(found.own_entropy, 6))
        heights = -found.p.log().clamp(min=-HIGHEST / PARTS)
        columns = {"tokens": found.tokens}
        for name, values in (("heights", heights), ("log_z", found.log_z), ("entropy", found.entropy)):
            columns[name] = (values * PARTS).round().int()
        self._after = {name: iter(values.flatten().tolist()) for name, values in columns.items()}
        self._widths = {name: values.shape[1] for name, values in columns.items()}

    def take(
        self, nodes: int, rows: _Rows
    ) -> tuple[list[float | None], list[float | None], list[float | None], Record]:
        """The next step's numbers: each node's p of the drafter, p and entropy of the model, and "after"."""
        count = len(rows.nodes)
        draft_p, entropy = list(islice(self._draft_p, nodes)), list(islice(self._entropy, count))
        after = {name: list(islice(self._after[name], count * width)) for name, width in self._widths.items()}
        return (
            [None, *draft_p[1:]],
            [None, *islice(self._p, nodes - 1)],
            [None, *(entropy[judge] for judge in rows.judges)],
            {"nodes": rows.nodes, **after},
        )


def _reasons(parents: Sequence[int], verdict: Verdict) -> list[str]:
    """Why each node was kept or not, in a few words."""
    if verdict.reasons is not None:
        return ["root", *verdict.reasons[1:]]
    alive = alive_nodes(parents, verdict.passes)
    on_path = set(verdict.path)
    reasons = ["root"]
    for node in range(1, len(parents)):
        if node in on_path:
            reasons.append("accepted")
        elif alive[node]:
            reasons.append("not on the longest path")
        elif not verdict.passes[node]:
            reasons.append(verdict.failure)
        else:
            reasons.append("parent rejected")
    return reasons


def write_trace(run: RunRecord, path: Path) -> None:
    """Write the trace of a run in the compact form. Raises MedusaError when that fails."""
    try:
        with path.open("wb") as file:
            file.writelines(run.texts())
            file.write(b"\n")
    except OSError as error:
        raise MedusaError(f"cannot write the trace {path}: {error.strerror}: name another file") from error
