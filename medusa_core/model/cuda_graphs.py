"""Captures the kernels of a piece of work as a CUDA graph, which is launched as a whole from then on.

The work must keep to what a graph can hold: fixed shapes and addresses, and no value read by the host
(``static_forward``). What it returns lies in the graph's own memory and is overwritten by the next replay.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from medusa_core.model.static_forward import Result

_WARM_UPS = 3  # runs before the capture, in which libraries choose their kernels and allocate


def recorded_on_cuda(work: Callable[[], Result]) -> Callable[[], Result]:
    """The same work as a graph of the current device."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(_WARM_UPS):
            work()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    # Runs in other threads may allocate meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = work()

    def replay() -> Result:
        graph.replay()
        return results

    return replay
