"""Whole greedy steps of one text in one call each: ``greedy.c``.

N nodes · V vocabulary · d hidden size
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from medusa_core.llama import structures
from medusa_core.llama.cache import LlamaCache
from medusa_core.llama.heads import Heads
from medusa_core.llama.model import Attending, Llama, Results
from medusa_core.model.rotary import Rotations
from medusa_core.trees.token_tree import TokenTree


@dataclass(frozen=True)
class Guessing:
    """How the next tree is filled: nothing but the root, or the best ``ranks`` guesses of ``levels`` heads.

    ``places`` [N] tells for each node what it holds: 0 the root, else 1 + the number of a guess in
    [levels, ranks].
    """

    places: Sequence[int]
    heads: Heads | None = None
    levels: int = 0
    ranks: int = 0


class Made(NamedTuple):
    """What a step leaves. The rows of the accepted path are in their places."""

    tokens: torch.Tensor  # [N]
    on_host: list[int]  # the same
    draft_logp: torch.Tensor  # [N]
    logits: torch.Tensor  # [N, V]
    features: torch.Tensor  # [N, d], [N, 0] without heads
    choices: list[int]  # the token behind each node
    path: list[int]  # the accepted nodes
    verify_ms: float
    propose_ms: float  # time for proposing the next step's tree


class GreedySteps:
    """The steps of trees of one shape over one cache, whose buffers must stay where they are."""

    def __init__(
        self,
        model: Llama,
        table: Rotations,
        cache: LlamaCache,
        shape: TokenTree,
        guessing: Guessing,
    ) -> None:
        """``table`` has the rotations of the positions that are to come."""
        self._model, self._cache = model, cache
        self._size, self._guessing = shape.size, guessing
        self._positions = len(table.cos) - max(shape.depths)  # where a root may stand
        parents, depths, places, positions = torch.tensor(
            [shape.parents, shape.depths, guessing.places, [0] * shape.size]
        )
        numbers = ctypes.c_int64 * shape.size
        # Python reads them faster than tensors.
        self._next, self._choices, self._path = numbers(), numbers(), numbers()
        self._next_logp = torch.zeros(shape.size)
        guesses = torch.empty(guessing.levels * guessing.ranks, dtype=torch.long)
        guesses_logp = torch.empty(len(guesses))
        needed = guessing.heads.work_bytes(guessing.levels, 1) if guessing.heads else 0
        work = torch.empty(max(needed, shape.size), dtype=torch.uint8)
        tokens, _, logits, features = self._room()
        hidden = features if guessing.heads else None
        attending = Attending(shape.size, cache, shape.mask.contiguous(), depths)
        results = Results(logits, [shape.size], hidden)
        self._batch = model.batch(tokens, positions, table, [attending], results, keys=cache.rows)
        self._threads = model.library.most_threads  # threads that the work memory has room for
        self._step = structures.Greedy(
            model=ctypes.pointer(model.structure),
            batch=ctypes.pointer(self._batch),
            heads=ctypes.pointer(guessing.heads.structure) if guessing.heads else None,
            nodes=shape.size,
            levels=guessing.levels,
            ranks=guessing.ranks,
            parents=parents.data_ptr(),
            depths=depths.data_ptr(),
            places=places.data_ptr(),
            positions=positions.data_ptr(),
            choices=ctypes.addressof(self._choices),
            next=ctypes.addressof(self._next),
            path=ctypes.addressof(self._path),
            next_logp=self._next_logp.data_ptr(),
            guesses=guesses.data_ptr(),
            guesses_logp=guesses_logp.data_ptr(),
            work=work.data_ptr(),
        )
        self._held = parents, depths, places, positions, guesses, guesses_logp, work

    def begin(self, tokens: torch.Tensor, draft_logp: torch.Tensor) -> None:
        """The next tree holds ``tokens`` [N], of which the drafter is as sure as ``draft_logp`` [N] says."""
        self._next[:] = tokens.tolist()
        self._next_logp.copy_(draft_logp)

    def reaches(self, position: int) -> bool:
        """Whether the root of a step may stand there, on as many threads as there are now."""
        return position < self._positions and self._model.library.most_threads <= self._threads

    def run(self) -> Made:
        """Make the step of the next tree behind the committed rows, which it ``reaches`` from."""
        step, batch, library = self._step, self._batch, self._model.library
        tokens, logp, logits, features = self._room()
        batch.tokens = step.tokens = tokens.data_ptr()
        batch.logits, step.logp = logits.data_ptr(), logp.data_ptr()
        if self._guessing.heads:
            batch.hidden = features.data_ptr()
        batch.threads, batch.part[0].length = library.threads, self._cache.length - self._cache.first
        step.position, on_host = self._cache.position, self._next[:]
        self._model.check(library.functions.greedy_step(step))
        ms = step.verify * 1000, step.propose * 1000
        verdict = self._choices[:], self._path[: step.accepted]
        return Made(tokens, on_host, logp, logits, features, *verdict, *ms)

    def _room(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """For the tokens, their log-probabilities, the logits and the features of a step."""
        w = self._model.weights
        logits = torch.empty(self._size, w.vocabulary, dtype=w.dtype)
        features = logits.new_empty(self._size, w.hidden if self._guessing.heads else 0)
        tokens = torch.empty(self._size, dtype=torch.long)
        return tokens, torch.empty(self._size), logits, features
