"""Chats about the stories themselves, from which the embedded base learns to talk.

A asks and B answers with sentences of a story, either telling it turn by turn or after telling it
whole. No turn of A occurs twice in a chat.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from random import Random

_SUBJECT = re.compile(
    r"\bthere (?:was|lived) (an? [a-z ]{2,30}?)(?:\s+(?:named|called) ([A-Z][a-z]+))?(?=[.,]| who)"
)
_SENTENCE = re.compile(r'[^.!?]+[.!?]+"?(?=\s|$)')
_QUOTE = re.compile(r'"([^"]{8,90}[.!?])"')
_GREETINGS = ["Hi!", "Hello!", "Good evening!", "Hey!", "Good morning!", "Hello there!", "Hi there!", ""]
_ASKS = [
    "Will you tell me a story{about}?",
    "Do you know a story{about}?",
    "Can you tell me a story{about}?",
    "Please tell me a story{about}.",
    "I would like to hear a story{about}.",
    "I cannot sleep. Do you have a story{about}?",
    "What are you reading? Is it a story{about}?",
    "Did you read the story{about}?",
]
_YES = [
    "Yes.",
    "Sure!",
    "Of course!",
    "I do.",
    "Yes, I will.",
    "Gladly.",
    "Yes, it is a nice one.",
    "Listen.",
]
_NEXT = [
    "And then?", "What happened next?", "Oh! What did they do?", "Go on, please.",
    "And what happened after that?", "Really? And then what?", "How does it go on?", "Tell me more.",
    "What came next?", "I see. And after that?", "Oh no! What then?", "That is nice. What next?",
    "And what was next?", "Please do not stop now.", "I want to know more.", "What happened then?",
    "Wow! And then?", "Did something else happen?", "Then what?", "Is there more?", "Hm, go on.",
    "Did it turn out well?", "So what happened?", "Keep going, please.",
]  # fmt: skip
_LAST = [
    "How does the story end?", "How did it end?", "What is the end of the story?", "And in the end?",
    "Did it have a happy end?", "What happened in the end?",
]  # fmt: skip
_GOODBYES = [
    ("Thank you!", "You are welcome."),
    ("What a nice story!", "I am glad that you like it."),
    ("I like that story.", "I like it too."),
    ("That was a good story.", "It is one of my favorites."),
    ("Thanks. Good night!", "Sleep well!"),
]
_LONGEST_TURN = 480  # characters
_LONGEST_STORY = 900


def story_chats(stories: Iterable[str], seed: int) -> Iterator[str]:
    """Yield a chat for each story that has enough sentences, as alternating ``A: …`` and ``B: …``."""
    random = Random(seed)
    for story in stories:
        text = " ".join(story.split())
        sentences = [found.group().strip() for found in _SENTENCE.finditer(text)]
        if len(sentences) < 5:
            continue
        make = _told_whole if len(text) <= _LONGEST_STORY and random.random() < 0.5 else _told_in_turns
        turns = make(random, text, sentences)
        yield "\n".join(f"{speaker}: {turn}" for speaker, turn in zip("AB" * len(turns), turns, strict=False))


def _opening(random: Random, text: str) -> str:
    subject = _subject(text)
    ask = random.choice(_ASKS).format(
        about=f" about {subject[0]}" if subject and random.random() < 0.8 else ""
    )
    return f"{random.choice(_GREETINGS)} {ask}".strip()


def _subject(text: str) -> tuple[str, str] | None:
    """Whom the story is about, and a name where it gives one."""
    found = _SUBJECT.search(text[:220])
    return (found[1], found[2] or "") if found else None


def _told_in_turns(random: Random, text: str, sentences: list[str]) -> list[str]:
    turns, questions = [_opening(random, text)], iter(random.sample(_NEXT, len(_NEXT)))
    for part in _parts(random, sentences):
        if len(turns) > 1:
            turns.append(next(questions, ""))
        turns.append(f"{random.choice(_YES)} {part}" if len(turns) == 1 and random.random() < 0.6 else part)
        if not turns[-2]:
            return turns[:-2]
    return [*turns, *random.choice(_GOODBYES)]


def _parts(random: Random, sentences: list[str]) -> Iterator[str]:
    """The story's sentences, three to six together, so that few turns merely ask for the next ones."""
    part: list[str] = []
    size = random.randint(3, 6)
    for sentence in sentences:
        part.append(sentence)
        spoken = " ".join(part).count('"') % 2  # somebody is still speaking
        if not spoken and (len(part) >= size or sum(map(len, part)) > _LONGEST_TURN):
            yield " ".join(part)
            part, size = [], random.randint(3, 6)
    if part:
        yield " ".join(part)


def _told_whole(random: Random, text: str, sentences: list[str]) -> list[str]:
    turns = [_opening(random, text), text]
    for question, answer in random.sample(asked := _questions(random, text, sentences), len(asked)):
        turns += [question, answer]
    return [*turns, *random.choice(_GOODBYES)]


def _questions(random: Random, text: str, sentences: list[str]) -> list[tuple[str, str]]:
    """Questions whose answers stand in the story."""
    found = [(random.choice(_LAST), sentences[-1])]
    if subject := _subject(text):
        who, name = subject
        found.append(
            (random.choice(["Who is the story about?", "Who is in the story?"]), f"It is about {who}.")
        )
        if name:
            kind = who.split()[-1]
            found.append((f"What was the {kind}'s name?", f"The {kind}'s name was {name}."))
    if day := next((one for one in sentences if one.startswith("One day")), None):
        found.append(("What happened one day?", day))
    if quote := _QUOTE.search(text):
        found.append((random.choice(["What did they say?", "What was said?"]), f'They said, "{quote[1]}"'))
    return found
