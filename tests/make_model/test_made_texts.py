"""The texts that the base goes on with: sums that are right, and chats about stories."""

import re
from itertools import islice
from random import Random

import pytest

from tools.make_model.made_texts import main
from tools.make_model.story_chats import story_chats
from tools.make_model.sums import drills, is_held_out, one_step, sums, two_steps
from tools.make_model.writing import first_repeat

_SUM = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")
_STORY = (
    "Once upon a time, there was a little frog named Tim. He lived by a pond. One day, he saw a bird. "
    'The bird said, "Come and fly with me!" Tim jumped high. He fell. They laughed and were friends.'
)


def _written(text: str) -> list[tuple[int, str, int, int]]:
    return [(int(a), sign, int(b), int(c)) for a, sign, b, c in _SUM.findall(text)]


@pytest.mark.parametrize(
    ("documents", "heldout"),
    [(sums(3, 800, heldout=False), False), (sums(3, 800, heldout=True), True), (drills(3, 40), False)],
)
def test_every_sum_is_right_and_numbers_are_either_trained_on_or_held_out(documents, heldout):
    documents = list(documents)
    for document in documents:
        assert _written(document)
        for a, sign, b, c in _written(document):
            assert {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign] == c
            assert heldout or not is_held_out(a, sign, b)
    if heldout:
        for problem in (turn for document in documents for turn in document.split("\nUser:")):
            assert not (found := _written(problem)) or any(is_held_out(a, sign, b) for a, sign, b, _ in found)


def test_one_drill_in_four_tells_products_by_their_reverses_and_quotients():
    tables = [found for found in map(_written, drills(3, 80)) if {sign for _, sign, _, _ in found} <= {*"*/"}]
    assert 10 <= len(tables) <= 30
    for found in tables:
        products = [(a, b, c) for a, sign, b, c in found if sign == "*"]
        told = [(b, "*", a, c) in found or (c, "/", a, b) in found for a, b, c in products]
        assert sum(told) > 0.7 * len(told)  # held-out sums are missing


@pytest.mark.parametrize(("make", "steps"), [(one_step, 1), (two_steps, 2)])
def test_a_problem_ends_with_its_result(make, steps):
    random = Random(5)
    for _ in range(300):
        problem = make(random, heldout=False)
        assert int(re.findall(r"\d+", problem.answer)[-1]) == problem.result
        assert len(_written(problem.answer)) == steps
        assert "{" not in problem.text


def test_a_seed_gives_the_same_sums():
    assert list(sums(1, 20, heldout=False)) == list(sums(1, 20, heldout=False))
    assert list(sums(1, 20, heldout=False)) != list(sums(2, 20, heldout=False))


def test_a_chat_tells_the_story_in_the_story_s_own_sentences_and_asks_nothing_twice():
    chats = list(islice(story_chats([_STORY] * 50, seed=1), 50))
    assert len(set(chats)) > 25
    for chat in chats:
        turns = [turn.split(": ", 1) for turn in chat.splitlines()]
        assert [speaker for speaker, _ in turns] == list("AB" * (len(turns) // 2))
        asked = [turn for speaker, turn in turns if speaker == "A"]
        assert len(set(asked)) == len(asked)
        told = " ".join(turn for speaker, turn in turns if speaker == "B")
        assert all(sentence in told for sentence in _STORY.split(". "))


def test_a_story_of_few_sentences_makes_no_chat():
    assert list(story_chats(["There was a cat. It slept."], seed=1)) == []


def test_the_command_writes_what_is_trained_on_and_what_is_held_out(tmp_path, monkeypatch):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in ("tinystories.txt", "tinystories_heldout.txt"):
        (corpus / name).write_text(f"{_STORY}\n<|endoftext|>\n{_STORY}\n", encoding="utf-8")
    monkeypatch.setattr(
        "sys.argv", ["made_texts", "--data-root", str(tmp_path), "--sums", "120", "--drills", "3"]
    )
    main()
    written = {
        file.name: file.read_text(encoding="utf-8").split("<|endoftext|>")
        for file in (tmp_path / "made").iterdir()
    }
    assert {name: len(documents) for name, documents in written.items()} == {
        "sums.txt": 120, "sums_heldout.txt": 2, "drills.txt": 3, "chats.txt": 2, "chats_heldout.txt": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        ("The cat ran. The dog ran. The cat ran.", True),
        ("A: And then?\nB: He ran away. A: Go on.\nB: He ran away.", True),
        ("The cat ran. The dog ran. Yes. Yes.", False),
        ("", False),
    ],
)
def test_a_text_repeats_where_a_whole_sentence_comes_twice(text, repeats):
    assert bool(first_repeat(text)) is repeats
