"""Figure 5: the thresholds of typical acceptance, speed against quality (paper §3.3.2).

ε runs from 0.01 to 0.25 with δ = √ε at one temperature; greedy decoding and exact random sampling are the
points of reference. The paper lets GPT-4 grade the texts, here a judge model says how likely it finds them,
which rewards likely text and not good text: greedy decoding is at the top of such a scale by construction.
So the share of three-token pieces that do not repeat stands beside it, and the share of the sums written out
in the texts that are right: table 4's question, whether the texts are worth as much, in a form that needs no
grader.
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa_core.config import setting

TITLE = "Thresholds of typical acceptance"
QUALITY = "mean log p of a generated token under a judge model at temperature 1, in nats; higher is likelier"


@dataclass(frozen=True)
class Settings:
    """What is swept, and who judges."""

    epsilons: str = setting("0.01,0.03,0.05,0.07,0.09,0.13,0.17,0.21,0.25", "values of ε; δ is √ε")
    temperature: float = setting(0.7, "temperature of all but the greedy texts", low=0.05, high=2.0)
    judge: str = setting(
        "", "folder or hub name of the judge, same vocabulary; default: the base itself in float32"
    )


DEFAULTS: dict[str, object] = {"limit": 3, "max_new_tokens": 96}
QUICK: dict[str, object] = {"epsilons": "0.01,0.09,0.25"}
