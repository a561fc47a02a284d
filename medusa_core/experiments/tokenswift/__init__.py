"""Long texts, in the manner of TokenSwift: speed, acceptance and repetition by the length of the text.

TokenSwift (Wu et al., 2025, arXiv 2502.18890) compares texts of up to 100,000 tokens with plain decoding, by
length: the cache grows, and with it the time of a step. Here plain decoding and one method write the same
long text in turns, once as they are and once with the contextual penalty. ``--vary`` repeats the paper's
ablations: each changes one setting, of the method alone or of plain decoding beside it too.
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.config import setting

TITLE = "Long texts by their length"
PENALTY, PREFILL = "penalty", "prefill"


@dataclass(frozen=True)
class Settings:
    """Which texts are written, how long and by whom."""

    lengths: str = setting("1024,2048,4096,8192,16384", "comma-separated tokens at which figures are taken")
    method: str = setting("", "the method beside plain decoding; default: tokenswift where it has weights")
    texts: int = setting(1, "prompts that are continued, from the first on", low=1)
    temperature: float = setting(0.0, "of the draws; 0 is greedy", low=0.0, high=2.0)
    vary: str = setting(
        "",
        "ablations: comma-separated NAME=VALUE, each a further series with one setting changed, as in "
        "draft_budget=128,draft_ngrams=0,penalty=1.1,prefill=512; prefill is the length of the prompt",
    )


DEFAULTS: dict[str, object] = {"limit": 1, "rounds": 1}
QUICK: dict[str, object] = {"lengths": "32,64"}
