"""A long text as a chain of runs of SEGMENT tokens, each of which can be the first one of a new process.

Whether a run was interrupted must not change its tokens, not even by rounding: rows of the key-value cache
that were written step by step differ in their last bits from the same rows read at once. So a segment begins
by reading the segment before it anew, at once, as a process that goes on later has to do anyway. Each
segment draws with a seed of its own. What is decided in a segment then depends on the prompt, the tokens
before it and the settings alone, in every dtype and at every temperature; it holds for the same machine,
number of threads and libraries, since others add up in another order.

A segment has no more rows than a forward whose rows get the bits that they get alone: where the forward is
exact, a long run writes what one run without segments writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import replace

from medusa_core.config import MOST_SEED, GenerationConfig
from medusa_core.decoding import Step
from medusa_core.engine import Engine, RunState
from medusa_core.loading.devices import return_freed_memory

SEGMENT = 256  # tokens


def decode_segments(
    engine: Engine,
    prompt: Sequence[int],
    config: GenerationConfig,
    state: RunState,
    known: Sequence[int] = (),
) -> Generator[Step, None, None]:
    """Decode after ``prompt`` and the tokens ``known`` of an earlier process, whole segments of them.

    ``state`` is an empty one with room for all (``Engine.new_state``). The last step alone has a finish
    reason. Raises MedusaError.
    """
    tokens, index = list(known), 0
    for number in range(len(tokens) // SEGMENT):
        engine.read([*prompt, *tokens[: number * SEGMENT]], config, state)
    while True:
        left, text = config.max_new_tokens - len(tokens), [*prompt, *tokens]
        seed = seed_of(config.seed, len(tokens) // SEGMENT)
        if tokens:
            state.cache.truncate(len(text) - SEGMENT)
        # Blocks of a segment that is read are a little larger each time, and glibc keeps the gaps they leave.
        return_freed_memory()
        own = config.changed(max_new_tokens=min(SEGMENT, left), seed=seed)
        for step in engine.stream(text, own, state=state, written=len(tokens)):
            tokens += step.emitted
            reason = step.finish_reason
            if reason == "length" and len(tokens) < config.max_new_tokens:
                reason = "context" if len(prompt) + len(tokens) >= engine.target.context else None
            yield replace(step, index=index, finish_reason=reason)
            index += 1
            if reason is not None:
                return


def seed_of(seed: int, segment: int) -> int:
    """The seed of a segment's draws; the first has that of the run."""
    if segment == 0:
        return seed
    digest = hashlib.sha256(f"{seed} {segment}".encode()).digest()
    return int.from_bytes(digest[:8]) % (MOST_SEED + 1)
