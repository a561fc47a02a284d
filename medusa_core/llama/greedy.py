"""Medusa heads in C (``heads.c``), and greedy steps of one call each while the tree keeps its shape.

N nodes · B rows · K heads · L blocks · V vocabulary · d hidden size
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from medusa_core.llama import structures
from medusa_core.llama.cache import LlamaCache
from medusa_core.llama.forward import LlamaForward
from medusa_core.llama.library import Library
from medusa_core.llama.model import Results
from medusa_core.llama.panels import Panels, kind_of
from medusa_core.model.forward import Part, Rows
from medusa_core.model.kv_cache import TreeCache
from medusa_core.trees.token_tree import TokenTree


class Heads:
    """Blocks and LM heads in panels."""

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor, last: Sequence[Panels], library: Library
    ) -> None:
        """``weight`` [K, L, d, d] and ``bias`` [K, L, d] of the blocks, and the LM head of each head."""
        heads, blocks, hidden, _ = weight.shape
        self.library, self.dtype = library, weight.dtype
        self.last_itemsize = last[0].numbers.itemsize  # bytes a number of an LM head
        pairs = zip(weight.flatten(0, 1), bias.flatten(0, 1), strict=True)
        self._panels = [*(Panels.of(*pair) for pair in pairs), *last]  # C holds their addresses
        linears = [panels.structure for panels in self._panels]
        self.structure = structures.Heads(
            heads=heads,
            blocks=blocks,
            hidden=hidden,
            vocabulary=last[0].outputs,
            kind=kind_of(weight.dtype),
            block=(structures.Linear * (heads * blocks))(*linears[: heads * blocks]),
            last=(structures.Linear * heads)(*linears[heads * blocks :]),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the weights; LM heads that are one count once."""
        return sum({id(panels): panels.nbytes for panels in self._panels}.values())

    def work_bytes(self, asked: int, rows: int) -> int:
        return int(self.library.functions.heads_bytes(self.structure, asked, rows))

    def best(self, hidden: torch.Tensor, asked: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The ``count`` likeliest tokens of the first ``asked`` heads after hidden states [B, d], best first.

        Tokens and their log-probabilities, [asked, B, count] each.
        """
        rows, given = len(hidden), hidden.contiguous()
        found = torch.empty(asked, rows, count, dtype=torch.long), _floats(asked, rows, count)
        work = torch.empty(self.work_bytes(asked, rows), dtype=torch.uint8)
        addresses = [one.data_ptr() for one in (*found, work)]
        threads = self.library.begin_call()
        if self.library.functions.run_heads(
            self.structure, asked, given.data_ptr(), rows, count, *addresses, threads
        ):
            self.library.was_late()
        return found


@dataclass(frozen=True)
class Guessing:
    """How the next tree is filled: nothing but the root, or the best ``ranks`` guesses of ``levels`` heads.

    ``tree`` is its shape, with tokens and log-probabilities that mean nothing. ``places`` [N] tells for each
    node what it holds: 0 the root, else 1 + the number of a guess in [levels, ranks].
    """

    tree: TokenTree
    places: Sequence[int]
    heads: Heads | None = None
    levels: int = 0
    ranks: int = 0


class Made(NamedTuple):
    """The result of a step. The rows of the accepted path are in their places."""

    tree: TokenTree
    tokens: list[int]  # the tree's tokens
    logits: torch.Tensor  # [N, V]
    features: torch.Tensor  # [N, d], [N, 0] without heads
    choices: list[int]  # the token behind each node
    path: list[int]  # the accepted nodes
    verify_ms: float
    propose_ms: float  # time for proposing the next step's tree


class GreedySteps:
    """Greedy steps for trees of one shape; other steps may be made by phases in between (``restart``)."""

    def __init__(
        self, forward: LlamaForward, guessing: Guessing, propose: Callable[[int, int], TokenTree]
    ) -> None:
        """``propose``, by root and depth, fills such a tree as ``guessing`` does in C."""
        shape = guessing.tree
        self._forward, self._shape, self._propose = forward, shape, propose
        self._has_heads = guessing.heads is not None
        self._batch: ctypes.Structure | None = None  # over the cache of the run
        self._end = 0  # where a root may no longer stand
        self._ready: tuple[int, int] | None = None  # cache length and root that the prepared tree belongs to
        parents, depths, places, positions = torch.tensor(
            [shape.parents, shape.depths, guessing.places, [0] * shape.size]
        )
        self._depths, self._positions, self._deepest = depths, positions, max(shape.depths)
        numbers = ctypes.c_int64 * shape.size
        # Python reads them faster than tensors.
        self._next, self._choices, self._path = numbers(), numbers(), numbers()
        self._next_logp = _floats(shape.size)
        guesses = torch.empty(guessing.levels * guessing.ranks, dtype=torch.long)
        guesses_logp = _floats(len(guesses))
        needed = guessing.heads.work_bytes(guessing.levels, 1) if guessing.heads else 0
        work = torch.empty(max(needed, shape.size), dtype=torch.uint8)
        self._step = structures.Greedy(
            model=ctypes.pointer(forward.model.structure),
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
        self._held = parents, places, guesses, guesses_logp, work, guessing.heads  # C has their addresses

    def restart(self) -> None:
        """The text has gone on by other means, which may have made the buffers of the cache larger."""
        self._batch = self._ready = None

    def fits(self, cache: TreeCache, depth_left: int) -> bool:
        """Whether the whole tree has room: near the end of the context it gets shallower."""
        return (
            isinstance(cache, LlamaCache)
            and self._deepest <= depth_left
            and self._shape.size <= cache.room
            and not cache.bounded
        )

    def run(self, cache: TreeCache, root: int) -> Made:
        """Make the step behind the committed rows of a ``cache`` in which it ``fits``.

        The rows of the path are in their places then, and the cache does not know it yet.
        """
        assert isinstance(cache, LlamaCache)
        batch, step, shape, model = self._batch_over(cache), self._step, self._shape, self._forward.model
        if self._ready != (cache.length, root):
            first = self._propose(root, self._deepest)
            self._next[:] = first.tokens.tolist()
            self._next_logp.copy_(first.draft_logp)
        tokens, logp, logits, features = self._room()
        batch.tokens = step.tokens = tokens.data_ptr()
        batch.logits, step.logp = logits.data_ptr(), logp.data_ptr()
        if self._has_heads:
            batch.hidden = features.data_ptr()
        batch.threads = min(model.library.begin_call(), batch.most_threads)
        batch.part[0].length = cache.start
        step.position, on_host = cache.position, self._next[:]
        model.check(model.library.functions.greedy_step(step))
        choices, path = self._choices[:], self._path[: step.accepted]
        self._ready = cache.length + len(path), choices[path[-1]]
        tree = replace(shape, tokens=tokens, draft_logp=logp)
        return Made(tree, on_host, logits, features, choices, path, step.verify * 1000, step.propose * 1000)

    def _batch_over(self, cache: LlamaCache) -> ctypes.Structure:
        """The batch over a cache, kept until the text outgrows the rotations or torch has more threads."""
        most = self._forward.library.most_threads
        if self._batch is None or cache.position >= self._end or most > self._batch.most_threads:
            table = self._forward.rotary.prepare(1 + cache.position + self._deepest)
            self._end = len(table.cos) - self._deepest
            tokens, _, logits, features = self._room()
            rows = Rows(tokens, self._depths, self._deepest, self._shape.mask)
            results = Results(logits, [self._shape.size], features if self._has_heads else None)
            self._batch = self._forward.model.batch(
                tokens, self._positions, table, [Part(rows, cache)], results, keys=cache.rows
            )
            self._step.batch, self._ready = ctypes.pointer(self._batch), None
        return self._batch

    def _room(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Buffers for the tokens, their log-probabilities, the logits and the features of a step."""
        weights, nodes = self._forward.weights, self._shape.size
        logits = torch.empty(nodes, weights.vocabulary, dtype=weights.dtype)
        features = logits.new_empty(nodes, weights.hidden if self._has_heads else 0)
        return torch.empty(nodes, dtype=torch.long), _floats(nodes), logits, features


def _floats(*shape: int) -> torch.Tensor:
    """An empty tensor in the dtype that C writes: torch's default changes while any thread loads a model."""
    return torch.empty(*shape, dtype=torch.float32)
