"""Training data: recipes, windows, what is held out, the cache of encoded text."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from training_text import CHATML, embedded_tokenizer, stories, templated, write_lines
from transformers import PreTrainedTokenizerFast

from medusa_core.errors import MedusaError
from medusa_core.training.config import DrafterConfig
from medusa_core.training.corpus import encode_source, load_recipe, load_sources
from medusa_core.training.data import HELDOUT_WINDOWS, PackedMixture, TrainingData, heldout_windows, load_data
from medusa_core.training.encoding import Encoder, TokenArrays
from medusa_core.training.examples import END_OF_TEXT
from tools.make_model.tokenizer import build_tokenizer


@pytest.fixture(scope="module")
def embedded():
    return embedded_tokenizer()


def load(tmp_path, data="", windows=50, tokenizer=None, **changes) -> TrainingData:
    settings = {"recipe": "", "heldout_share": 0.1, "sequence_length": 16, "out": str(tmp_path / "cache")}
    settings |= changes
    tokens = (windows - 1) * settings["sequence_length"]
    config = DrafterConfig(data=str(data), tokens=tokens, **settings)
    return load_data(config, tokenizer or embedded_tokenizer())


def same(first, second):
    return torch.equal(first.tokens, second.tokens) and torch.equal(first.trained, second.trained)


def tokens_of(batches):
    return torch.cat([batch.tokens for batch in batches])


def test_missing_files_are_named(tmp_path):
    for name, message in (("no.txt", "there is no file or folder"), ("", "holds no .jsonl, .txt")):
        with pytest.raises(MedusaError, match=message):
            load(tmp_path, tmp_path / name)
    with pytest.raises(MedusaError, match="nothing to train on: name a file or folder with --data"):
        load(tmp_path)


# --- recipes


@pytest.fixture
def recipe(tmp_path):
    """Two kinds: every tenth story, and a held-out file of conversations."""
    (tmp_path / "a.txt").write_text(f"\n{END_OF_TEXT}\n".join(stories(120)), encoding="utf-8")
    for name, first in (("train", 0), ("test", 500)):
        lines = [{"prompt": f"Is {n} odd?", "response": "no" if n % 2 == 0 else "yes"}
                 for n in range(first, first + 60)]  # fmt: skip
        write_lines(tmp_path / f"{name}.jsonl", *lines)
    return write_recipe(
        tmp_path,
        {"kind": "story", "files": ["a.txt"], "weight": 0.75, "heldout_every": 10},
        {"kind": "chat", "files": ["train.jsonl"], "weight": 0.25, "heldout": ["test.jsonl"]},
    )


def write_recipe(folder, *sources):
    (folder / "recipe.json").write_text(json.dumps({"sources": sources}), encoding="utf-8")
    return folder / "recipe.json"


def test_documents_are_held_out_or_trained_on_never_both(recipe):
    story, chats = load_recipe(recipe, recipe.parent)
    kept, held = list(story.documents(heldout=False)), list(story.documents(heldout=True))
    assert (len(kept), len(held)) == (108, 12)
    assert not set(kept) & set(held)
    assert next(example.user_turns[0] for example in chats.examples(heldout=True)) == "Is 500 odd?"
    assert len(list(chats.examples(heldout=False))) == 60


def test_a_recipe_shares_out_its_kinds_by_weight(recipe, tmp_path, embedded):
    loaded = load(tmp_path, recipe=str(recipe), data_root=str(recipe.parent), windows=400)
    chats = sum("User:" in embedded.decode(row) for row in loaded.mixture.batch(0, 400).tokens)
    assert chats == pytest.approx(100, abs=2)
    assert set(loaded.heldout) == {"story", "chat"}
    assert "Is 500 odd?" in embedded.decode(loaded.heldout["chat"].tokens[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"files": ["no.txt"]}, "no.txt.*: set --data-root"),
        ({"files": []}, "trains on 0 files"),
        ({"files": "a.txt"}, "must be a string"),
        ({"heldout": ["a.txt"]}, "holds out 1 of the same"),
        ({"weight": 0}, "must be above 0"),
        ({"weight": "NaN"}, "must be above 0"),
        ({"heldout_every": 1}, "above 1"),
        ({"kind": "chat"}, "name one at least, and each once"),
        ({"kind": None}, "must be a string"),
        ({"weight": None}, r"cannot read the data recipe .* \(float.*\): correct it, or train on text"),
    ],
)
def test_a_bad_recipe_is_refused(recipe, change, message):
    sources = json.loads(recipe.read_text(encoding="utf-8"))["sources"]
    write_recipe(recipe.parent, sources[0] | change, sources[1])
    with pytest.raises(MedusaError, match=message):
        load_recipe(recipe, recipe.parent)


def test_a_folder_makes_a_kind_of_each_file_weighted_by_its_tokens(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "long.txt").write_text("\n".join(stories(300)), encoding="utf-8")
    write_lines(folder / "short.jsonl", *({"text": text} for text in stories(100)))
    write_lines(folder / "short.txt", {"text": "x" * 400})
    loaded = load(tmp_path, folder, windows=1000)
    assert set(loaded.heldout) == {"long", "short.jsonl", "short.txt"}
    from_long = sum(int(which) == 0 for which, _ in loaded.mixture._order)
    sizes = [len(array) for array in loaded.mixture._arrays]
    share = sizes[0] / sum(sizes)
    assert from_long == pytest.approx(share * 1000, abs=3)


# --- windows


def arrays_of(tokens, trained=None):
    tokens = np.asarray(tokens, dtype=np.uint16)
    return TokenArrays(tokens, np.ones(len(tokens), bool) if trained is None else np.asarray(trained))


def test_batches_depend_on_the_seed_alone_and_share_out_the_sources():
    arrays = [arrays_of(np.zeros(5000)), arrays_of(np.ones(5000))]
    mixtures = [PackedMixture(arrays, [0.8, 0.2], 16, 500, seed=3, pad=0) for _ in range(2)]
    first, second = (tokens_of(m.batch(i, 10) for i in range(50)) for m in mixtures)
    assert torch.equal(first, second)
    assert first.shape == (500, 17)
    assert float(first[:, 0].float().mean()) == pytest.approx(0.2, abs=0.01)
    other = PackedMixture(arrays, [0.8, 0.2], 16, 500, seed=4, pad=0)
    assert not torch.equal(first, tokens_of(other.batch(i, 10) for i in range(50)))


def test_no_window_comes_twice_in_an_epoch():
    mixture = PackedMixture([arrays_of(np.arange(1000))], [1.0], 10, 90, seed=0, pad=0)
    starts = mixture.batch(0, 90).tokens[:, 0]
    assert len(set(starts.tolist())) == 90


@given(st.integers(2, 60), st.integers(1, 12), st.integers(0, 5), st.data())
def test_every_window_comes_from_its_array_and_predicts_something(total, length, seed, draw):
    tokens = np.arange(1, total + 1)
    trained = draw.draw(st.lists(st.booleans(), min_size=total, max_size=total))
    trained[-1] = True  # the end of every document counts
    mixture = PackedMixture([arrays_of(tokens, trained)], [1.0], length, 20, seed=seed, pad=0)
    batch = mixture.batch(0, 20)
    assert batch.tokens.shape == batch.trained.shape == (20, length + 1)
    assert batch.tokens.dtype == torch.int64
    for row, counts in zip(batch.tokens.tolist(), batch.trained.tolist(), strict=True):
        filled = [token for token in row if token]
        assert filled == list(range(filled[0], filled[0] + len(filled)))
        assert len(filled) == min(length + 1, total)
        assert counts == [trained[token - 1] for token in filled] + [False] * (length + 1 - len(filled))
        assert any(counts[1:])


def test_all_of_a_small_text_is_trained_on():
    mixture = PackedMixture([arrays_of(np.arange(25))], [1.0], 10, 200, seed=0, pad=0)
    assert set(mixture.batch(0, 200).tokens.flatten().tolist()) == set(range(25))


def test_heldout_windows_cover_the_text_once():
    batch = heldout_windows(arrays_of(np.arange(1, 26)), 10, pad=0)
    assert batch.tokens[:, 0].tolist() == [1, 11, 21]
    assert batch.tokens[2].tolist() == [21, 22, 23, 24, 25, 0, 0, 0, 0, 0, 0]
    assert batch.trained[2].tolist() == [True] * 5 + [False] * 6
    many = heldout_windows(arrays_of(np.arange(5000)), 10, pad=0)
    assert len(many.tokens) == HELDOUT_WINDOWS
    assert len(heldout_windows(arrays_of(np.arange(5000)), 10, pad=0, count=100).tokens) == 100


# --- all together


@pytest.mark.sample
@pytest.mark.parametrize("count", [1, 2, 3, 4, 9, 10, 11, 60])
@pytest.mark.parametrize("shape", ["text", "chat"])
def test_heldout_text_is_never_trained_on(tmp_path, embedded, count, shape):
    """Each document is about a number of its own; the numbers on both sides are compared."""
    if shape == "text":
        lines = [{"text": " ".join(f"w{n}x{i}" for i in range(30))} for n in range(100, 100 + count)]
    else:
        lines = [{"prompt": f"Say {n}", "response": " ".join(f"w{n}x{i}" for i in range(30))}
                 for n in range(100, 100 + count)]  # fmt: skip
    file = write_lines(tmp_path / "a.jsonl", *lines)
    (source,) = load_sources(file, 0.1)
    split = encode_source(source, Encoder(embedded), tmp_path / "cache")
    words = [
        {word for word in embedded.decode(arrays.tokens).replace(END_OF_TEXT, " ").split() if "x" in word}
        for arrays in (split.train, split.heldout)
    ]
    kept, held = words
    assert kept
    assert held
    if count < 4:  # cut inside a document, where a word may be broken in two
        assert len(kept | held) >= 30 * count
        assert len(kept & held) == 0
        assert len(split.heldout) <= len(split.train) / 2
    else:
        assert not kept & held
        assert len(kept | held) == 30 * count
        assert len(held) == 30 * max(1, count // 10)
    assert split.train.trained[1:].any()
    assert split.heldout.trained[1:].any()


@pytest.mark.parametrize("length", [16, 512])
def test_a_pasted_paragraph_trains(tmp_path, embedded, length):
    text = (
        "The owl lived in an old tree. Every night it looked at the moon and sang a little song about mice."
    )
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    loaded = load(tmp_path, tmp_path / "a.txt", sequence_length=length)
    batch = loaded.mixture.batch(7, 4)
    assert batch.tokens.shape == (4, length)
    assert bool(batch.trained[:, 1:].any(dim=1).all())
    assert embedded.decode(batch.tokens[0][batch.trained[0]]).strip() in text
    assert int(loaded.heldout["a"].trained.sum()) >= 5
    assert int(batch.trained.sum(dim=1).max()) <= len(loaded.mixture._arrays[0])


@pytest.mark.parametrize(
    "line", [{"prompt": "Hi", "response": "Hello to you, my friend"}, {"text": "abc def"}]
)
def test_one_line_trains(tmp_path, line):
    loaded = load(tmp_path, write_lines(tmp_path / "a.jsonl", line))
    assert bool(loaded.mixture.batch(0, 2).trained[:, 1:].any())
    assert bool(loaded.heldout["a"].trained[:, 1:].any())


def test_a_word_is_too_little(tmp_path):
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    with pytest.raises(MedusaError, match=r"text of 'a' has 2 tokens to train on, 4 are needed: add text"):
        load(tmp_path, tmp_path / "a.txt")


def test_windows_without_an_answer_are_left_out(tmp_path):
    long = "Tell me about the sea and the sky and the hills. " * 12
    lines = [{"prompt": f"{n}. {long}", "response": "No."} for n in range(40)]
    loaded = load(tmp_path, write_lines(tmp_path / "a.jsonl", *lines), windows=300)
    batches = [loaded.mixture.batch(i, 10) for i in range(30)]
    assert all(bool(batch.trained[:, 1:].any(dim=1).all()) for batch in batches)
    assert bool(loaded.heldout["a"].trained[:, 1:].any(dim=1).all())
    starts = [tuple(row) for row in loaded.mixture._order[: 40 // 2].tolist()]
    assert len(set(starts)) == len(starts)


def test_the_same_settings_give_the_same_batches_from_any_step(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", *({"text": text} for text in stories(50)))
    first, second = load(tmp_path, file), load(tmp_path, file, out=str(tmp_path / "other"))
    whole = [first.mixture.batch(i, 8) for i in range(10)]
    assert all(same(whole[i], second.mixture.batch(i, 8)) for i in (9, 3, 0, 7))
    assert same(first.heldout["a"], second.heldout["a"])
    assert not same(whole[0], load(tmp_path, file, seed=1).mixture.batch(0, 8))


def test_the_share_must_leave_text_on_both_sides(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", *({"text": text} for text in stories(50)))
    for share in (0.0, 0.6, float("nan")):
        with pytest.raises(MedusaError, match="heldout_share is"):
            load(tmp_path, file, heldout_share=share)
    half = load(tmp_path, file, heldout_share=0.5)
    assert len(half.heldout["a"].tokens) > 1


# --- the cache


def caches(tmp_path):
    return {file.name: file.stat().st_mtime_ns for file in (tmp_path / "cache" / "tokens").iterdir()}


def test_encoded_text_is_kept_until_something_changes(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", *({"text": text} for text in stories(50)))
    first = load(tmp_path, file)
    before = caches(tmp_path)
    assert len(before) == 4
    assert same(load(tmp_path, file).mixture.batch(0, 5), first.mixture.batch(0, 5))
    assert caches(tmp_path) == before
    assert isinstance(first.mixture._arrays[0].tokens, np.memmap)

    edited = file.read_text(encoding="utf-8").replace("ends well", "ends ill.")  # as long as before
    file.write_text(edited, encoding="utf-8")
    changed = load(tmp_path, file)
    assert not same(changed.heldout["a"], first.heldout["a"])
    assert len(caches(tmp_path)) == 4, "what the text was before is not kept"
    assert not set(caches(tmp_path)) & set(before)

    for change in (
        {"heldout_share": 0.2},
        {"tokenizer": PreTrainedTokenizerFast(
            tokenizer_object=build_tokenizer(stories(9), 300), eos_token=END_OF_TEXT)},
        {"tokenizer": templated(CHATML)},
    ):  # fmt: skip
        known = caches(tmp_path)
        load(tmp_path, file, **change)
        assert not set(caches(tmp_path)) & set(known)


def test_kinds_of_any_name_share_a_cache(tmp_path):
    for name in ("a", "b"):
        write_lines(tmp_path / f"{name}.jsonl", *({"text": name + text} for text in stories(50)))
    kinds = ["a/../b", "a b", "a-b", "數", "<b>" * 40]
    sources = [{"kind": kind, "files": [f"{'ab'[i % 2]}.jsonl"], "weight": 1} for i, kind in enumerate(kinds)]
    recipe = write_recipe(tmp_path, *sources)
    first = load(tmp_path, recipe=str(recipe), data_root=str(tmp_path))
    before = caches(tmp_path)
    assert len(before) == 4 * len(kinds)
    again = load(tmp_path, recipe=str(recipe), data_root=str(tmp_path))
    assert caches(tmp_path) == before
    assert list(first.heldout) == kinds
    assert all(same(first.heldout[kind], again.heldout[kind]) for kind in kinds)


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "cache").write_text("a file", encoding="utf-8")
    file = write_lines(tmp_path / "a.jsonl", *({"text": text} for text in stories(50)))
    with pytest.raises(MedusaError, match=r"cannot write the encoded text to .*cache"):
        load(tmp_path, file)
