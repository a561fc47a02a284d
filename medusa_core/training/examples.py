"""Training examples from files: JSON lines and plain text, one record an example.

A JSON line is ``{"text"}``, ``{"prompt", "response"}`` or ``{"messages": [{"role", "content"}, ...]}``, in
any mixture; a plain text holds documents separated by a line ``<|endoftext|>``. Files may be xz-compressed
and are read piece by piece. Errors name file, line, cause and fix.
"""

from __future__ import annotations

import codecs
import itertools
import json
import lzma
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NamedTuple

from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import require_file, special_kind

END_OF_TEXT = "<|endoftext|>"
ROLES = ("system", "user", "assistant")
SHAPES = '{"text"}, {"prompt", "response"} or {"messages": [{"role", "content"}, ...]}'
_JSON_LINES = (".jsonl", ".ndjson", ".json")
_LINE_BYTES = 2**25  # a file with a longer line is of another kind
_DOCUMENT_BYTES = 2**28
_PIECE_BYTES = 2**20
# First bytes of files that are not text, although part of them could be read as text.
_OTHER_KINDS = {
    b"%PDF-": "a PDF",
    b"PK\x03\x04": "a zip archive, as .docx, .odt and .epub are",
    b"{\\rtf": "an RTF document",
    b"\x1f\x8b": "compressed by gzip",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_JSON_TYPES = {str: "a string", bool: "a boolean", int: "a number", float: "a number", list: "a list",
               dict: "an object", type(None): "null"}  # fmt: skip


class Message(NamedTuple):
    """One turn of a conversation; the role is one of ``ROLES``."""

    role: str
    content: str


@dataclass(frozen=True)
class Example:
    """A plain text, or a conversation: exactly one of ``text`` and ``messages`` is there."""

    text: str | None
    messages: tuple[Message, ...]
    paired: bool  # from a prompt and its response, which make sense without a chat template too
    place: str  # "line 3 of chat.jsonl", for errors

    @property
    def plain_text(self) -> str:
        """The text, or the turns of the conversation with line breaks between them."""
        if self.text is not None:
            return self.text
        return "\n".join(message.content for message in self.messages)

    @property
    def user_turns(self) -> tuple[str, ...]:
        """What the user says, in order; nothing for a plain text. The seed of a self-distilled dialogue."""
        return tuple(message.content for message in self.messages if message.role == "user")


def data_files(path: Path) -> tuple[Path, ...]:
    """The file itself, or the .jsonl, .txt and .xz files of a folder in the order of their names.

    Raises MedusaError when there is none. A file given by name may have any suffix: what is not JSON lines
    is plain text.
    """
    if path.is_file():
        return (path,)
    if kind := special_kind(path):
        raise MedusaError(f"the training data {path} is {kind} and no file: save the text as a file")
    if not path.is_dir():
        raise MedusaError(f"there is no file or folder {path}: check the name of the training data")
    known = (*_JSON_LINES, ".txt")
    files = tuple(
        file for file in sorted(path.iterdir()) if _format(file) in known and file.is_file()
        if not file.name.startswith(".")
    )  # fmt: skip
    if not files:
        raise MedusaError(f"the folder {path} holds no .jsonl, .txt or .txt.xz file: put the text there")
    return files


def read_examples(path: Path, *, answered: bool = True) -> Iterator[Example]:
    """Yield the examples of a file or of the files of a folder.

    With ``answered`` every conversation has an assistant's turn. Without it, prompts are read as well:
    ``{"prompt"}``, ``{"question"}`` and ``{"turns": [...]}`` become the user's turns, and messages need no
    assistant. Raises MedusaError that names the line of a bad example, or the file that holds none.
    """
    return itertools.chain.from_iterable(_read_file(file, answered) for file in data_files(path))


def _format(file: Path) -> str:
    """The suffix that says how to read a file, without ".xz"."""
    name = Path(file.stem) if file.suffix.lower() == ".xz" else file
    return name.suffix.lower()


def _read_file(file: Path, answered: bool) -> Iterator[Example]:
    examples = _read_json_lines(file, answered) if _format(file) in _JSON_LINES else _read_documents(file)
    found = False
    for example in examples:
        found = True
        yield example
    if not found:
        raise MedusaError(f"{file} holds no text: write at least one document into it")


def _lines(file: Path, limit: int) -> Iterator[bytes]:
    """The lines of a file with their ends; one longer than ``limit`` bytes comes in pieces of that size."""
    try:
        with _open(file) as stream:
            first = True
            while line := stream.readline(limit):
                if first and (kind := next((k for b, k in _OTHER_KINDS.items() if line.startswith(b)), "")):
                    raise MedusaError(f"{file} is {kind}, and training reads text: save it as text in UTF-8")
                first = False
                yield line
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise MedusaError(f"cannot read {file} ({reason_of(error)}): check that the file is whole") from error


def _open(file: Path) -> BufferedIOBase:
    require_file(file)
    return lzma.open(file, "rb") if file.suffix.lower() == ".xz" else file.open("rb")


# --- plain text


def _read_documents(file: Path) -> Iterator[Example]:
    """Documents of a plain text, without the line breaks around them; blank ones are left out."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    parts: list[str] = []
    number, first, size, new_line = 1, 1, 0, True
    for piece in itertools.chain(_lines(file, _PIECE_BYTES), [b""]):
        if b"\0" in piece:
            raise MedusaError(f"line {number} of {file} holds a NUL byte: save it as plain text in UTF-8")
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            raise MedusaError(
                f"line {number} of {file} is not UTF-8 ({error.reason}): save it as UTF-8"
            ) from error
        if not piece or (new_line and piece.strip() == END_OF_TEXT.encode()):
            document = "".join(parts).replace("\r\n", "\n").replace("\r", "\n").strip("\n")
            if document.strip():
                yield Example(document, (), paired=False, place=f"line {first} of {file}")
            parts, size, first = [], 0, number + 1
        else:
            parts.append(text)
            size += len(piece)
        if size > _DOCUMENT_BYTES:
            raise MedusaError(
                f"the document at line {first} of {file} is longer than {_DOCUMENT_BYTES >> 20} MiB: "
                f"separate documents by a line {END_OF_TEXT}"
            )
        new_line = piece.endswith(b"\n")
        number += new_line


# --- JSON lines


def _read_json_lines(file: Path, answered: bool) -> Iterator[Example]:
    for number, line in enumerate(_lines(file, _LINE_BYTES + 1), start=1):
        place = f"line {number} of {file}"
        if len(line) > _LINE_BYTES:
            raise MedusaError(f"{place} is longer than {_LINE_BYTES >> 20} MiB: write one example a line")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise MedusaError(f"{place} is not UTF-8 ({error.reason}): save the file as UTF-8") from error
        if text.strip():
            yield _example(_parse(text.strip(), place), place, answered)


def _parse(line: str, place: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise MedusaError(
            f"{place} is not valid JSON ({error.msg}, column {error.colno}): write one JSON object a line"
        ) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise MedusaError(f"{place} is JSON beyond reason ({error}): write {SHAPES}") from error
    if not isinstance(entry, dict):
        raise MedusaError(f"{place} is {_JSON_TYPES[type(entry)]}, not an object: write {SHAPES}")
    return entry


def _example(entry: dict[str, Any], place: str, answered: bool) -> Example:
    if "messages" in entry:
        return Example(None, _messages(entry["messages"], place, answered), paired=False, place=place)
    prompt = "prompt" if "prompt" in entry or answered else "question"
    if prompt in entry and ("response" in entry or not answered):
        messages = [Message("user", _string(entry, prompt, place))]
        if "response" in entry:
            messages.append(Message("assistant", _string(entry, "response", place)))
        return Example(None, tuple(messages), paired=True, place=place)
    if "turns" in entry and not answered:
        return Example(None, _turns(entry["turns"], place), paired=False, place=place)
    if "text" in entry:
        return Example(_string(entry, "text", place), (), paired=False, place=place)
    if prompt in entry:
        raise MedusaError(f'{place} has a "prompt" without its answer: add a "response"')
    found = ", ".join(map(repr, itertools.islice(entry, 5))) or "no field"
    raise MedusaError(f"{place} has {found[:200]}: write {SHAPES}")


def _messages(value: Any, place: str, answered: bool) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise MedusaError(f'{place}: "messages" is {_fault(value)}: write a list of turns')
    messages: list[Message] = []
    for turn, entry in enumerate(value, start=1):
        where = f"{place}, message {turn}"
        if not isinstance(entry, dict):
            raise MedusaError(f'{where} is {_JSON_TYPES[type(entry)]}: write {{"role", "content"}}')
        if entry.get("role") not in ROLES:
            raise MedusaError(f"{where} has the role {entry.get('role')!r:.40}: use {', '.join(ROLES)}")
        messages.append(Message(entry["role"], _string(entry, "content", where)))
    wanted = "assistant" if answered else "user"
    if all(message.role != wanted for message in messages):
        raise MedusaError(f"{place} has no turn of the {wanted}: add one")
    return tuple(messages)


def _turns(value: Any, place: str) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise MedusaError(f'{place}: "turns" is {_fault(value)}: write a list of strings')
    named = {f"turn {number}": turn for number, turn in enumerate(value, start=1)}
    return tuple(Message("user", _string(named, name, place)) for name in named)


def _string(entry: dict[str, Any], name: str, place: str) -> str:
    """The text of a field, without halves of characters, which have no bytes."""
    if name not in entry:
        raise MedusaError(f'{place} has no "{name}": add it')
    value = entry[name]
    if not isinstance(value, str) or not value.strip():
        raise MedusaError(f'{place}: "{name}" is {_fault(value)}: write some text')
    if half := _HALF_CHARACTER.search(value):
        raise MedusaError(
            f'{place}: "{name}" has half a character (U+{ord(half[0]):04X}) at position {half.start() + 1}: '
            "write the whole one, or take it out"
        )
    return value


def _fault(value: Any) -> str:
    """What is wrong with a value that should be a filled string or list."""
    if value in ("", []):
        return "empty"
    return "blank" if isinstance(value, str) and not value.strip() else _JSON_TYPES[type(value)]
