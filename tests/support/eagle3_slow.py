"""EAGLE-3 written slowly and plainly: row by row from the text's start, no cache, no batch."""

from __future__ import annotations

import torch
from grown_trees import grown
from torch.nn.functional import silu

HEADS, SIZE, THETA, EPS = 4, 8, 5000.0, 1e-5  # as in eagle3_files.config


def norm(x, weight):
    return x / (x.pow(2).mean(-1, keepdim=True) + EPS).sqrt() * weight


def turned(x, position):
    """Rotary positions by complex numbers, each from numbers i and i + half a head."""
    half = x.shape[-1] // 2
    angle = position * THETA ** (-torch.arange(half) / half)
    both = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones(half), angle)
    return torch.cat([both.real, both.imag], dim=-1)


class SlowDraft:
    """The draft model row by row, from the start of the text each time."""

    def __init__(self, weights, embedding, flags=()):
        self.w, self.embedding, self.flags = weights, embedding, flags

    def row(self, rows, token, feature):
        """Add a row to ``rows``, pairs of key and value, and return its output."""
        w = {name.removeprefix("midlayer.").removesuffix(".weight"): t for name, t in self.w.items()}
        position = len(rows)
        x = torch.cat([
            norm(self.embedding[token], w["input_layernorm"]), norm(feature, w["hidden_norm"])
        ])  # fmt: skip
        query = turned((w["self_attn.q_proj"] @ x).view(HEADS, SIZE), position)
        key = turned((w["self_attn.k_proj"] @ x).view(-1, SIZE), position)
        rows.append((key, (w["self_attn.v_proj"] @ x).view(-1, SIZE)))
        mixed = []
        for head in range(HEADS):
            group = head // (HEADS // len(key))
            scores = torch.stack([query[head] @ k[group] / SIZE**0.5 for k, _ in rows])
            mixed.append(sum(p * v[group] for p, (_, v) in zip(scores.softmax(0), rows, strict=True)))
        if "norm_before_residual" in self.flags:
            feature = norm(feature, w["hidden_norm"])
        x = feature + w["self_attn.o_proj"] @ torch.cat(mixed)
        inner = norm(x, w["post_attention_layernorm"])
        inside = silu(w["mlp.gate_proj"] @ inner) * (w["mlp.up_proj"] @ inner)
        return x + w["mlp.down_proj"] @ inside

    def fused(self, feature):
        """Three hidden states of the target as one."""
        if "norm_before_fc" in self.flags:
            feature = norm(feature, self.w["input_norm.weight"])
        if "fc_norm" in self.flags:
            parts = feature.split(len(feature) // 3)
            feature = torch.cat([norm(part, self.w[f"fc_norm.{i}.weight"]) for i, part in enumerate(parts)])
        return self.w["fc.weight"] @ feature

    def guesses(self, features, text, path, top_k):
        """The best tokens after ``text`` and ``path``, with their log-probabilities, the best first."""
        rows, output = [], None
        for feature, token in zip(features, text[1:], strict=True):
            output = self.row(rows, token, self.fused(feature))
        for token in path:
            again = norm(output, self.w["norm.weight"]) if "norm_output" in self.flags else output
            output = self.row(rows, token, again)
        logp = (self.w["lm_head.weight"] @ norm(output, self.w["norm.weight"])).log_softmax(0)
        best = logp.topk(top_k)
        targets = best.indices + self.w["d2t"][best.indices]
        return list(zip(targets.tolist(), best.values.tolist(), strict=True))

    def tree(self, features, text, top_k, levels, nodes):
        """The kept paths below the root, each with its cumulative log-probability, in the public order."""
        return grown(lambda path: self.guesses(features, text, path, top_k), levels, top_k, nodes)
