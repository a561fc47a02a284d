"""Measures long texts by their length; what is compared and its settings are in the package."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

from tqdm import tqdm

from medusa_core.config import GenerationConfig
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.evaluation.bench import PHASES
from medusa_core.evaluation.speedup import speedup
from medusa_core.experiments.record import Row
from medusa_core.experiments.rows import ratio, spread, spread_of
from medusa_core.experiments.setup import Findings, Setup
from medusa_core.experiments.simulated import read_numbers
from medusa_core.experiments.tokenswift import PENALTY, PLAIN, Settings
from medusa_core.loading.load import load_engine
from medusa_core.longrun.memory import run_memory
from medusa_core.longrun.segments import SEGMENT, decode_segments
from medusa_core.longrun.totals import Totals, together
from medusa_core.text.distinct import MOST, distinct_n

BASELINE, TOKENSWIFT = "none", "tokenswift"
PAPER_PENALTY = {"penalty": 1.2, "penalty_window": 1024}
PAPER_MIN_P = 0.1
_MARGIN = 64  # positions beyond the longest text, for the last tree
_WARM_UP = 16  # tokens


@dataclass
class LongText:
    """One text as it grows: sums at each length that it has reached."""

    tokens: list[int] = field(default_factory=list)
    reached: list[Totals] = field(default_factory=list)


Round = list[dict[str, LongText]]  # the texts of each prompt by series


def measure(setup: Setup, settings: Settings) -> Findings:
    """Texts of all series in turns, segment by segment; rows by series and length. Raises MedusaError."""
    lengths = read_numbers(settings.lengths, "lengths")
    if lengths[0] < 1:
        raise MedusaError(f"--lengths has {lengths[0]}, the smallest is 1: raise it")
    prompts = setup.all_prompts[: settings.texts]
    engine = _with_room(setup, max(map(len, prompts)) + lengths[-1] + _MARGIN)
    name = chosen_method(engine, settings.method)
    series = series_of(name, lengths[-1], settings.temperature)
    for config in series.values():
        for _ in engine.stream(prompts[0], config.changed(max_new_tokens=_WARM_UP)):
            pass
    rounds: list[Round] = []
    with tqdm(total=len(series) * len(prompts) * setup.run.rounds * lengths[-1], unit="token") as bar:
        for _ in range(setup.run.rounds):
            rounds.append([_in_turns(engine, prompt, series, lengths, bar) for prompt in prompts])
    rows = [
        _row(rounds, label, lengths, place, engine.target.cache_bytes(len(prompts[0]) + length))
        for label in series
        for place, length in enumerate(lengths)
    ]
    return Findings(rows, _notes(engine, rounds, series, len(prompts[0])), info=engine.info)


def chosen_method(engine: Engine, wanted: str) -> str:
    """The method that is asked for, TokenSwift where it has weights, or the usual one. Raises MedusaError."""
    known = engine.methods()
    if not wanted:
        wanted = TOKENSWIFT if TOKENSWIFT in known else GenerationConfig().method
    if wanted not in known or wanted == BASELINE:
        others = ", ".join(name for name in known if name != BASELINE)
        raise MedusaError(f"--method is {wanted!r}, which cannot be run here: use one of {others}")
    return wanted


def series_of(name: str, length: int, temperature: float) -> dict[str, GenerationConfig]:
    """What is compared, by name: plain decoding first, each without and with the paper's penalty."""
    plain = GenerationConfig(method=BASELINE, max_new_tokens=length, ignore_eos=True, temperature=temperature)
    found = {PLAIN: plain, name: plain.changed(method=name)}
    changes = PAPER_PENALTY | ({"min_p": PAPER_MIN_P} if temperature else {})
    return found | {f"{label}, {PENALTY}": config.changed(**changes) for label, config in found.items()}


def _with_room(setup: Setup, rows: int) -> Engine:
    """The engine, loaded again with a longer context where the lengths need one. Raises MedusaError."""
    if rows <= setup.engine.target.context:
        return setup.engine
    return load_engine(replace(setup.load, context=rows))


def _in_turns(
    engine: Engine,
    prompt: Sequence[int],
    series: dict[str, GenerationConfig],
    lengths: Sequence[int],
    bar: tqdm,
) -> dict[str, LongText]:
    """One text of each series; they take turns, so that a machine whose speed drifts treats them alike."""
    texts = {label: LongText() for label in series}
    running = {
        label: _written(engine, prompt, config, lengths, texts[label]) for label, config in series.items()
    }
    while running:
        for label, writing in list(running.items()):
            before = len(texts[label].tokens)
            if next(writing, None) is None:
                del running[label]
            bar.update(len(texts[label].tokens) - before)
    return texts


def _written(
    engine: Engine, prompt: Sequence[int], config: GenerationConfig, lengths: Sequence[int], text: LongText
) -> Generator[int, None, None]:
    """Write one text; yields after each segment."""
    totals, state = Totals(), engine.new_state(len(prompt), config)
    for step in decode_segments(engine, prompt, config, state):
        totals.add(step)
        text.tokens += step.emitted
        while len(text.reached) < len(lengths) and totals.tokens >= lengths[len(text.reached)]:
            text.reached.append(totals.copy())
        if totals.tokens % SEGMENT == 0:
            yield totals.tokens


def _row(rounds: list[Round], label: str, lengths: Sequence[int], place: int, cache_bytes: int) -> Row:
    """Rates of the text up to a length; times of a step since the length before."""
    base = _plain_of(label)
    whole, plain = _sums(rounds, label, place), _sums(rounds, base, place)
    part, plain_part = _parts(rounds, label, place), _parts(rounds, base, place)
    by_text = [text[label].reached[place] for texts in rounds for text in texts]
    rates, base_rates = ([one.tokens_per_second for one in sums] for sums in (whole, plain))
    alpha = together(by_text).alpha
    return Row(
        series=label,
        label=f"{lengths[place]:,} tokens",
        x=lengths[place],
        prompts=len(rounds[0]),
        new_tokens=sum(one.tokens for one in by_text),
        tree_nodes=None,
        tokens_per_step=ratio([one.tokens for one in by_text], [one.steps for one in by_text]),
        tokens_per_second=spread(rates),
        step_ms=round(part.mean_ms("total"), 4),
        phase_ms={phase: round(part.mean_ms(phase), 4) for phase in PHASES[:-1]},
        overhead=round(part.mean_ms("total") / plain_part.mean_ms("total"), 4),
        speedup=spread_of(speedup(rates, base_rates)),
        alpha=None if alpha is None else round(alpha, 4),
        cache_bytes=cache_bytes,
        distinct_n=_distinct([text[label].tokens[: lengths[place]] for texts in rounds for text in texts]),
    )


def _distinct(texts: list[list[int]]) -> list[float] | None:
    """Distinct-1 to 4 within the texts, None where one is too short for them."""
    found = [distinct_n(texts, n) for n in range(1, MOST + 1)]
    return None if None in found else [round(share, 4) for share in found if share is not None]


def _sums(rounds: list[Round], label: str, place: int) -> list[Totals]:
    """Of each round, all its texts up to a length."""
    return [together([text[label].reached[place] for text in texts]) for texts in rounds]


def _parts(rounds: list[Round], label: str, place: int) -> Totals:
    """Of all rounds, their texts between the length before and this one."""
    whole = together(_sums(rounds, label, place))
    return whole.since(together(_sums(rounds, label, place - 1))) if place else whole


def _notes(
    engine: Engine, rounds: list[Round], series: dict[str, GenerationConfig], prompt: int
) -> list[str]:
    """The context, the memory, how many texts agree, and what the figures count."""
    context = engine.info.extended or f"context {engine.target.context:,}, which the model was trained with"
    first = next(iter(series.values()))
    notes = [f"The model's {context}.", f"Plain decoding: {run_memory(engine, prompt, first).parts()}."]
    if not first.temperature:
        same = {
            label: sum(text[label].tokens == text[_plain_of(label)].tokens for text in rounds[0])
            for label in series
            if label != _plain_of(label)
        }
        counts = ", ".join(f"{label} {count}" for label, count in same.items())
        notes.append(f"Texts identical to plain decoding's, of {len(rounds[0])}: {counts}.")
    notes.append(
        "Tokens/s, speedup and α are those of the whole text up to a length, ms a step those of the steps "
        "since the length before; reading between steps is not counted."
    )
    return notes


def _plain_of(label: str) -> str:
    return f"{PLAIN}, {PENALTY}" if label.endswith(f", {PENALTY}") else PLAIN
