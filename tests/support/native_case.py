"""What tests of the forward in C share: the size of their models, a text, and how far apart results are."""

from __future__ import annotations

import random

from medusa_core.model.forward import Part

VOCABULARY, CONTEXT = 96, 2048


def text(length, seed=0):
    return random.Random(seed).choices(range(VOCABULARY), k=length)


def off(found, wanted):
    """The distance between two sets of logits, relative to their spread."""
    found, wanted = found.float(), wanted.float()
    return float((found - wanted).norm() / (wanted - wanted.mean()).norm())


def run(forward, rows, cache):
    """Logits and states of the rows of one text."""
    return forward([Part(rows, cache)])[0]
