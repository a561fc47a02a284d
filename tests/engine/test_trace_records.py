"""The records of a trace are those of a slow and obvious version, to six digits."""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, replace

import pytest
import tiny
import torch

from medusa_core.acceptance.verdict import statistics_beside
from medusa_core.config import GenerationConfig
from medusa_core.trace.builder import TraceBuilder

PROMPT = [1, 2, 0, 3]
TREE = "cartesian-4x2x2"
SETTINGS = {
    "greedy": {"tree": TREE},
    "sampled": {"tree": TREE, "temperature": 0.8, "seed": 3},
    "typical": {"tree": TREE, "acceptance": "typical", "temperature": 0.7},
    "loose": {"tree": TREE, "acceptance": "typical", "temperature": 1.0, "epsilon": 0.01},
    "plain": {"method": "none"},
    "plain, sampled": {"method": "none", "temperature": 1.0},
    "a tree of another shape in each step": {"method": "ngram"},
}


flat = itertools.chain.from_iterable
COMPARED = {"root", "accepted", "parent rejected", "not the model's choice"}
JUDGED = {"root", "accepted", "parent rejected", "below threshold", "not on the longest path"}


def slow_numbers(tree, logits, temperature):
    """p and entropy of each node, one row after the other and with every row of the logits."""
    p, entropies = [math.nan], [math.nan]
    for node in range(1, tree.size):
        row = logits[tree.parents[node]].float()
        probs = ((row - row.max()) / temperature).softmax(dim=-1)
        p.append(float(probs[tree.tokens[node]]))
        entropies.append(float(-(probs * (probs + 1e-5).log()).sum()))
    return p, entropies


def rounded(value):
    return None if math.isnan(value) else float(f"{value:.6g}")


def slow_nodes(step, temperature):
    """A step's nodes, each by itself."""
    tree, verdict, written = step.tree, step.verdict, []
    p, entropies = slow_numbers(tree, step.logits, temperature)
    for node, parent in enumerate(tree.parents):
        line = tiny.path_to(tree.parents, node)
        if node == 0:
            reason = "root"
        elif node in verdict.path:
            reason = "accepted"
        elif all(verdict.passes[i] for i in line[1:]):
            reason = "not on the longest path"
        else:
            reason = verdict.failure if not verdict.passes[node] else "parent rejected"
        written.append({
            "id": node,
            "parent": None if node == 0 else parent,
            "depth": len(line) - 1,
            "token_id": int(tree.tokens[node]),
            "text": tiny.LETTERS[int(tree.tokens[node])],
            "origin": asdict(tree.origins[node]),
            "draft_p": rounded(float(tree.draft_logp.exp()[node])) if node else None,
            "p": rounded(p[node]),
            "entropy": rounded(entropies[node]),
            "threshold": rounded(verdict.threshold[node]) if node and verdict.threshold else None,
            "passes": verdict.passes[node],
            "accepted": node in verdict.path,
            "reason": reason,
        })  # fmt: skip
    return written


@pytest.mark.parametrize("name", SETTINGS)
def test_steps_are_those_of_the_slow_version(engine, name):
    config = GenerationConfig.of(max_new_tokens=60, **SETTINGS[name])
    builder, shapes = TraceBuilder(engine, config, PROMPT), set()
    expected, nodes = [], []
    for index, step in enumerate(engine.stream(PROMPT, config)):
        builder.add(step)
        shapes.add(tuple(step.tree.parents))
        nodes.append(slow_nodes(step, config.temperature or 1.0))
        expected.append({
            "index": index,
            "cache_length": step.cache_length,
            "path": step.verdict.path,
            "emitted": step.emitted,
            "ms": {name: round(value, 4) for name, value in asdict(step.ms).items()},
        })  # fmt: skip
    written = builder.finish()["steps"]
    assert [{part: step[part] for part in expected[0]} for step in written] == expected
    for found, wanted in zip(flat(step["nodes"] for step in written), flat(nodes), strict=True):
        # Many rows are added up in another order than one: six digits may differ in the last.
        summed = {
            part: pytest.approx(wanted[part], rel=2e-5, abs=1e-9) for part in ("p", "entropy") if wanted[part]
        }
        assert found == wanted | summed
        if found["threshold"] is not None:  # the page judges again from these numbers
            assert found["passes"] == (found["p"] > found["threshold"])
    reasons = (
        {"root"}
        if "none" in SETTINGS[name].values()
        else JUDGED
        if "acceptance" in SETTINGS[name]
        else COMPARED
    )
    assert {node["reason"] for node in flat(nodes)} == reasons
    assert (len(shapes) > 1) == (name == "a tree of another shape in each step")


@pytest.mark.sample
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("temperature", [1.0, 0.7, 1e-30])
def test_numbers_of_judged_rows_are_those_of_all_rows(dtype, temperature):
    tree = tiny.token_tree([-1, 0, 0, 1, 1, 3, 2], [3, 10, 499, 0, 7, 7, 250])
    logits = torch.randn(tree.size, 500, generator=torch.Generator().manual_seed(0)).mul(3).to(dtype)
    found, _ = statistics_beside(tree, logits, temperature)
    p, entropies = slow_numbers(tree, logits, temperature)
    assert [found.p[1:], found.entropy[1:]] == [p[1:], entropies[1:]]
    assert math.isnan(found.p[0])
    assert math.isnan(found.entropy[0])


def test_a_token_is_decoded_once_whatever_the_number_of_runs(engine, monkeypatch):
    engine = replace(engine, info=engine.info)  # another one, which has decoded nothing yet
    decoded, decode = [], type(engine.tokenizer).decode

    def counting(tokenizer, tokens, **options):
        decoded.append(tuple(tokens))
        return decode(tokenizer, tokens, **options)

    monkeypatch.setattr(type(engine.tokenizer), "decode", counting)
    for _ in range(2):
        config = GenerationConfig.of(max_new_tokens=30)
        builder = TraceBuilder(engine, config, PROMPT)
        for step in engine.stream(PROMPT, config):
            builder.add(step)
    single = [tokens for tokens in decoded if len(tokens) == 1]
    assert len(single) == len(set(single)) > 3
