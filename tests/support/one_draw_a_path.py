"""A wrong rule known from public code, which tests of exact sampling must tell from the right one."""

from __future__ import annotations

import tiny

from medusa_core.acceptance import match
from medusa_core.acceptance.verdict import Verdict


class PerPathRule(match.MatchRule):
    """The fault of public code: every path draws its own tokens, and the luckiest path is taken."""

    def __call__(self, tree, logits):
        leaves = [node for node in range(tree.size) if node not in tree.parents]
        best, bonus = [0], None
        for leaf in leaves:
            path = tiny.path_to(tree.parents, leaf)
            draws = self.choose(logits[path]).tolist()
            kept = 1
            while kept < len(path) and int(tree.tokens[path[kept]]) == draws[kept - 1]:
                kept += 1
            if kept > len(best) or bonus is None:
                best, bonus = path[:kept], draws[kept - 1]
        return Verdict(best, tree.tokens[best].tolist(), bonus, [True] * tree.size, "")
