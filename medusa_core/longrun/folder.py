"""The folder of a long run: what it needs to go on, appended as it grows, and read back after any end.

run.json     settings, model and prompt, written once
tokens.jsonl one line a step: {"at", "tokens"}, appended as a whole and handed to the system at once
steps.jsonl  one line a segment: the tokens so far and their hash, speed, α, memory, the sums to go on from
result.json  what came of it, when it has ended
text.txt     the text, when the run ends or is stopped

A process may be killed in the middle of any write: half a line is dropped, and tokens after the last whole
segment are decoded again, to the same ones (``segments``).
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from medusa_core.errors import MedusaError, reason_of, shortened
from medusa_core.files import naming, read_bytes
from medusa_core.longrun.segments import SEGMENT
from medusa_core.longrun.totals import MOST, Totals
from medusa_core.training.folder_lock import LOCK_NAME, locked_folder
from medusa_core.training.run_folder import read_record, replace_file, write_record

RUN, TOKENS, STEPS, RESULT, TEXT = "run.json", "tokens.jsonl", "steps.jsonl", "result.json", "text.txt"
FORMAT = 2
REASONS = ("eos", "stop", "length", "context")  # for which a run ends
MEMORY = ("estimated", "measured")  # bytes
_OTHER = "choose another --save"
_CUT = f"delete that line and those after it, or {_OTHER}"


class RunFolder:
    """The files of one run while this process works on it."""

    def __init__(self, folder: Path, vocabulary: int) -> None:
        """``vocabulary`` is the number of tokens there are."""
        self.folder = folder
        self._vocabulary = vocabulary
        self.tokens: list[int] = []  # whole segments, to go on from; of a run that has ended all
        self._hash = sha256()  # of them
        self.totals = Totals()  # of them
        self.result: dict[str, Any] | None = None

    def begun(self) -> dict[str, Any] | None:
        """What the run began with; None in an empty folder. Raises MedusaError for one with other files."""
        file = self.folder / RUN
        if not file.exists():
            ours = {LOCK_NAME, f"{RUN}.partial"}
            if other := next((path for path in self.folder.iterdir() if path.name not in ours), None):
                raise MedusaError(
                    f"{self.folder} holds {other.name} and no long run: name an empty or new folder"
                )
            return None
        found = read_record(file, _OTHER)
        if found.get("format") != FORMAT or found.get("segment") != SEGMENT:
            raise MedusaError(f"{file} is of another version of this program: {_OTHER}")
        for part in ("model", "settings", "surroundings"):
            if not isinstance(found.get(part), dict):
                raise MedusaError(f"{file} is damaged (no {part}): {_OTHER}")
        return found

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write what the run is."""
        write_record(self.folder / RUN, {"format": FORMAT, "segment": SEGMENT, **about})

    def resume(self, budget: int) -> None:
        """Read what is there, for a run of ``budget`` tokens. Raises MedusaError for damaged files.

        Files are cut to whole segments unless the run has ended with this budget or by itself.
        """
        tokens = self._read_tokens()
        if len(tokens) > budget:
            raise MedusaError(
                f"{self.folder} holds {len(tokens)} tokens, --max-new-tokens is {budget}: "
                f"raise it or {_OTHER}"
            )
        result = read_record(self.folder / RESULT, _OTHER) if (self.folder / RESULT).exists() else None
        if result is not None and result.get("new_tokens") != len(tokens):
            raise MedusaError(
                f"{self.folder} holds {len(tokens)} tokens, its {RESULT} says {result.get('new_tokens')}: "
                f"delete {RESULT}, or {_OTHER}"
            )
        marks = self._read_steps(tokens)
        if result is not None:
            self._require_whole(result, marks)
        if result is not None and (result.get("finish_reason") != "length" or len(tokens) == budget):
            self.tokens, self.result = tokens, result
            self.totals = marks[-1]
            return
        whole = [mark for mark in marks if mark.tokens % SEGMENT == 0 and mark.tokens <= len(tokens)]
        self.totals = whole[-1] if whole else Totals()
        self.tokens = tokens[: self.totals.tokens]
        self._hash.update(_bytes_of(self.tokens))
        (self.folder / RESULT).unlink(missing_ok=True)
        self._cut(STEPS, len(whole))
        self._cut(TOKENS, self._lines_of(len(self.tokens)))

    def _require_whole(self, result: dict[str, Any], marks: Sequence[Totals]) -> None:
        """Raise MedusaError unless ``result`` is what a run writes at its end, and so are its last sums."""
        memory = result.get("memory")
        sizes = [memory.get(name) for name in MEMORY] if isinstance(memory, dict) else []
        counted = len(sizes) == len(MEMORY) and all(type(size) is int and 0 < size <= MOST for size in sizes)
        if not counted or result.get("finish_reason") not in REASONS:
            raise MedusaError(f"{self.folder / RESULT} is damaged: delete it, or {_OTHER}")
        if not marks or marks[-1].tokens != result["new_tokens"]:
            raise MedusaError(
                f"{self.folder / STEPS} does not reach the end of the run: delete {RESULT}, or {_OTHER}"
            )

    def append(self, tokens: Sequence[int]) -> None:
        """Add the tokens of a step."""
        if tokens:
            self._write_line(TOKENS, {"at": len(self.tokens), "tokens": list(tokens)})
            self.tokens += tokens
            self._hash.update(_bytes_of(tokens))

    def mark(self, record: Mapping[str, Any], totals: Totals) -> None:
        """Add the line of a segment, from whose end the run may go on."""
        head = {"tokens": totals.tokens, "sha256": self._hash.hexdigest()}
        self._write_line(STEPS, {**head, **record, "sums": totals.sums()})

    def finish(self, record: dict[str, Any]) -> None:
        """Write what came of the run."""
        self.result = record
        write_record(self.folder / RESULT, record)

    def write_text(self, text: str) -> None:
        """Write the text so far."""
        replace_file(self.folder / TEXT, text.encode("utf-8", "replace"))

    def _read_tokens(self) -> list[int]:
        tokens: list[int] = []
        for number, record in self._lines(TOKENS):
            new = record.get("tokens")
            known = isinstance(new, list) and all(
                type(token) is int and 0 <= token < self._vocabulary for token in new
            )
            if not known or record.get("at") != len(tokens):
                raise self._damaged(TOKENS, number, f"does not go on after {len(tokens)} tokens")
            tokens += new or []
        return tokens

    def _read_steps(self, tokens: Sequence[int]) -> list[Totals]:
        """The sums at the end of each segment, whose tokens must be the ones that were written."""
        marks: list[Totals] = []
        hashed = sha256()
        for number, record in self._lines(STEPS):
            try:
                mark = Totals.of(record["sums"])
            except (KeyError, AttributeError, ValueError) as error:
                raise self._damaged(STEPS, number, reason_of(error)) from error
            if mark.tokens != record.get("tokens") or (marks and mark.tokens <= marks[-1].tokens):
                raise self._damaged(STEPS, number, "does not go on after the line before it")
            hashed.update(_bytes_of(tokens[marks[-1].tokens if marks else 0 : mark.tokens]))
            if mark.tokens <= len(tokens) and record.get("sha256") != hashed.hexdigest():
                raise self._damaged(STEPS, number, f"{TOKENS} holds other tokens")
            marks.append(mark)
        return marks

    def _lines(self, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """The whole lines of a file, numbered from 1. Raises MedusaError for one that is no JSON object."""
        for number, line in enumerate(self._whole_lines(name), start=1):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise self._damaged(name, number, reason_of(error)) from error
            if not isinstance(record, dict):
                raise self._damaged(name, number, f"is {shortened(repr(record), 30)}")
            yield number, record

    def _whole_lines(self, name: str) -> list[bytes]:
        file = self.folder / name
        return read_bytes(file).split(b"\n")[:-1] if file.exists() else []

    def _lines_of(self, count: int) -> int:
        """How many lines hold the first ``count`` tokens: a step ends where its segment ends."""
        return sum(record["at"] < count for _, record in self._lines(TOKENS))

    def _cut(self, name: str, count: int) -> None:
        lines = self._whole_lines(name)[:count]
        replace_file(self.folder / name, b"".join(line + b"\n" for line in lines))

    def _write_line(self, name: str, record: Mapping[str, Any]) -> None:
        with naming(self.folder / name), open(self.folder / name, "ab") as file:
            file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")

    def _damaged(self, name: str, number: int, why: str) -> MedusaError:
        return MedusaError(f"line {number} of {self.folder / name} is damaged ({why}): {_CUT}")


def _bytes_of(tokens: Sequence[int]) -> bytes:
    return array("q", tokens).tobytes()


@contextmanager
def opened(folder: Path, vocabulary: int) -> Iterator[RunFolder]:
    """The folder, made if need be, for this process alone. Raises MedusaError when another one has it."""
    with locked_folder(folder, _OTHER):
        yield RunFolder(folder, vocabulary)
