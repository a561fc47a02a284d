"""Do these heads belong to this base? Their accuracy on a short text against guesses that need no heads.

The text is the base's own greedy continuation of a few words, which is what heads are asked to guess
while decoding. A guess without heads is the best of three: any token at random, the text's most frequent
one, or the base's next token over again, which is what untrained heads say. Heads of another base are no
better. For other drafters, such as a smaller model, the guesses of a drafted chain are checked.

K heads or guesses of a chain · T positions · d hidden size
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace

import torch

from medusa_core.config import GenerationConfig
from medusa_core.drafters import Draft, Drafter, HeadsDraft, make_drafter, method
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.evaluation.head_accuracy import heads_of

OPENINGS = (
    "The first thing that one notices about the city is",
    "Once upon a time, there was a small owl who",
    "To make bread at home, you need flour, water and",
    "User: Can you help me to plan my week?\nAssistant:",
)
NEW_TOKENS = 48  # of each continuation
_FEWEST = 64  # positions below which an accuracy says little
_REPEATING = 0.4  # share that guesses without heads reach only on a text that says one thing over and over
_WEAKER = 0.5  # share of the accuracy measured with these heads before that other texts may cost

HEAD, GUESS = "head", "guess"
_CHAIN = 3  # guesses of a drafter without heads
_ONE_GUESS = {"draft_top_k": 1}  # only the best guess after each token, for drafters with this setting

FINE, DOUBTFUL, WEAKER, UNTRAINED, DAMAGED, UNCLEAR = (
    "fine", "doubtful", "weaker", "untrained", "damaged", "unclear"
)  # fmt: skip


@dataclass(frozen=True)
class HeadHealth:
    """How often the best guess of head number ``head`` was right, and how often a guess without heads is.

    For a drafter without heads, ``head`` is the place in its chain of guesses.
    """

    head: int
    accuracy: float
    baseline: float
    better: bool  # by more than two standard deviations of the baseline


@dataclass(frozen=True)
class HealthReport:
    """``verdict`` is fine, doubtful, weaker, untrained, damaged or unclear; ``message`` says why."""

    verdict: str
    message: str
    positions: int
    heads: list[HeadHealth]
    one: str = HEAD  # subject of a row

    @property
    def ok(self) -> bool:
        """Whether the heads work as heads should."""
        return self.verdict == FINE

    def record(self) -> dict:
        """The report as plain numbers and strings."""
        return {"ok": self.ok} | asdict(self)


def check_heads(engine: Engine, text: str = "", new_tokens: int = NEW_TOKENS) -> HealthReport:
    """Compare the engine's heads with guesses that need none, on ``text`` or on what the base itself writes.

    Raises MedusaError when there are no heads or the text is too short for them.
    """
    asked = _asked_of(engine)
    if not all(bool(tensor.isfinite().all()) for tensor in asked.draft.tensors()):
        message = f"{asked.what} hold numbers that are not finite: fetch or convert them again"
        return HealthReport(DAMAGED, message, 0, [], asked.one)
    given = [_Text(engine.encode(text)[: engine.target.context], 0)] if text else []
    texts = given or _own_texts(engine, new_tokens)
    needed, longest = asked.count + 2, max(len(text.tokens) - text.start for text in texts)
    if longest < needed:
        raise MedusaError(f"the text has {longest} tokens, {needed} are needed: give a longer one")
    found, positions = _measure(engine, asked, texts)
    verdict, message = _judge(engine, asked, found, positions, own_text=not text)
    return HealthReport(verdict, message, positions, found, asked.one)


@dataclass(frozen=True)
class _Asked:
    """The weights that are checked, how they guess, and what they are called in sentences."""

    draft: Draft
    heads: HeadsDraft | None  # the same where they are heads
    count: int  # K
    guesses: Callable[[_Text], torch.Tensor]  # [K, T]: the best guess of token t + k + 1 at each position t
    what: str = "the heads"
    one: str = HEAD


def _asked_of(engine: Engine) -> _Asked:
    """The heads that are loaded, or else the first drafter with weights. Raises MedusaError without any."""
    if not engine.drafts or any(isinstance(draft, HeadsDraft) for draft in engine.drafts.values()):
        _, heads = heads_of(engine)
        return _Asked(
            heads, heads, heads.count,
            lambda text: heads.guesses(engine.target, text.tokens, 1, text.start)[..., 0].cpu(),
        )  # fmt: skip
    name, draft = next(iter(engine.drafts.items()))
    return _Asked(
        draft, None, _CHAIN, lambda text: drafted_guesses(engine, name, text.tokens, text.start),
        f"the weights of {draft.label}", GUESS,
    )  # fmt: skip


@dataclass(frozen=True)
class _Text:
    """Tokens, and the position at which the first guess that counts is made."""

    tokens: list[int]
    start: int


def _own_texts(engine: Engine, new_tokens: int) -> list[_Text]:
    """Greedy continuations of a few words, or of random tokens where there is no tokenizer."""
    if engine.tokenizer is None:
        generator = torch.Generator().manual_seed(0)
        shape = (len(OPENINGS), 8)
        prompts = torch.randint(0, engine.target.vocab_size, shape, generator=generator).tolist()
    else:
        prompts = [engine.encode(opening) for opening in OPENINGS]
    room = max(1, engine.target.context - new_tokens)
    config = GenerationConfig(method="none", max_new_tokens=new_tokens, ignore_eos=True)
    texts = []
    for prompt in prompts:
        kept = prompt[:room]
        steps = engine.stream(kept, config)
        new = [token for step in steps for token in step.emitted]
        # Heads need not guess text that the base only read and did not write.
        texts.append(_Text([*kept, *new], len(kept) - 1))
    return texts


def _measure(engine: Engine, asked: _Asked, texts: Sequence[_Text]) -> tuple[list[HeadHealth], int]:
    """Every head over all texts, and the positions of the first one."""
    read = [(torch.tensor(text.tokens[text.start :]), asked.guesses(text)) for text in texts]
    found = []
    for k in range(asked.count):
        truths = [tokens[k + 2 :] for tokens, _ in read]  # head k + 1 at position t guesses token t + k + 2
        each = list(zip(read, truths, strict=True))
        truth = torch.cat(truths)
        hits = torch.cat([guesses[k, : len(own)] for (_, guesses), own in each]) == truth
        again = torch.cat([tokens[1 : 1 + len(own)] for (tokens, _), own in each]) == truth
        most_frequent = float(torch.bincount(truth).max()) / len(truth)
        baseline = max(1 / engine.target.vocab_size, most_frequent, float(again.float().mean()))
        accuracy = float(hits.float().mean())
        margin = 2 * (baseline * (1 - baseline) / len(truth)) ** 0.5
        found.append(HeadHealth(k + 1, round(accuracy, 4), round(baseline, 4), accuracy > baseline + margin))
    return found, sum(len(tokens[2:]) for tokens, _ in read)


def _judge(
    engine: Engine, asked: _Asked, found: Sequence[HeadHealth], positions: int, *, own_text: bool
) -> tuple[str, str]:
    first, heads, one = found[0], asked.heads, asked.one
    without = "heads" if heads is not None else "it"
    share, plain = f"{first.accuracy:.0%}", f"{first.baseline:.0%}"
    numbers = f"{one} 1 is right {share} of the time, {plain} can be had without {without}"
    if heads is not None and heads.is_untrained(engine.target):
        return UNTRAINED, f"the heads are untrained, they say what the base says: train them ({numbers})"
    # Heads that fit guess some of the base's own text, however often it repeats itself.
    never = own_text and round(first.accuracy, 2) == 0 and positions >= _FEWEST
    if not first.better and not never and (positions < _FEWEST or first.baseline > _REPEATING):
        why = f"has only {positions} positions" if positions < _FEWEST else "repeats itself"
        return UNCLEAR, f"the text {why}, so it says little about {asked.what} ({numbers}): give another one"
    if not first.better:
        these = "these heads" if heads is not None else asked.what
        return DOUBTFUL, f"{these} and this base do not seem to belong together: {numbers}"
    accuracies = heads.accuracies if heads is not None else None
    measured = accuracies[0][0] if accuracies else 0.0
    if positions >= _FEWEST and first.accuracy < _WEAKER * measured:
        return (
            WEAKER,
            f"the heads were right {measured:.0%} of the time when measured, here it is {first.accuracy:.0%}",
        )
    weak = [str(head.head) for head in found if not head.better]
    rest = f"; {one} {', '.join(weak)} adds nothing on this text" if weak else ""
    return FINE, f"{numbers}{rest}"


@torch.inference_mode()
def drafted_guesses(engine: Engine, name: str, tokens: Sequence[int], start: int) -> torch.Tensor:
    """[K, T − start]: place (k, t) is guess k of the chain behind token t + 1; −1 where there is none.

    ``name`` is the method whose weights are asked, for weights other than heads: their guesses follow from
    their own state, so the text is read token by token, as the decode loop does, and at each place a chain of
    guesses is drafted and thrown away.
    """
    target, known = engine.target, [item.name for item in fields(method(name).settings)]
    options = {setting: value for setting, value in _ONE_GUESS.items() if setting in known}
    drafter = make_drafter(target, engine.drafts, GenerationConfig(method=name, options=options))
    every = replace(drafter.features, all_rows=True)
    _, features = target.prefill(tokens, target.new_cache(len(tokens)), every)
    drafter.reserve(len(tokens))
    drafter.begin(tokens[: start + 1], features[: start + 1])
    found = torch.full((_CHAIN, len(tokens) - start), -1)
    for place in range(start, len(tokens) - 1):
        chain = _chain(drafter, tokens[place + 1])
        found[: len(chain), place - start] = torch.tensor(chain, dtype=torch.long)
        drafter.observe(tokens[place + 1 : place + 2], features[place + 1 : place + 2])
    return found


def _chain(drafter: Drafter, root: int) -> list[int]:
    """The likeliest child of the root, the likeliest child of that one, and so on."""
    tree = drafter.propose(root, _CHAIN)
    tokens, scores = tree.tokens.tolist(), tree.draft_logp.tolist()
    node, chain = 0, []
    while below := [child for child in range(node + 1, tree.size) if tree.parents[child] == node]:
        node = max(below, key=lambda child: scores[child])
        chain.append(tokens[node])
    return chain[:_CHAIN]
