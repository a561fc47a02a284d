"""Heads as they are loaded for a target, with the tree and the accuracies that lie beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from medusa_core.checkpoints.files import layout_of, read_config
from medusa_core.checkpoints.heads import read_heads
from medusa_core.checkpoints.names import BASE_KEY
from medusa_core.drafters import Reading
from medusa_core.drafters._head_trees import AUTO, HeadsDraft
from medusa_core.drafters._own_settings import tree_and_accuracies
from medusa_core.drafters.medusa.files import build_heads
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.errors import MedusaError
from medusa_core.llama.greedy import Heads
from medusa_core.llama.library import Library
from medusa_core.llama.panels import Panels
from medusa_core.llama.weights import COPY_LIMIT
from medusa_core.model.target import Target
from medusa_core.trees.budget import LatencyPoint, best_tree
from medusa_core.trees.search import FoundTree
from medusa_core.trees.tree import Topology

MOST_ROWS = 4  # with more rows the stacked heads in torch are no slower than C


@dataclass(frozen=True)
class MedusaDraft(HeadsDraft):
    """Medusa's heads, which may be computed in C and have the tree that is fastest here."""

    kind = "Medusa"
    heads: MedusaHeads
    latency: tuple[LatencyPoint, ...] = ()  # times of a step on this machine by tree size, where measured
    library: Library | None = None  # computes the heads in C; None leaves them to torch

    @cached_property
    def native(self) -> Heads | None:
        """The heads in C, packed at the first run; None where torch computes them."""
        return None if self.library is None else native_heads(self.heads, self.library)

    def require_accuracies(self) -> list[list[float]]:
        """The accuracies. Raises MedusaError when they were not measured."""
        if self.accuracies is None:
            raise MedusaError("the heads' accuracies are not known: measure them with calibrate")
        return self.accuracies

    @cached_property
    def fastest(self) -> FoundTree | None:
        """The tree that promises most tokens per second on this machine, None where that is not known."""
        if self.accuracies is None or not self.latency:
            return None
        return best_tree(self.accuracies, self.latency)

    def reading(self, depth: int, runs: int) -> Reading:
        """The cost of the first ``depth`` heads, since deeper ones are not asked."""
        blocks, last = self.heads.block_weight[0].numel(), self.heads.lm_weight.shape[-2:].numel()
        tables = 1 if self.heads.shares_lm_head else depth
        held = self.heads.block_weight.itemsize
        each = self.native.last_itemsize if self.native is not None and runs <= MOST_ROWS else held
        return Reading(depth * blocks * held + tables * last * each, 2 * runs * depth * (blocks + last))

    @torch.inference_mode()
    def guesses(self, target: Target, tokens: Sequence[int], ranks: int, start: int = 0) -> torch.Tensor:
        _, hidden = target.read(tokens)
        return self.heads(hidden[start:].to(self.heads.block_weight)).topk(ranks, dim=-1).indices

    def is_untrained(self, target: Target) -> bool:
        heads = self.heads
        if bool(heads.block_weight.any()) or bool(heads.block_bias.any()):
            return False
        if heads.shares_lm_head:
            return True
        lm_head = target.held.lm_head()
        # Headwise, since a comparison of all at once would need their memory again.
        return all(own.shape == lm_head.shape and torch.equal(own, lm_head) for own in heads.lm_weight)

    def tree(self, name: str | Topology) -> Topology:
        if name == AUTO and self.fastest is not None:
            return self.fastest.topology
        return super().tree(name)


def native_heads(heads: MedusaHeads, library: Library) -> Heads | None:
    """The heads in C; None where C does not compute them, and where copies of them would be too large.

    LM heads of their own have 8 bits unless in float32, since reading them is most of the time.
    """
    weight, last = heads.block_weight.detach(), heads.lm_weight.detach()
    computed = type(heads) is MedusaHeads and last.dtype in (torch.bfloat16, torch.float32)
    if not computed or last.device.type != "cpu" or last.nbytes > COPY_LIMIT:
        return None
    if heads.shares_lm_head:
        panels = [Panels.of(last)] * heads.count
    else:
        panels = [Panels.of(one, int8=last.dtype != torch.float32) for one in last]
    return Heads(weight, heads.block_bias.detach(), panels, library)


def owns(folder: Path) -> bool:
    """Whether the folder holds Medusa heads, or says so where only its small files were fetched so far.

    Raises MedusaError for damaged files.
    """
    if layout_of(folder) is not None:
        return True
    config = read_config(folder)
    # Heads of other kinds name their base too, and count themselves by another name.
    others = any(key.endswith(("_heads", "_predict_layers")) for key in config)
    return "medusa_num_heads" in config or (BASE_KEY in config and not others)


def load(folder: Path, target: Target) -> MedusaDraft:
    """Read heads, tree and accuracies. Raises MedusaError when they do not fit the target."""
    tensors = read_heads(folder)
    return MedusaDraft(
        build_heads(tensors, target.held.lm_head(), folder),
        *tree_and_accuracies(folder, tensors.count, target.output_device),
        library=target.library,
        notes=tensors.notes,
    )
