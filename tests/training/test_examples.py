"""Examples from files: the shapes of a line, plain text, and that bad input is named."""

from __future__ import annotations

import lzma
import os
import shutil

import pytest
from bad_answers import refused, training
from bad_texts import BadText
from hypothesis import given
from hypothesis import strategies as st
from paths import BESIDE
from training_text import embedded_tokenizer, write_lines

from medusa_core.errors import MedusaError
from medusa_core.training.config import SelfDistillConfig
from medusa_core.training.encoding import Encoder
from medusa_core.training.examples import END_OF_TEXT, read_examples
from medusa_core.training.recipes import train
from ui.tabs.train.plan import PASTE, Plan, save_text

PROMPT_SETS = BESIDE / "data" / "prompts"


def test_lines_of_all_shapes_may_be_mixed(tmp_path):
    file = write_lines(
        tmp_path / "mixed.jsonl",
        {"text": "Once.", "source": "a book"},
        {"prompt": "Hi.", "response": "Hello."},
        {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."},
                      {"role": "assistant", "content": "Hello."}]},
    )  # fmt: skip
    text, pair, messages = read_examples(file)
    assert (text.text, text.messages, text.user_turns) == ("Once.", (), ())
    assert pair.messages == (("user", "Hi."), ("assistant", "Hello."))
    assert pair.paired
    assert not messages.paired
    assert messages.user_turns == ("Hi.",)
    assert messages.place == f"line 3 of {file}"


def test_prompts_are_read_when_they_need_no_answer(tmp_path):
    file = write_lines(
        tmp_path / "prompts.jsonl",
        {"prompt": "a"}, {"question": "b", "answer": "4"}, {"turns": ["c", "d"], "reference": "x"},
        {"messages": [{"role": "user", "content": "e"}]}, {"text": "f"}, {"prompt": "g", "response": "h"},
    )  # fmt: skip
    examples = list(read_examples(file, answered=False))
    assert [e.user_turns for e in examples] == [("a",), ("b",), ("c", "d"), ("e",), (), ("g",)]
    assert examples[4].text == "f"


@pytest.mark.skipif(not PROMPT_SETS.is_dir(), reason="no prompt sets beside the repository")
def test_the_prompt_sets_are_read():
    for file in PROMPT_SETS.iterdir():
        assert all(example.user_turns for example in read_examples(file, answered=False))


@pytest.mark.parametrize("suffix", [".txt", ".txt.xz"])
def test_documents_of_a_text_are_separated_by_a_line(tmp_path, suffix):
    raw = f"\ufeffone\r\n1\r\n{END_OF_TEXT}\r\n\n{END_OF_TEXT}\ntwo {END_OF_TEXT} 2\n\n{END_OF_TEXT}\nthree"
    file = tmp_path / f"a{suffix}"
    file.write_bytes(lzma.compress(raw.encode()) if suffix == ".txt.xz" else raw.encode())
    examples = list(read_examples(file))
    assert [example.text for example in examples] == ["one\n1", f"two {END_OF_TEXT} 2", "three"]
    assert [example.place.split()[1] for example in examples] == ["1", "6", "9"]


def test_a_folder_is_read_file_by_file(tmp_path):
    (tmp_path / "b.txt").write_text("text b", encoding="utf-8")
    write_lines(tmp_path / "a.jsonl", {"text": "text a"})
    (tmp_path / "notes.pdf").write_bytes(b"\xff\x00")
    (tmp_path / ".hidden.txt").write_bytes(b"\xff\x00")
    assert [example.text for example in read_examples(tmp_path)] == ["text a", "text b"]


BAD_LINES = {
    "no JSON": ('{"text": "a"', r"is not valid JSON \(.*column 13\): write one JSON object a line"),
    "a list": ('["a"]', "is a list, not an object: write {"),
    "a huge number": ("1" * 5000, "is JSON beyond reason"),
    "deep": ("[" * 200_000, "is JSON beyond reason|is not valid JSON"),
    "no shape": ('{"title": "a", "body": "b"}', "has 'title', 'body': write {"),
    "nothing": ("{}", "has no field: write {"),
    "empty text": ('{"text": ""}', '"text" is empty: write some text'),
    "blank text": ('{"text": " \\n"}', '"text" is blank: write some text'),
    "no string": ('{"text": 5}', '"text" is a number: write some text'),
    "no response": ('{"prompt": "a"}', 'a "prompt" without its answer: add a "response"'),
    "a list as response": ('{"prompt": "a", "response": ["b"]}', '"response" is a list'),
    "empty messages": ('{"messages": []}', '"messages" is empty: write a list of turns'),
    "messages as text": ('{"messages": "a"}', '"messages" is a string'),
    "a turn as text": ('{"messages": ["a"]}', 'message 1 is a string: write {"role", "content"}'),
    "unknown role": ('{"messages": [{"role": "bot", "content": "a"}]}',
                     "message 1 has the role 'bot': use system, user, assistant"),
    "a list as role": ('{"messages": [{"role": [], "content": "a"}]}', "has the role"),
    "no content": ('{"messages": [{"role": "user"}]}', 'message 1 has no "content": add it'),
    "parts as content": ('{"messages": [{"role": "user", "content": [{"type": "text"}]}]}',
                         '"content" is a list: write some text'),
    "no answer": ('{"messages": [{"role": "user", "content": "a"}]}', "no turn of the assistant: add one"),
    "bad UTF-8": (b'{"text": "\xff"}', "is not UTF-8"),
    "UTF-16": ('{"text": "a"}'.encode("utf-16"), "is not UTF-8|is not valid JSON"),
}  # fmt: skip


@pytest.mark.parametrize(("line", "message"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_is_named(tmp_path, line, message):
    file = tmp_path / "bad.jsonl"
    line = line if isinstance(line, bytes) else line.encode()
    file.write_bytes(b'{"text": "fine"}\n\n' + line + b'\n{"text": "fine"}\n')
    with pytest.raises(MedusaError, match=rf"^line 3 of .*{file.name}.*({message})") as caught:
        list(read_examples(file))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(file))


def test_a_line_too_long_for_an_example_is_named(tmp_path):
    file = tmp_path / "long.jsonl"
    file.write_bytes(b"a" * (2**25 + 1))
    with pytest.raises(MedusaError, match=r"line 1 of .* is longer than 32 MiB: write one example a line"):
        list(read_examples(file))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"fine\nb\xffd\n", "line 2 of .*a.txt is not UTF-8 .*: save it as UTF-8"),
        (b"fine\nfine\n\xe2\x82", "line 3 of .*a.txt is not UTF-8"),
        ("text".encode("utf-16-le"), "line 1 of .*a.txt holds a NUL byte: save it as plain text"),
        (b"", "a.txt holds no text: write at least one document"),
        (b" \n\n<|endoftext|>\n", "a.txt holds no text"),
    ],
)
def test_a_text_that_is_none_is_named(tmp_path, raw, message):
    file = tmp_path / "a.txt"
    file.write_bytes(raw)
    with pytest.raises(MedusaError, match=message):
        list(read_examples(file))


@given(st.binary(max_size=300), st.sampled_from(["a.txt", "a.jsonl", "a.txt.xz", "a.bin"]))
def test_garbage_is_read_or_refused(tmp_path_factory, raw, name):
    file = tmp_path_factory.mktemp("garbage") / name
    file.write_bytes(raw)
    texts, errors = [], []
    try:
        texts += [example.text for example in read_examples(file)]
    except MedusaError as error:
        errors.append(str(error))
    shutil.rmtree(file.parent)
    assert all(text.strip() for text in texts)
    assert all(str(file) in error for error in errors)
    assert texts or errors


def test_a_cut_archive_is_refused(tmp_path):
    file = tmp_path / "a.txt.xz"
    file.write_bytes(lzma.compress(b"some text\n" * 1000)[:-20])
    with pytest.raises(MedusaError, match=r"cannot read .*a\.txt\.xz \(.*\): check that the file is whole"):
        list(read_examples(file))


def test_characters_in_two_halves_are_whole(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a \\ud83d\\ude00"}\n', encoding="utf-8")
    (example,) = read_examples(file)
    assert example.text == "a 😀"
    (arrays,) = Encoder(embedded_tokenizer()).encode([example])
    assert embedded_tokenizer().decode(arrays.tokens[:-1]) == example.text


# --- Files of another kind as training text, and halves of characters in it: one line and exit code 2.


PDF = b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\n" + b"BT (abcdefgh) Tj ET\n" * 200  # plain ASCII
KINDS = {
    "x.pdf": (PDF, "x.pdf is a PDF", "save it as text in UTF-8"),
    "letter.docx": (b"PK\x03\x04 words", "is a zip archive, as .docx", "save it as text"),
    "letter.txt": (b"{\\rtf1\\ansi words}", "is an RTF document", "save it as text"),
    "story.txt.gz": (b"\x1f\x8b\x08\0", "is compressed by gzip", "save it as text"),
    "windows.txt": ("abc\n".encode("utf-16"), "is UTF-16 text", "save it as text in UTF-8"),
    "picture.txt": (b"\x89PNG\r\n\x1a\n\0", "line 1 of .* not UTF-8|NUL", "save it"),
    "latin.txt": ("abc café".encode("latin-1"), "line 1 of .*latin.txt is not UTF-8", "save it as UTF-8"),
    "half.txt": (b"abc\nab\xed\xa0\xbdc\n", "is not UTF-8", "save it as UTF-8"),
    "half.jsonl": (b'{"text": "abc"}\n{"text": "abc\\ud83d"}\n',
                   r'line 2 of .*half.jsonl: "text" has half a character \(U\+D83D\) at position 4',
                   "write the whole one"),
    "turns.jsonl": (
        b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "\\udc0b"}]}',
        r'line 1 of .*, message 2: "content" has half a character \(U\+DC0B\)', "write the whole",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_training_ends_in_one_line(command, shop, name):
    content, cause, fix = KINDS[name]
    file = shop.out / name
    file.write_bytes(content)
    argv = training(shop, "--model", str(shop.engine))
    argv[argv.index("--data") + 1] = file
    refused(command(argv), BadText("", cause, fix))
    row = BadText("", cause, fix)
    refused(
        command(["fit", "--plan", "--model", shop.engine, "--out", shop.out / "fit", "--prompts", file]), row
    )


def test_a_name_that_is_no_utf8_trains(command, shop):
    argv = training(shop, "--model", shop.engine)
    file = shutil.copyfile(shop.engine / "text.jsonl", shop.out / os.fsdecode(b"caf\xe9.jsonl"))
    argv[argv.index("--data") + 1] = file
    code, _, err = command(argv)
    assert code == 0, err
    assert r"caf\udce9 |" in (shop.out / "run" / "README.md").read_text(encoding="utf-8")


def test_pasted_halves_of_characters_are_refused_too(tmp_path):
    with pytest.raises(MedusaError, match=r"half a character \(U\+D83D\) at position 3: paste it again"):
        save_text(Plan("medusa1", PASTE, text="ab\ud83d"), tmp_path / "data")


def test_a_model_whose_texts_do_not_end_writes_none(engine_folder, tmp_path):
    config = SelfDistillConfig(model=str(engine_folder), out=str(tmp_path / "run"), data_root=str(tmp_path))
    with pytest.raises(MedusaError, match="no end-of-text token: set eos_token"):
        next(train(config))
