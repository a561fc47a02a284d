"""Sums in words with right answers, drawn with a seed, from which the embedded base learns arithmetic.

A tenth of all sums is held out by its numbers: no training text has one of them, in words or bare, as a
problem or as a step of a longer one. ``7 * 8`` may be held out while ``8 * 7`` is trained on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

_NAMES = [
    "Anna", "Ben", "Clara", "David", "Emma", "Frank", "Grace", "Henry", "Iris", "Jack", "Kate", "Leo",
    "Lily", "Mark", "Mia", "Nina", "Oscar", "Paul", "Rosa", "Sam", "Sara", "Tim", "Tom", "Zoe", "Max",
    "Ella", "Lucy", "Peter", "Sue", "Amy",
]  # fmt: skip
_THINGS = [
    "apples", "books", "stickers", "marbles", "stamps", "shells", "flowers", "pencils", "cards", "balloons",
    "cookies", "eggs", "coins", "stones", "toys", "buttons", "pears", "plums", "beads", "leaves", "nuts",
    "candies", "oranges", "cupcakes", "crayons",
]  # fmt: skip
_GROUPS = {
    "box": "boxes",
    "bag": "bags",
    "basket": "baskets",
    "jar": "jars",
    "bowl": "bowls",
    "crate": "crates",
}
_SIGNS = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}

_ONE_STEP = {
    "+": [
        ("{n} has {a} {t} and finds {b} more. How many {t} does {n} have now?", "{n} has {c} {t} now."),
        ("There are {a} {t} in a {g} and {b} {t} on the table. How many {t} are there in all?",
         "There are {c} {t} in all."),
        ("{n} picks {a} {t} in the morning and {b} in the afternoon. How many {t} is that in all?",
         "That is {c} {t} in all."),
        ("{n} has {a} {t}. {m} gives {n} {b} more. How many {t} does {n} have?", "{n} has {c} {t}."),
        ("A shop sells {a} {t} on Monday and {b} on Tuesday. How many {t} does it sell in the two days?",
         "It sells {c} {t} in the two days."),
        ("{n} has {a} {t} and {m} has {b}. How many {t} do they have together?",
         "Together they have {c} {t}."),
    ],
    "-": [
        ("{n} has {a} {t} and gives {b} of them to {m}. How many {t} are left?", "{c} {t} are left."),
        ("There are {a} {t} in a {g}. {n} takes {b} of them. How many {t} are still there?",
         "{c} {t} are still there."),
        ("{n} had {a} {t} and lost {b}. How many {t} does {n} have now?", "{n} has {c} {t} now."),
        ("{n} has {a} {t} and {m} has {b}. How many more {t} does {n} have?", "{n} has {c} more {t}."),
        ("A book costs ${a} and {n} has ${b}. How many dollars does {n} still need?",
         "{n} still needs ${c}."),
        ("{n} makes {a} {t} and sells {b} of them. How many {t} does {n} have left?",
         "{n} has {c} {t} left."),
    ],
    "*": [
        ("There are {a} {gs} with {b} {t} in each {g}. How many {t} are there?", "There are {c} {t}."),
        ("{n} buys {a} {t} for ${b} each. How many dollars does {n} pay?", "{n} pays ${c}."),
        ("{n} reads {b} pages every day. How many pages does {n} read in {a} days?", "{n} reads {c} pages."),
        ("{n} earns ${b} an hour and works {a} hours. How much does {n} earn?", "{n} earns ${c}."),
        ("{n} has {b} {t}. {m} has {a} times as many. How many {t} does {m} have?", "{m} has {c} {t}."),
    ],
    "/": [
        ("{n} shares {a} {t} among {b} friends. How many {t} does each friend get?",
         "Each friend gets {c} {t}."),
        ("{n} has {a} {t} and puts {b} of them in each {g}. How many {gs} does {n} fill?",
         "{n} fills {c} {gs}."),
        ("A rope is {a} meters long and is cut into {b} equal pieces. How long is each piece?",
         "Each piece is {c} meters long."),
        ("{a} {t} stand in {b} equal rows. How many {t} are in a row?", "There are {c} {t} in a row."),
    ],
}  # fmt: skip

# The second step takes the first one's result as its first number.
_TWO_STEP = {
    ("+", "-"): [
        ("{n} has {a} {t} and finds {b} more. Then {n} gives {d} of them to {m}. How many {t} are left?",
         "{e} {t} are left."),
        ("A shop has {a} {t} and gets {b} more. It sells {d}. How many {t} does it have now?",
         "It has {e} {t} now."),
    ],
    ("-", "+"): [
        ("{n} has {a} {t}, loses {b} and then buys {d} more. How many {t} does {n} have now?",
         "{n} has {e} {t} now."),
        ("There were {a} {t} in a {g}. {n} took {b} and {m} put in {d}. How many {t} are there now?",
         "There are {e} {t} now."),
    ],
    ("+", "+"): [
        ("{n} picks {a} {t} on Monday, {b} on Tuesday and {d} on Friday. How many {t} is that in all?",
         "That is {e} {t} in all."),
    ],
    ("-", "-"): [
        ("{n} has {a} {t}. {n} gives {b} to {m} and eats {d}. How many {t} are left?", "{e} {t} are left."),
    ],
    ("*", "+"): [
        ("There are {a} {gs} with {b} {t} in each, and {d} more {t} on the floor. How many {t} are there?",
         "There are {e} {t}."),
        ("{n} buys {a} {t} for ${b} each and a bag for ${d}. How many dollars does {n} pay?",
         "{n} pays ${e}."),
    ],
    ("*", "-"): [
        ("{n} earns ${b} an hour and works {a} hours. Then {n} buys a book for ${d}. How much money is left?",
         "${e} are left."),
        ("{n} has {a} {gs} with {b} {t} in each and gives away {d} {t}. How many {t} are left?",
         "{e} {t} are left."),
    ],
    ("/", "+"): [
        ("{n} shares {a} {t} among {b} friends. {m} is one of them and had {d} {t} before. "
         "How many {t} does {m} have now?", "{m} has {e} {t} now."),
    ],
}  # fmt: skip

_MORE = {"half": 2, "a third": 3}
_NAMED = {  # first factors that have a word
    2: [
        ("{n} has {b} {t}. {m} has twice as many. How many {t} does {m} have?", "{m} has {c} {t}."),
        ("{n} runs {b} miles on Monday and twice as many on Tuesday. How many miles is that on Tuesday?",
         "That is {c} miles on Tuesday."),
    ],
    7: [
        ("{n} reads {b} pages every day. How many pages does {n} read in a week?", "{n} reads {c} pages."),
        ("A hen lays {b} eggs a day. How many eggs does it lay in a week?", "It lays {c} eggs in a week."),
    ],
}  # fmt: skip
_GOODBYES = [("Thank you!", "You are welcome."), ("Thanks, that is all.", "Gladly."), ("Good.", "Bye!")]
_DRILL = 40  # sums of a drill


@dataclass(frozen=True)
class Problem:
    """A question, its working with the answer, and the right number."""

    question: str
    answer: str
    result: int

    @property
    def text(self) -> str:
        """The turn of a conversation, as the embedded model's chat template writes it."""
        return f"User: {self.question}\nAssistant: {self.answer}"


def is_held_out(a: int, sign: str, b: int) -> bool:
    """Whether this sum is kept from training."""
    return hashlib.blake2b(f"{a}{sign}{b}".encode(), digest_size=2).digest()[0] % 10 == 0


def one_step(random: Random, *, heldout: bool) -> Problem:
    """A problem of one sum; one in four asks for it bare."""
    sign = random.choice("++--**/")
    while True:
        a, b = _numbers(random, sign)
        if is_held_out(a, sign, b) == heldout:
            break
    c = _result(a, sign, b)
    if random.random() < 0.25:
        asked = random.choice([f"What is {a} {_SIGNS[sign]} {b}?", f"What is {a} {sign} {b}?"])
        return Problem(asked, _working(a, sign, b) + ".", c)
    if sign == "/" and b in _MORE.values() and random.random() < 0.7:
        return _share(random, a, b)
    named = _NAMED.get(a) if sign == "*" and random.random() < 0.5 else None
    question, answer = random.choice(named or _ONE_STEP[sign])
    words = _words(random) | {"a": a, "b": b, "c": c}
    return Problem(question.format(**words), f"{_working(a, sign, b)}. {answer.format(**words)}", c)


def two_steps(random: Random, *, heldout: bool) -> Problem:
    """A problem of two sums; held out where one of them is."""
    while True:
        first, second = random.choice(list(_TWO_STEP))
        a, b = _numbers(random, first)
        c = _result(a, first, b)
        d = random.randint(2, max(2, min(40, c - 1)))
        known = (is_held_out(a, first, b), is_held_out(c, second, d))
        if any(known) == heldout and (second != "-" or d < c):
            break
    e = _result(c, second, d)
    question, answer = random.choice(_TWO_STEP[first, second])
    words = _words(random) | {"a": a, "b": b, "d": d, "e": e}
    working = f"{_working(a, first, b)}. {_working(c, second, d)}. {answer.format(**words)}"
    return Problem(question.format(**words), working, e)


def sums(seed: int, documents: int, *, heldout: bool) -> Iterator[str]:
    """Yield conversations, most of one problem; two in five problems have two steps."""
    random = Random(seed)
    for _ in range(documents):
        makes = random.choices([one_step, two_steps], [3, 2], k=random.choice([1, 1, 1, 1, 2, 3]))
        turns = [make(random, heldout=heldout).text for make in makes]
        if random.random() < 0.3:
            turns.append("User: {}\nAssistant: {}".format(*random.choice(_GOODBYES)))
        yield "\n".join(turns)


def drills(seed: int, documents: int) -> Iterator[str]:
    """Yield columns of bare sums, none of them held out: many more sums per token.

    One in four has products with their reverses and quotients, from which held-out ones can be worked out.
    """
    random = Random(seed)
    for _ in range(documents):
        lines: list[str] = []
        tables = random.random() < 0.25
        while tables and len(lines) < _DRILL:
            lines += _family(random)
        while len(lines) < _DRILL:
            sign = random.choice("++--*/")
            a, b = _numbers(random, sign)
            c = _result(a, sign, b)
            if random.random() < 0.3:  # as the second step of a problem
                a, b, sign = c, random.randint(2, max(2, min(40, c - 1))), random.choice("+-")
            if (sign != "-" or a > b) and not is_held_out(a, sign, b):
                lines.append(_working(a, sign, b))
        yield "\n".join(lines[:_DRILL])


def _family(random: Random) -> list[str]:
    """A product, its reverse and their quotients in any order, without those that are held out."""
    a, b = random.randint(2, 12), random.randint(2, 12)
    sums = [(a, "*", b), (b, "*", a), (a * b, "/", a), (a * b, "/", b)]
    return [_working(*one) for one in random.sample(sums, 4) if not is_held_out(*one)]


def _numbers(random: Random, sign: str) -> tuple[int, int]:
    if sign in "*/":
        a, b = random.randint(2, 12), random.randint(2, 12)
        return (a * b, b) if sign == "/" else (a, b)
    a, b = random.randint(2, 99), random.randint(2, 99)
    if random.random() < 0.15:  # round numbers reach further
        a, b = 10 * a // random.choice([1, 2]), 10 * b // 2
    return (a, b) if sign == "+" or a > b else (a + b, b)


def _result(a: int, sign: str, b: int) -> int:
    return {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[sign]


def _working(a: int, sign: str, b: int) -> str:
    return f"{a} {sign} {b} = {_result(a, sign, b)}"


def _share(random: Random, a: int, b: int) -> Problem:
    """Half of something, or a third."""
    part = next(name for name, number in _MORE.items() if number == b)
    words = _words(random) | {"a": a, "p": part, "c": a // b}
    question, answer = random.choice(
        [
            ("{n} has {a} {t} and sells {p} of them. How many {t} does {n} sell?", "{n} sells {c} {t}."),
            ("There are {a} {t} in a {g}. {n} takes {p} of them. How many {t} does {n} take?",
             "{n} takes {c} {t}."),
        ]
    )  # fmt: skip
    return Problem(question.format(**words), f"{_working(a, '/', b)}. {answer.format(**words)}", a // b)


def _words(random: Random) -> dict[str, str | int]:
    name, other = random.sample(_NAMES, 2)
    group = random.choice(list(_GROUPS))
    return {
        "n": name,
        "m": other,
        "t": random.choice(_THINGS),
        "g": group,
        "gs": _GROUPS[group],
    }
