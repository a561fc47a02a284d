"""``python -m tools.make_model.writing --model FOLDER``: judge a base by what it writes.

Greedy plain decoding answers sums whose numbers were held out, and continues the project's held-out
prompts; a text counts as repeating if a sentence occurs in it twice. The last number of an answer counts.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from random import Random

from medusa_core import generate, load
from medusa_core.engine import Engine
from medusa_core.evaluation.prompts import HELD_OUT, shipped_kinds
from tools.make_model.sums import Problem, one_step, two_steps

_SEED = 1
_ANSWER_TOKENS = 80
_TEXT_TOKENS = 120
SENTENCE = re.compile(r"[^.!?]+[.!?]+")
_NUMBER = re.compile(r"\d+")


def main() -> None:
    """Print the share of right sums, and of repeating texts by kind."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", default="", help="folder of the base; default: the embedded one")
    parser.add_argument("--problems", type=int, default=300, help="sums of one step, and of two [300]")
    parser.add_argument("--show", action="store_true", help="print the texts and the wrong answers")
    args = parser.parse_args()
    engine = load(args.model)
    for make in (one_step, two_steps):
        right = _right_sums(engine, make, args.problems, show=args.show)
        print(f"{make.__name__.replace('_', ' ')}: {right} of {args.problems} right")
    for kind, prompts in shipped_kinds(engine, HELD_OUT).items():
        texts = [_greedy(engine, prompt, _TEXT_TOKENS) for prompt in prompts]
        repeating = [text for text in texts if first_repeat(text)]
        print(f"{kind}: {len(repeating)} of {len(texts)} texts repeat a sentence")
        if args.show:
            print(*texts, sep="\n---\n")


def first_repeat(text: str) -> tuple[int, int, set[str]] | None:
    """Start and end of the first sentence that repeats an earlier one, and all sentences before it.

    Only sentences of more than one word count; a speaker's name before them does not.
    """
    known: set[str] = set()
    for match in SENTENCE.finditer(text):
        said = said_by(match.group())
        if said in known:
            return match.start(), match.end(), known
        if " " in said:
            known.add(said)
    return None


def said_by(sentence: str) -> str:
    """A sentence without the speaker's name before it."""
    return re.sub(r"^(User|Assistant|A|B):\s*", "", sentence.strip())


def _right_sums(engine: Engine, make: Callable[..., Problem], count: int, *, show: bool) -> int:
    random = Random(_SEED)
    right = 0
    for _ in range(count):
        problem = make(random, heldout=True)
        answer = _greedy(engine, engine.encode(f"User: {problem.question}\nAssistant:"), _ANSWER_TOKENS)
        numbers = _NUMBER.findall(answer.split("\nUser:")[0])
        good = bool(numbers) and int(numbers[-1]) == problem.result
        right += good
        if show and not good:
            print(f"{problem.text}\n-> {answer!r}")
    return right


def _greedy(engine: Engine, prompt: list[int], tokens: int) -> str:
    return generate(engine, prompt, method="none", max_new_tokens=tokens).text


if __name__ == "__main__":
    main()
