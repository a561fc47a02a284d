"""Tests of sampling: counts of seeded runs of the real loop, exact probabilities, and the χ² test of both."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.stats import chisquare

from medusa_core.acceptance import NoSettings, make_rule, sampling_of
from medusa_core.acceptance.logits.processor import processor_of
from medusa_core.config import GenerationConfig
from medusa_core.decoding import Run, decode
from medusa_core.drafters import make_drafter
from medusa_core.text.stopping import Stopper

LEAST_P = 1e-3
NEW = 3  # new tokens of a run


def counted(
    target: Any,
    drafts: dict[str, Any],
    prompt: Sequence[int],
    runs: int,
    *,
    rule_class: type | None = None,
    draws: bool = True,
    **settings: Any,
) -> tuple[np.ndarray, int]:
    """How often each triple of tokens followed ``prompt``, [V, V, V], and how many drafts were accepted.

    ``rule_class`` takes the place of the rule that the settings name; without ``draws`` drafters take their
    likeliest guesses.
    """
    found, accepted = np.zeros((target.vocab_size,) * NEW), 0
    for seed in range(runs):
        config = GenerationConfig.of(**settings, seed=seed, max_new_tokens=NEW)
        generator = torch.Generator().manual_seed(seed)
        drafter = make_drafter(target, drafts, config)
        if draws:
            drafter.sample_by(sampling_of(config, generator))
        rule = make_rule(config, generator)
        if rule_class is not None:
            rule = rule_class(config.temperature, NoSettings(), generator)
        stopper, tokens = Stopper(frozenset(), (), NEW, decode=str), []
        run = Run(target, drafter, rule, prompt, stopper, NEW, processor=processor_of(config))
        for step in decode(run):
            tokens += step.emitted
            accepted += len(step.verdict.path) - 1
        found[tuple(tokens)] += 1
    return found, accepted


def joint(next_p: Callable[[list[int]], torch.Tensor], prompt: Sequence[int], vocabulary: int) -> np.ndarray:
    """Exact probabilities of three tokens [V, V, V]; ``next_p`` gives those of the one after a text [V]."""
    after = functools.cache(lambda *new: next_p([*prompt, *new]).numpy())
    found = np.zeros((vocabulary,) * NEW)
    for a, b in itertools.product(range(vocabulary), repeat=2):
        found[a, b] = after()[a] * after(a)[b] * after(a, b)
    return found


def p_value(counts: ArrayLike, wanted: ArrayLike, cells: int = 15) -> float:
    """The p-value; cells of fewer than five expected runs merge, and more than ``cells`` must be left."""
    counts = np.asarray(counts, dtype=float).ravel()
    expected = np.asarray(wanted, dtype=float).ravel() * counts.sum()
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    assert len(observed) > cells
    return chisquare(observed, expected * observed.sum() / expected.sum()).pvalue
