"""What the model says after a node, counted in C: ``answers.c``."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch

from medusa_core.target.native.library import Library
from medusa_core.target.native.structures import Answers

_LANES = 16


class Sums(NamedTuple):
    """Of R rows: their likeliest ``tokens`` [R, count], whose logits are ``gaps`` below the ``largest`` [R].

    ``log_z``, of the logits minus their largest, and ``entropy`` in nats are [R, heats].
    """

    tokens: torch.Tensor
    gaps: torch.Tensor
    largest: torch.Tensor
    log_z: torch.Tensor
    entropy: torch.Tensor


def sums_in_c(
    library: Library, logits: torch.Tensor, heats: Sequence[float], count: int, guard: float
) -> Sums:
    """Of ``logits`` [R, V] in bfloat16 on the CPU, at ``heats``. One that halves the one before is faster.

    ``guard`` is inside the logarithm of the entropy.
    """
    rows, vocabulary = logits.shape
    given, threads = logits.contiguous(), library.threads
    halves = [heat * 2 == before for heat, before in zip(heats, [0.0, *heats], strict=False)]
    found = Sums(
        torch.empty(rows, count, dtype=torch.long),
        torch.empty(rows, count),
        torch.empty(rows),
        torch.empty(rows, len(heats)),
        torch.empty(rows, len(heats)),
    )
    work = torch.empty(threads * -(-vocabulary // _LANES) * _LANES)  # torch's memory is aligned for vectors
    late = library.functions.run_answers(
        ctypes.byref(
            Answers(
                rows=rows,
                vocabulary=vocabulary,
                count=count,
                heats=len(heats),
                threads=threads,
                guard=guard,
                logits=given.data_ptr(),
                heat=ctypes.cast((ctypes.c_float * len(heats))(*heats), ctypes.c_void_p),
                halves=ctypes.cast((ctypes.c_uint8 * len(heats))(*halves), ctypes.c_void_p),
                tokens=found.tokens.data_ptr(),
                gaps=found.gaps.data_ptr(),
                largest=found.largest.data_ptr(),
                log_z=found.log_z.data_ptr(),
                entropy=found.entropy.data_ptr(),
                work=work.data_ptr(),
            )
        )
    )
    if late:
        library.was_late()
    return found
