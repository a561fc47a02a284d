"""The contextual penalty and min-p in the obvious, slow way: from the context of one place at a time."""

from __future__ import annotations

import math

import tiny
import torch


def penalised(logits, context, penalty, window):
    """Logits [V] after the tokens of ``context``."""
    found = logits.clone()
    for token in set(context[-window:] if window else []):
        found[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    return found


def likely(logits, temperature, min_p):
    """Logits [V] in which only tokens of at least ``min_p`` times the largest p are possible."""
    p = torch.softmax(logits.double() / temperature, dim=-1)
    return torch.where(p < min_p * p.max(), -math.inf, logits)


def penalised_tree(logits, tree, text, penalty, window):
    """Logits [N, V] after the nodes of a tree that continues ``text``."""
    tokens = tree.tokens.tolist()
    paths = ([tokens[each] for each in tiny.path_to(tree.parents, node)] for node in range(tree.size))
    return torch.stack(
        [penalised(row, [*text, *path], penalty, window) for row, path in zip(logits, paths, strict=True)]
    )
