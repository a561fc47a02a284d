"""Three measures of quality: how likely a judge finds a written text, how well a model predicts given text.

Both are log p in nats per token at temperature 1, computed in float32 by one plain forward pass a text, with
no tree and no cache, so they do not share a fault with what they judge. The third needs no judge: whether the
sums that stand in a text are right.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.evaluation.turns import MethodLog
from medusa_core.experiments.record import Mean
from medusa_core.experiments.rows import ratio
from medusa_core.model.features import NO_FEATURES
from medusa_core.model.target import Target
from medusa_core.text.chat_template import render_chat
from medusa_core.training.examples import Example, read_examples

_NUMBER = r"(\d+(?:\.\d+)?)"
# Not the end of a longer sum, whose first numbers would stand before these.
_SUM = re.compile(rf"(?<![-+*/.\d])(?<![-+*/] ){_NUMBER} ?([-+*/]) ?{_NUMBER} ?= ?{_NUMBER}(?!\.?\d)")
_TOLERANCE = 0.005  # results are written with two decimals


@dataclass(frozen=True)
class Text:
    """Tokens to be judged, and those before them, which are read and not judged."""

    before: list[int]
    tokens: list[int]


@torch.inference_mode()
def log_likelihood(target: Target, text: Text) -> float:
    """Σ log p(token | everything before it) in nats. Raises MedusaError when the context is too short."""
    ids = text.before + text.tokens
    if len(ids) > target.context:
        raise MedusaError(
            f"a text of {len(ids)} tokens is to be judged, the judge's context holds {target.context}: "
            "lower --max-new-tokens"
        )
    count = len(text.tokens)
    logits, _ = target.read(ids, NO_FEATURES, last=count + 1)
    logp = torch.log_softmax(logits[-count - 1 : -1].float(), dim=-1)
    return float(logp.gather(1, torch.tensor(text.tokens, device=logp.device)[:, None]).sum())


def written_quality(judge: Target, prompts: Sequence[list[int]], log: MethodLog) -> Mean:
    """Mean log-likelihood a generated token under the judge, with its standard error over prompts."""
    sums, counts = [], []
    for place, prompt in enumerate(prompts):
        texts = [r[place].tokens for r in log.rounds]
        sums.append(sum(log_likelihood(judge, Text(prompt, tokens)) for tokens in texts))
        counts.append(sum(map(len, texts)))
    return ratio(sums, counts)


def sums_in(text: str) -> list[bool]:
    """Whether each sum of two numbers that the text writes out, as in 48/2=24, is right."""
    found = []
    for first, sign, second, result in _SUM.findall(text):
        a, b = float(first), float(second)
        values = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else math.inf}
        found.append(abs(values[sign] - float(result)) <= _TOLERANCE)
    return found


def right_sums(engine: Engine, log: MethodLog) -> Mean | None:
    """The share of right sums in what was written, with its error over prompts; None where there are none."""
    by_prompt = [
        [right for one in texts for right in sums_in(engine.decode_text(one.tokens))]
        for texts in zip(*log.rounds, strict=True)
    ]
    counted = [sums for sums in by_prompt if sums]
    return ratio([sum(sums) for sums in counted], [len(sums) for sums in counted]) if counted else None


@dataclass(frozen=True)
class Heldout:
    """Texts of one kind, or of all, and the loss of a model on each: Σ −log p over its tokens, in nats."""

    texts: list[Text]
    losses: list[float]

    @classmethod
    def of(cls, target: Target, texts: list[Text]) -> Heldout:
        """Judge every text by the base's own LM head."""
        return cls(texts, [-log_likelihood(target, text) for text in texts])

    def mean(self) -> Mean:
        """Mean loss a token, with its standard error over texts."""
        return ratio(self.losses, [len(text.tokens) for text in self.texts])

    def change(self, before: Heldout) -> Mean:
        """Mean loss a token minus that of another model on the same texts; the error is that of the pairs."""
        pairs = zip(self.losses, before.losses, strict=True)
        return ratio([now - then for now, then in pairs], [len(text.tokens) for text in self.texts])


def read_heldout(file: Path, engine: Engine, window: int, most: int) -> list[Text]:
    """At most ``most`` windows of a file of text or JSON lines.

    A document's windows follow one another; the first token of a window is read and not judged. Raises
    MedusaError for a file that cannot be read or holds no text.
    """
    window = min(window, engine.target.context)
    texts: list[Text] = []
    for example in read_examples(file):
        ids = engine.encode(_text_of(example, engine))
        pieces = (ids[start : start + window] for start in range(0, len(ids), window))
        texts += [Text(piece[:1], piece[1:]) for piece in pieces if len(piece) > 1]
        if len(texts) >= most:
            break
    if not texts:
        raise MedusaError(f"the held-out text {file} has no document of two tokens: add text")
    return texts[:most]


def _text_of(example: Example, engine: Engine) -> str:
    """The example's text; a conversation as the tokenizer's chat template writes it, where it has one."""
    if example.text is None and engine.tokenizer is not None and engine.tokenizer.chat_template:
        turns = [message._asdict() for message in example.messages]
        return render_chat(engine.tokenizer, turns, whose=f"{example.place}: the judge's chat template")
    return example.plain_text


def require_same_tokens(judge: Engine, engine: Engine) -> None:
    """Raise MedusaError when the judge would read the tokens as other words."""
    words = [e.tokenizer.get_vocab() if e.tokenizer is not None else None for e in (judge, engine)]
    if words[0] != words[1] or judge.target.vocab_size < engine.target.vocab_size:
        raise MedusaError(
            f"the judge {judge.info.base} has another tokenizer than {engine.info.base}: "
            "judge with a model of the same vocabulary"
        )
