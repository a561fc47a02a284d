"""Trees that grow level by level, written slowly and plainly, and a tree by its paths."""

from __future__ import annotations

import tiny

Path = tuple[int, ...]


def grown(guesses, levels: int, width: int, nodes: int) -> dict[Path, float]:
    """The ``nodes`` likeliest paths below the root with their Σ log q, in the order in which they grew.

    ``guesses`` gives the tokens behind a path with their log q; of each level the ``width`` likeliest go on.
    """
    level, listed = {(): 0.0}, {}
    for _ in range(levels):
        table = {
            (*path, token): total + logp for path, total in level.items() for token, logp in guesses(path)
        }
        listed |= table
        level = dict(sorted(table.items(), key=lambda one: -one[1])[:width])
    best = set(sorted(listed, key=lambda path: -listed[path])[:nodes])
    return {path: total for path, total in listed.items() if path in best}


def paths_of(tree) -> dict[Path, float]:
    """The nodes below the root in their order, as paths of tokens with their Σ log q."""
    found = {}
    for node in range(1, tree.size):
        path = tiny.path_to(tree.parents, node)[1:]
        found[tuple(tree.tokens[path].tolist())] = float(tree.draft_logp[path].sum())
    return found
