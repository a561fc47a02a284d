"""Figure 7: speculative decoding with a draft model, by the tokens γ that it drafts (paper, appendix D).

Each draft model drafts chains of γ tokens. Beside what is measured stands the formula of Leviathan et al.
(2023, arXiv 2211.17192, theorem 3.8): a step keeps (1 − α^(γ+1)) / (1 − α) tokens and takes γc + 1 plain
steps, where α is the share of drafted tokens that are right and c the cost of drafting one, both as they are
measured with γ = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.config import setting

TITLE = "Draft models by the tokens they draft"
FORMULA = ", by the formula"


@dataclass(frozen=True)
class Settings:
    """Which draft models, and how far they run ahead."""

    gammas: str = setting("1,2,3,4,5,6,7,8", "values of γ: tokens drafted in a step, from 1 on")
    draft_models: str = setting(
        "", "draft models of other sizes, as in small=FOLDER,large=FOLDER; default: the one that is loaded"
    )


DEFAULTS: dict[str, object] = {"limit": 2, "max_new_tokens": 96}
QUICK: dict[str, object] = {"gammas": "1,3"}
