"""What a drafter reads of the target's rows; without torch, which drafters need not import."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Features:
    """Which hidden states a drafter reads of each row, and whether the queries of attention too.

    ``layers`` count as transformers' ``hidden_states`` do: 0 the embeddings, i the output of layer i, -1 the
    state after the final norm, which the LM head reads; ``BEFORE_NORM`` is what that norm reads. Their states
    stand side by side, [F·d] a row, and behind them with ``queries`` the rotated queries of all layers,
    [L·H·D]. Of the prompt and of accepted tokens only the last row is handed out unless ``all_rows``.
    """

    layers: tuple[int, ...] = ()
    all_rows: bool = False
    queries: bool = False


BEFORE_NORM = -2  # among ``layers``: the sum of all layers, which the final norm reads
NO_FEATURES = Features()
LAST_HIDDEN = Features((-1,))  # input of Medusa's heads and of the LM head
