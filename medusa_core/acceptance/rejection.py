"""Rejection sampling: a guess x drawn from the drafter's q is kept with probability min(1, p(x) / q(x)).

Along a path from the root the children of a node are tried in the order in which they were drawn. Behind a
rejected one p becomes the residual distribution, norm(max(0, p − q)), and q loses the token, since siblings
are drawn without replacement; where all are rejected the next root is drawn from the p that is left. A
drafter that does not draw counts as certain of each guess, q(x) = 1: then x is kept with probability p(x), or
else p(x) becomes 0. The output has exactly the model's distribution. At temperature 0 it is greedy matching.
Leviathan et al., 2023 (arXiv 2211.17192); several candidates: Miao et al., 2024 (arXiv 2305.09781).

N nodes · V vocabulary
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from medusa_core.acceptance import RuleInfo
from medusa_core.acceptance.sampling import DrawingRule, drawn, probabilities, require_drawn
from medusa_core.acceptance.verdict import Verdict

if TYPE_CHECKING:
    import torch

    from medusa_core.trees.token_tree import TokenTree

_UNTRIED = "not tried: a guess before it at the same place was accepted"
_FALLEN = "not tried: the guess before it was not accepted"


class RejectionRule(DrawingRule):
    """p against q by one random number a guess; the rest of p where none is kept."""

    def __call__(self, tree: TokenTree, logits: torch.Tensor) -> Verdict:
        """Try the children of the root, then those of the child that was kept, and so on."""
        children: list[list[int]] = [[] for _ in tree.parents]
        for node, parent in enumerate(tree.parents[1:], start=1):
            children[parent].append(node)
        tokens = tree.tokens.tolist()
        reasons = [_FALLEN] * tree.size
        path = [0]
        while True:
            node = path[-1]
            p = probabilities(logits[node][None], self._temperature)[0]
            q = tree.draft_probs[node].to(p.device) if tree.draft_probs is not None else None
            kept, refused = None, 0
            for child in children[node]:
                if kept is not None:
                    reasons[child] = _UNTRIED
                    continue
                passes, reasons[child] = self._try(p, q, tokens[child], refused)
                if passes:
                    kept = child
                else:
                    refused += 1
                    p, q = _without(p, q, tokens[child])
            if kept is None:
                break
            path.append(kept)
        bonus = int(drawn(p[None], self._generator)[0])
        require_drawn([bonus], len(p))
        on_path = set(path)
        return Verdict(
            path=path,
            accepted=[tokens[node] for node in path],
            bonus=bonus,
            passes=[node in on_path for node in range(tree.size)],
            failure="rejected by the draw",
            reasons=reasons,
        )

    def _try(self, p: torch.Tensor, q: torch.Tensor | None, token: int, refused: int) -> tuple[bool, str]:
        """Whether the guess is kept, and why in words that `assets/web/explain.js` reads.

        p and q are those left by the ``refused`` siblings before it. They are printed with all digits of
        float32, so that the printed numbers compare as the originals did.
        """
        u = float(p.new_empty(()).uniform_(generator=self._generator))
        target = float(p[token])
        drafted = float(q[token]) if q is not None else 1.0
        ratio = target / drafted if drafted > 0 else math.inf
        passes = u < ratio
        sign = "<" if passes else "≥"
        bar = f"p = {ratio:.9g}" if q is None else f"p/q = {ratio:.9g}, p = {target:.9g}, q = {drafted:.9g}"
        return passes, f"u = {u:.9g} {sign} {bar}" + (f", {refused} refused before" if refused else "")


def _without(p: torch.Tensor, q: torch.Tensor | None, token: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """p and q after ``token`` was rejected."""
    if q is None:
        rest = p.clone()
        rest[token] = 0
        return _normalised(rest, p), None
    left = q.clone()
    left[token] = 0
    return _normalised((p - q).clamp(min=0), p), _normalised(left, left)


def _normalised(mass: torch.Tensor, otherwise: torch.Tensor) -> torch.Tensor:
    """``mass`` with sum 1; where rounding has left none of it, ``otherwise``."""
    total = mass.sum()
    return mass / total if float(total) > 0 else otherwise


RULE = RuleInfo(
    help="keep a guess with probability p/q, else draw from the rest of p; exactly the model's distribution",
    build=RejectionRule,
    weighs_draws=True,
)
