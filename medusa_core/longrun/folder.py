"""The folder of a long run: what it needs to go on, appended as it grows, and read back after any end.

run.json        settings, model and prompt, written once
segments.jsonl  one line a segment: its tokens, a hash of all so far, speed, α, memory, the sums to go on
                from; the last one also says how the run ended
text.txt        the text, when the run ends or is stopped

A process may be killed in the middle of any write: half a line is dropped, and tokens after the last whole
segment are decoded again, to the same ones (``segments``).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import naming, read_bytes
from medusa_core.longrun.segments import SEGMENT
from medusa_core.longrun.totals import MOST, Totals
from medusa_core.training.folder_lock import LOCK_NAME
from medusa_core.training.run_folder import read_record, replace_file, write_record

RUN, SEGMENTS, TEXT = "run.json", "segments.jsonl", "text.txt"
FORMAT = 3
OTHER_FOLDER = "choose another --save"
_CUT = f"delete that line and those after it, or {OTHER_FOLDER}"

Bytes = Annotated[int, Field(gt=0, le=MOST)]


class Memory(BaseModel):
    """Bytes of a run that has ended, by parts, beside the rows that it had room for."""

    model_config = ConfigDict(strict=True)
    rows: int
    weights: int
    cache: int
    workspace: int
    drafter_cache: int
    estimated: Bytes
    measured: Bytes


class End(BaseModel):
    """How a run ended."""

    model_config = ConfigDict(strict=True)
    finish_reason: Literal["eos", "stop", "length", "context"]
    memory: Memory


class Segment(BaseModel):
    """A line of the file: what is read back of it. Speed and the like stand beside it for people."""

    model_config = ConfigDict(strict=True, extra="allow")
    tokens: list[Annotated[int, Field(ge=0)]]
    sha256: str  # of all tokens up to its end
    sums: Totals  # over all steps up to its end
    end: End | None = None


class RunFolder:
    """The files of one run while this process works on it."""

    def __init__(self, folder: Path, vocabulary: int) -> None:
        """``vocabulary`` is the number of tokens there are."""
        self.folder = folder
        self._vocabulary = vocabulary
        self.tokens: list[int] = []  # whole segments, to go on from; of a run that has ended all
        self._hash = sha256()  # of them
        self.totals = Totals()  # of them
        self.end: End | None = None

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
        found = read_record(file, OTHER_FOLDER)
        if found.get("format") != FORMAT or found.get("segment") != SEGMENT:
            raise MedusaError(f"{file} is of another version of this program: {OTHER_FOLDER}")
        for part in ("model", "settings", "surroundings"):
            if not isinstance(found.get(part), dict):
                raise MedusaError(f"{file} is damaged (no {part}): {OTHER_FOLDER}")
        return found

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write the description of the run."""
        write_record(self.folder / RUN, {"format": FORMAT, "segment": SEGMENT, **about})

    def resume(self, budget: int) -> None:
        """Read what is there, for a run of ``budget`` tokens. Raises MedusaError for damaged files.

        A last segment that is not whole is dropped, unless the run has ended with this budget or by itself.
        """
        file = self.folder / SEGMENTS
        lines = read_bytes(file).split(b"\n")[:-1] if file.exists() else []
        segments = list(self._read(lines))
        total = sum(len(segment.tokens) for segment in segments)
        if total > budget:
            raise MedusaError(
                f"{self.folder} holds {total} tokens, --max-new-tokens is {budget}: raise it or "
                f"{OTHER_FOLDER}"
            )
        end = segments[-1].end if segments else None
        if end is not None and (end.finish_reason != "length" or total == budget):
            self.end = end
        elif segments and len(segments[-1].tokens) < SEGMENT:
            segments.pop()
        for segment in segments:
            self.tokens += segment.tokens
            self.totals = segment.sums
        self._hash.update(_bytes_of(self.tokens))
        replace_file(file, b"".join(line + b"\n" for line in lines[: len(segments)]))

    def _read(self, lines: Sequence[bytes]) -> Iterator[Segment]:
        """Each line's segment, which must go on where the one before it ended."""
        hashed, total = sha256(), 0
        for number, line in enumerate(lines, start=1):
            try:
                segment = Segment.model_validate_json(line)
            except ValidationError as error:
                raise self._damaged(number, reason_of(error)) from error
            total += len(segment.tokens)
            if max(segment.tokens, default=0) >= self._vocabulary or total != segment.sums.tokens:
                raise self._damaged(number, "does not go on after the line before it")
            hashed.update(_bytes_of(segment.tokens))
            if segment.sha256 != hashed.hexdigest():
                raise self._damaged(number, "other tokens were written")
            is_last = number == len(lines)
            if len(segment.tokens) != SEGMENT and not (is_last and segment.end is not None):
                raise self._damaged(number, f"{len(segment.tokens)} tokens are not a whole segment")
            yield segment

    def append(
        self, tokens: Sequence[int], totals: Totals, record: Mapping[str, Any], end: End | None = None
    ) -> None:
        """Add a segment, from whose end the run may go on."""
        self.tokens += tokens
        self._hash.update(_bytes_of(tokens))
        self.end = end
        line = Segment(tokens=list(tokens), sha256=self._hash.hexdigest(), sums=totals, end=end, **record)
        with naming(self.folder / SEGMENTS), open(self.folder / SEGMENTS, "ab") as file:
            file.write(line.model_dump_json(exclude_none=True).encode() + b"\n")

    def write_text(self, text: str) -> None:
        """Write the text so far."""
        replace_file(self.folder / TEXT, text.encode("utf-8", "replace"))

    def _damaged(self, number: int, why: str) -> MedusaError:
        return MedusaError(f"line {number} of {self.folder / SEGMENTS} is damaged ({why}): {_CUT}")


def _bytes_of(tokens: Sequence[int]) -> bytes:
    return array("q", tokens).tobytes()
