"""EAGLE-3's drafter: reads what was accepted, then grows a tree from its own output.

Its cache holds rows of the accepted text alone: those of a tree stand behind them while it grows and are then
forgotten, since the target's features of the accepted ones come with the next step. EAGLE-3 paper §3.1.

T rows · d hidden size · k nodes of a level
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from medusa_core.drafters import Drafter
from medusa_core.drafters.eagle3 import NAME, Settings
from medusa_core.drafters.eagle3.captured_growth import Start, TreeSize
from medusa_core.drafters.eagle3.draft import Eagle3Draft
from medusa_core.drafters.eagle3.grow import Grown, grow, log_probabilities
from medusa_core.model.captured_forward import bucket_of
from medusa_core.model.features import Features
from medusa_core.model.target import PREFILL_CHUNK, Target
from medusa_core.trees.origin import ROOT, Origin
from medusa_core.trees.token_tree import TokenTree
from medusa_core.trees.tree import depths_of


class Eagle3Drafter(Drafter):
    """Drafts after a text of which it has read all tokens; row t of its cache needs token t + 1 too."""

    name, title, first = NAME, "EAGLE-3", "three hidden states of the model"  # in the origins of its guesses

    def __init__(self, target: Target, draft: Eagle3Draft, settings: Settings) -> None:
        self.largest_tree = settings.draft_nodes + 1
        self.features = Features(draft.layers, all_rows=True)
        self._model, self._network = draft.model, draft.network
        self._rotary, self._growth = draft.rotary, draft.growth
        self._embedding = draft.embedding
        self._device = target.device
        self._settings = settings
        self._tokens: list[int] = []
        # Kept for all rows: where a text goes on differently, the last row is paired with another token.
        self._fused = draft.embedding.new_empty(0, draft.model.shape.hidden)  # [S, d]
        self._cache = self._network.new_cache()

    @property
    def length(self) -> int:
        return len(self._tokens)

    @property
    def cache_bytes(self) -> int:
        return self._cache.nbytes + self._fused.nbytes

    def cache_bytes_for(self, rows: int) -> int:
        features = self._model.shape.hidden * self._embedding.itemsize
        captured = bucket_of(rows) + self._tree_rows if self._growth is not None else 0
        return self._network.cache_row * (rows + self._tree_rows + captured) + features * rows

    def reserve(self, rows: int) -> None:
        self._rotary.prepare(rows + self._settings.draft_depth)
        self._cache.reserve(rows + self._tree_rows)
        if rows > len(self._fused):
            known, grown = len(self._tokens), self._fused.new_empty(rows, self._fused.shape[1])
            grown[:known] = self._fused[:known]
            self._fused = grown

    @property
    def _tree_rows(self) -> int:
        """Rows of its cache that a growing tree takes at most."""
        return self._settings.draft_top_k * self._settings.draft_depth

    def begin(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """Read the prompt; ``features`` [T, 3 d] belong to its last T tokens."""
        super().begin(tokens, features)
        self._read_rows(self._tokens[self._cache.length + 1 :])

    def propose(self, root: int, depth: int) -> TokenTree:
        levels = min(depth, self._settings.draft_depth)
        if levels < 1:
            nothing = torch.empty(0, dtype=torch.float32, device=self._embedding.device)
            return self._token_tree(root, [], [], [], nothing)
        outputs, logits = self._read_rows([*self._tokens[self._cache.length + 1 :], root])
        first, settings = log_probabilities(logits)[0], self._settings
        size = TreeSize(min(settings.draft_top_k, len(first)), levels, settings.draft_nodes)
        found = self._captured(size, outputs[-1:], first) or self._grow(size, outputs[-1:], first)
        tokens, (parents, ranks) = self._model.target_tokens(found.tokens), found.places.tolist()
        return self._token_tree(root, tokens.tolist(), parents, ranks, found.logp)

    def _captured(self, size: TreeSize, output: torch.Tensor, first: torch.Tensor) -> Grown | None:
        """The tree grown in one captured graph; None without capture or near the end of the context."""
        whole = size.levels == self._settings.draft_depth
        if self._growth is None or not (self._growth.works and whole):
            return None
        length = self._cache.length
        by = self._rotary.at(length, size.levels)
        return self._growth(size, Start(self._cache.tree_layers[0], length, output, first, by))

    def _grow(self, size: TreeSize, outputs: torch.Tensor, first: torch.Tensor) -> Grown:
        """Grow level by level behind the text; ``outputs`` [.., d] are those of the level that goes on."""
        length = self._cache.length

        def expand(tokens: torch.Tensor, rows: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
            nonlocal outputs
            # All nodes of the first level go on from the root's row.
            features = outputs[rows] if len(outputs) > 1 else outputs.expand(len(rows), -1)
            level = self._cache.length - length
            position = length + level // len(rows)
            outputs, logits = self._forward(
                self._model.target_tokens(tokens), features, seen, position, together=True
            )
            return log_probabilities(logits)

        found = grow(first, expand, *size)
        self._cache.truncate(length)
        return found

    def observe(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        """Keep what was committed; it is read in the next step, when the token behind it is known."""
        start = len(self._tokens)
        self._fused[start : start + len(tokens)] = self._network.fuse(features.to(self._fused))
        self._tokens += tokens

    def truncate(self, length: int) -> None:
        """Forget the text after ``length`` tokens, and its last row: the token behind may be another."""
        del self._tokens[length:]
        self._cache.truncate(max(len(self._tokens) - 1, 0))

    def _read_rows(self, following: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Commit the rows whose next tokens are ``following`` [T]: outputs [.., d] and the last logits."""
        outputs = logits = self._fused[:0]
        for start in range(0, len(following), PREFILL_CHUNK):
            tokens = torch.tensor(following[start : start + PREFILL_CHUNK], device=self._embedding.device)
            count, length = len(tokens), self._cache.length
            seen = torch.ones(count, count, dtype=torch.bool, device=tokens.device).tril()
            outputs, logits = self._forward(tokens, self._fused[length : length + count], seen, length)
        return outputs, logits

    def _forward(
        self,
        tokens: torch.Tensor,
        features: torch.Tensor,
        seen: torch.Tensor,
        position: int,
        *,
        together: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run and commit rows [T] from ``position`` on, or ``together`` all at it: outputs [T, d] and logits.

        The logits are those of the last row, and with ``together`` of all rows.
        """
        count = len(tokens)
        by = self._rotary.at(position, 1 if together else count)
        found = self._network(tokens, features, by, self._cache, seen, count if together else 1)
        self._cache.commit(range(count))
        return found

    def _token_tree(
        self, root: int, tokens: list[int], parents: list[int], ranks: list[int], logp: torch.Tensor
    ) -> TokenTree:
        below = zip(parents, depths_of([-1, *parents])[1:], ranks, strict=True)
        origins = [ROOT, *(self._origin(*place) for place in below)]
        return TokenTree.from_lists(
            [root, *tokens], [-1, *parents], origins, device=self._device, draft_logp=F.pad(logp, (1, 0))
        )

    def _origin(self, parent: int, level: int, rank: int) -> Origin:
        fed = self.first if level == 1 else "its own output"
        of = f"node {parent}" if parent else "the root"
        note = f"{self.title}, level {level}, fed {fed}: child {rank + 1} of {of}"
        return Origin(self.name, rank=rank, label=f"L{level} #{rank + 1}", note=note)
