"""Table 2: Medusa-1, two-stage Medusa-2 and direct fine-tuning, quality and speedup (paper §3.3.3).

The paper's quality is a grade by GPT-4; ours is the base's held-out loss: what joint training does to the
model itself, before any decoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa_core.config import setting
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.experiments.settings import DIRECT, MEDUSA1, MEDUSA2, QUICK_VARIANTS, VariantSettings

if TYPE_CHECKING:
    from medusa_core.engine import Engine
    from medusa_core.experiments.quality import Text
    from medusa_core.experiments.setup import Findings, Setup

TITLE = "Medusa-1, Medusa-2 and direct fine-tuning"
QUALITY = "held-out loss of the base in nats a token; lower is better"


@dataclass(frozen=True)
class Settings(VariantSettings):
    """Variants, and the text that judges the base."""

    heldout: str = setting("", "comma-separated text files; default: text the untouched base draws at T = 1")
    window: int = setting(512, "tokens of a held-out window", low=8, high=8192)
    windows: int = setting(64, "windows of each held-out file at most", low=1)


TRAINS = True  # the variants that are not given
DEFAULTS: dict[str, object] = {"limit": 6}
QUICK: dict[str, object] = QUICK_VARIANTS | {"windows": 4}
LABELS = {MEDUSA1: "Medusa-1", MEDUSA2: "Medusa-2, two stages", DIRECT: "direct fine-tuning"}


def measure(setup: Setup, settings: Settings) -> Findings:
    """All variants on all prompts, interleaved, and the loss of each one's base. Raises MedusaError."""
    from medusa_core.experiments.quality import Heldout
    from medusa_core.experiments.setup import Case, Findings
    from medusa_core.experiments.variants import base_info, load_variants, tree_case, variant_notes

    engines = load_variants(setup, settings, list(LABELS))
    untouched = engines[MEDUSA1]  # its base is frozen, so it is the base as it was
    cases = [Case.plain(untouched)]
    for name, engine in engines.items():
        cases.append(tree_case(LABELS[name], engine, medusa_draft(engine).budget_tree(settings.nodes - 1)))
    rows, _ = setup.compare(cases)
    texts, source = heldout_texts(setup, settings, untouched)
    everything = [text for of_kind in texts.values() for text in of_kind]
    losses = [Heldout.of(engine.target, everything) for engine in engines.values()]
    before = losses[0]  # the untouched base
    rows[0].quality = before.mean()
    for row, loss in zip(rows[1:], losses, strict=True):
        row.quality, row.quality_change = loss.mean(), loss.change(before)
    notes = [
        "Every row is compared with plain decoding of the untouched base.",
        *variant_notes(setup, settings, list(LABELS)),
    ]
    if len(texts) > 1:
        for kind, of_kind in texts.items():
            each = {LABELS[name]: Heldout.of(engine.target, of_kind) for name, engine in engines.items()}
            said = ", ".join(f"{label} {loss.mean().mean:.3f}" for label, loss in each.items())
            notes.append(f"Held-out loss on {kind}: {said}.")
    return Findings(rows, notes, f"{QUALITY}; the text is {source}", base_info(untouched))


def heldout_texts(setup: Setup, settings: Settings, untouched: Engine) -> tuple[dict[str, list[Text]], str]:
    """What the bases are judged on by kind of text, and what to call it.

    Without files it is what the untouched base itself draws: the loss of a changed base on it is that of the
    untouched one plus their divergence KL(untouched ‖ changed).
    """
    from medusa_core.experiments.quality import Text, read_heldout

    files = setup.files(settings.heldout)
    if files:
        texts = {
            file.stem: read_heldout(file, setup.engine, settings.window, settings.windows) for file in files
        }
        words = ", ".join(file.name for file in files)
    else:
        run = setup.runner(untouched, method="none", temperature=1.0)
        texts = {"drawn text": [Text(prompt, run(prompt).tokens) for prompt in setup.all_prompts]}
        words = "what the untouched base draws at temperature 1 after the prompts"
    count = sum(len(text.tokens) for of_kind in texts.values() for text in of_kind)
    return texts, f"{words}, {count} tokens"
