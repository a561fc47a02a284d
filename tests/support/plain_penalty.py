"""The contextual penalty, top-k, top-p and min-p in the obvious, slow way: one place at a time."""

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


def truncated(logits, temperature, *, top_k=0, top_p=1.0, min_p=0.0):
    """Logits [V] in which only the likeliest tokens are possible; of equally likely ones, all or none."""
    if top_k:
        least = sorted(logits.tolist(), reverse=True)[:top_k][-1]
        logits = torch.tensor([x if x >= least else -math.inf for x in logits.tolist()])
    if top_p < 1:
        p = torch.softmax(logits.double() / temperature, dim=-1).tolist()
        kept, total = set(), 0.0
        for token in sorted(range(len(p)), key=lambda token: -p[token]):
            if total < top_p:
                kept.add(token)
            total += p[token]
        logits = torch.tensor([x if i in kept else -math.inf for i, x in enumerate(logits.tolist())])
    return likely(logits, temperature, min_p) if min_p else logits


def penalised_tree(logits, tree, text, penalty, window):
    """Logits [N, V] after the nodes of a tree that continues ``text``."""
    tokens = tree.tokens.tolist()
    paths = ([tokens[each] for each in tiny.path_to(tree.parents, node)] for node in range(tree.size))
    return torch.stack(
        [penalised(row, [*text, *path], penalty, window) for row, path in zip(logits, paths, strict=True)]
    )
