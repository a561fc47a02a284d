"""Files of another kind as training text, and halves of characters in it: one line and exit code 2."""

from __future__ import annotations

import pytest
from bad_answers import refused, training
from bad_texts import BadText

from medusa_core.errors import MedusaError
from medusa_core.training.config import SelfDistillConfig
from medusa_core.training.recipes import train
from ui.tabs.train.plan import PASTE, Plan, save_text

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


def test_pasted_halves_of_characters_are_refused_too(tmp_path):
    with pytest.raises(MedusaError, match=r"half a character \(U\+D83D\) at position 3: paste it again"):
        save_text(Plan("medusa1", PASTE, text="ab\ud83d"), tmp_path / "data")


def test_a_model_whose_texts_do_not_end_writes_none(engine_folder, tmp_path):
    config = SelfDistillConfig(model=str(engine_folder), out=str(tmp_path / "run"), data_root=str(tmp_path))
    with pytest.raises(MedusaError, match="no end-of-text token: set eos_token"):
        next(train(config))
