"""Which hidden states of the target a drafter reads; without torch, which drafters need not import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Features:
    """Which hidden states a drafter reads of each row.

    ``layers`` count as transformers' ``hidden_states`` do: 0 the embeddings, i the output of layer i, -1 the
    state after the final norm, which the LM head reads; their states stand side by side, [F·d] a row. Of the
    prompt only the last row is kept unless ``all_rows``.
    """

    layers: tuple[int, ...] = ()
    all_rows: bool = False


NO_FEATURES = Features()
LAST_HIDDEN = Features((-1,))  # what Medusa's heads and the LM head read
