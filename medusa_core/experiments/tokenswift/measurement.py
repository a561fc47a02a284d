"""Measures long texts by their length; what is compared and its settings are in the package."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tqdm import tqdm

from medusa_core.config import GenerationConfig, pick_settings, whole_numbers
from medusa_core.drafters import method
from medusa_core.engine import Engine
from medusa_core.engine.summary import MOST_N, PHASES, distinct_n
from medusa_core.errors import MedusaError
from medusa_core.evaluation.speedup import speedup
from medusa_core.experiments.record import Row
from medusa_core.experiments.rows import ratio, spread, spread_of
from medusa_core.experiments.settings import PLAIN
from medusa_core.experiments.setup import Findings, Setup
from medusa_core.experiments.tokenswift import PENALTY, PREFILL, Settings
from medusa_core.loading.load import load_engine
from medusa_core.longrun.memory import run_memory
from medusa_core.longrun.segments import SEGMENT, decode_segments
from medusa_core.longrun.totals import Totals, together

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


@dataclass(frozen=True)
class Series:
    """What writes one text: its settings, the plain series it is compared with, the length of its prompt."""

    config: GenerationConfig
    plain: str
    prefill: int = 0  # tokens, 0: those of the prompt as it is


Round = list[dict[str, LongText]]  # the texts of each prompt by series


def measure(setup: Setup, settings: Settings) -> Findings:
    """Texts of all series in turns, segment by segment; rows by series and length. Raises MedusaError."""
    lengths = sorted({*whole_numbers(settings.lengths, "lengths", 1)})
    prompts = setup.all_prompts[: settings.texts]
    name = chosen_method(setup.engine, settings.method)
    series = series_of(name, lengths[-1], settings.temperature)
    series |= varied(name, series[name].config, settings.vary)
    longest = max(*map(len, prompts), *(one.prefill for one in series.values()))
    engine = _with_room(setup, longest + lengths[-1] + _MARGIN)
    for one in series.values():
        for _ in engine.stream(prompts[0], one.config.changed(max_new_tokens=_WARM_UP)):
            pass
    rounds: list[Round] = []
    with tqdm(total=len(series) * len(prompts) * setup.run.rounds * lengths[-1], unit="token") as bar:
        for _ in range(setup.run.rounds):
            rounds.append([_in_turns(engine, prompt, series, lengths, bar) for prompt in prompts])
    rows = []
    for label, one in series.items():
        for place, length in enumerate(lengths):
            held = engine.target.cache_bytes((one.prefill or len(prompts[0])) + length)
            rows.append(_row(rounds, label, one.plain, lengths, place, held))
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


def series_of(name: str, length: int, temperature: float) -> dict[str, Series]:
    """What is compared, by name: plain decoding first, each without and with the paper's penalty."""
    plain = GenerationConfig(method=BASELINE, max_new_tokens=length, ignore_eos=True, temperature=temperature)
    changes = PAPER_PENALTY | ({"min_p": PAPER_MIN_P} if temperature else {})
    found = {PLAIN: Series(plain, PLAIN), name: Series(plain.changed(method=name), PLAIN)}
    penalised = f"{PLAIN}, {PENALTY}"
    return found | {
        f"{label}, {PENALTY}": Series(one.config.changed(**changes), penalised)
        for label, one in found.items()
    }


def varied(name: str, config: GenerationConfig, vary: str) -> dict[str, Series]:
    """The ablations that ``vary`` names, of the method ``name``, whose other settings are ``config``.

    A setting that is not the method's changes plain decoding too, which then is a further series. Raises
    MedusaError.
    """
    own = {item.name: item.default for item in fields(method(name).settings)}
    of_run = {item.name: item.default for item in fields(GenerationConfig) if item.metadata.get("step")}
    found: dict[str, Series] = {}
    for part in filter(None, (part.strip() for part in vary.split(","))):
        key, _, text = part.partition("=")
        default: Any = 0 if key == PREFILL else (own | of_run).get(key)
        if default is None or not text:
            known = ", ".join([PREFILL, *own, *of_run])
            raise MedusaError(f"--vary has {part!r}: write NAME=VALUE with one of {known}")
        try:
            value: Any = type(default)(text)
        except ValueError as error:
            raise MedusaError(f"--vary has {part!r}: {text!r} is not a value of {key}") from error
        changed = config if key == PREFILL else config.changed(**{key: value})
        pick_settings(method(name).settings, changed.options)
        prefill, words = value if key == PREFILL else 0, f"{key} {text}"
        plain = PLAIN if key in own else f"{PLAIN}, {words}"
        if key not in own:
            found[plain] = Series(changed.changed(method=BASELINE), plain, prefill)
        found[f"{name}, {words}"] = Series(changed, plain, prefill)
    return found


def _begun(engine: Engine, prompt: Sequence[int], length: int) -> list[int]:
    """The prompt, continued by plain decoding with a penalty to ``length`` tokens, or cut to them."""
    text = list(prompt)[: length or None]
    if len(text) < length:
        config = GenerationConfig(method=BASELINE, ignore_eos=True, max_new_tokens=length - len(text))
        for step in engine.stream(text, config.changed(**PAPER_PENALTY)):
            text += step.emitted
    return text


def _with_room(setup: Setup, rows: int) -> Engine:
    """The engine, loaded again with a longer context where the lengths need one. Raises MedusaError."""
    if rows <= setup.engine.target.context:
        return setup.engine
    return load_engine(replace(setup.load, context=rows))


def _in_turns(
    engine: Engine,
    prompt: Sequence[int],
    series: dict[str, Series],
    lengths: Sequence[int],
    bar: tqdm,
) -> dict[str, LongText]:
    """One text of each series; they take turns, so that a machine whose speed drifts treats them alike."""
    texts = {label: LongText() for label in series}
    running = {
        label: _written(engine, _begun(engine, prompt, one.prefill), one.config, lengths, texts[label])
        for label, one in series.items()
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


def _row(
    rounds: list[Round], label: str, base: str, lengths: Sequence[int], place: int, cache_bytes: int
) -> Row:
    """Rates of the text up to a length; times of a step since the length before; ``base`` is plain's."""
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
        phase_ms={phase: round(part.mean_ms(phase), 4) for phase in PHASES},
        overhead=round(part.mean_ms("total") / plain_part.mean_ms("total"), 4),
        speedup=spread_of(speedup(rates, base_rates)),
        alpha=None if alpha is None else round(alpha, 4),
        cache_bytes=cache_bytes,
        distinct_n=_distinct([text[label].tokens[: lengths[place]] for texts in rounds for text in texts]),
    )


def _distinct(texts: list[list[int]]) -> list[float] | None:
    """Distinct-1 to 4 within the texts, None where one is too short for them."""
    found = [distinct_n(texts, n) for n in range(1, MOST_N + 1)]
    return None if None in found else [round(share, 4) for share in found if share is not None]


def _sums(rounds: list[Round], label: str, place: int) -> list[Totals]:
    """The sums of each round over all its texts up to a length."""
    return [together([text[label].reached[place] for text in texts]) for texts in rounds]


def _parts(rounds: list[Round], label: str, place: int) -> Totals:
    """The sums of all rounds over their texts between the length before and this one."""
    whole = together(_sums(rounds, label, place))
    return whole.since(together(_sums(rounds, label, place - 1))) if place else whole


def _notes(engine: Engine, rounds: list[Round], series: dict[str, Series], prompt: int) -> list[str]:
    """The context, the memory, how many texts agree, and what the figures count."""
    context = engine.info.extended or f"context {engine.target.context:,}, which the model was trained with"
    first = next(iter(series.values())).config
    notes = [f"The model's {context}.", f"Plain decoding: {run_memory(engine, prompt, first).parts()}."]
    if not first.temperature:
        same = {
            label: sum(text[label].tokens == text[one.plain].tokens for text in rounds[0])
            for label, one in series.items()
            if label != one.plain and not one.config.temperature
        }
        counts = ", ".join(f"{label} {count}" for label, count in same.items())
        notes.append(f"Texts identical to plain decoding's, of {len(rounds[0])}: {counts}.")
    notes.append(
        "Tokens/s, speedup and α are those of the whole text up to a length, ms a step those of the steps "
        "since the length before; reading between steps is not counted."
    )
    return notes
