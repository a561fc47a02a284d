"""The store of measurements, ``assets/measured/KIND/NAME.json``: a record an experiment and kind of machine.

Every figure of speed that the project states is read here. What formulas compute belongs to no machine and
lies in the folder ``formulas``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from medusa_core.errors import MedusaError, counted
from medusa_core.experiments.record import ExperimentRecord, MachineRecord, read_record, write_record
from medusa_core.files import project_folder
from medusa_core.hardware.processor import (
    core_count,
    cpu_name,
    gpu_name,
    instruction_limit,
    instruction_set,
)

FOLDER = "measured"  # folder below assets
MEASURED = project_folder() / "assets" / FOLDER
DEFAULT_KIND = "amd-epyc-avx512-bf16-2"  # its figures are stated unless another kind's are newer
FORMULAS = "formulas"
HEADLINE = "spec-bench"  # the experiment that says of a kind of machine what to expect
_INSTRUCTIONS = {
    "amx": "AMX",
    "avx512_bf16": "AVX-512 and bfloat16",
    "avx512": "AVX-512",
    "avx2": "AVX2",
    "sse2": "SSE2",
    "neon_bf16": "NEON and bfloat16",
    "neon": "NEON",
}
_FAMILY = re.compile(r"\b(intel|amd)\b\W+([a-z0-9]+)", re.IGNORECASE)


@dataclass(frozen=True)
class Kind:
    """A kind of machine that has records; ``engine`` is its headline's, or else that of its newest record."""

    slug: str
    title: str
    engine: int
    limited: bool = False  # held to less than it has, by MEDUSA_ISA


def kind_of(machine: MachineRecord) -> str:
    """The name of a machine's kind: the GPU, or the processor's family, its instruction set and its cores.

    A processor that MEDUSA_ISA holds to less than it has is a kind of its own.
    """
    parts = [machine.gpu] if machine.gpu else [_family(machine), machine.instructions, str(machine.cores)]
    if machine.limited_to and not machine.gpu:
        parts.append(f"limited-to-{machine.limited_to}")
    return re.sub(r"[^a-z0-9]+", "-", " ".join(filter(None, parts)).lower()).strip("-")


def title_of(machine: MachineRecord) -> str:
    """The name of a machine's kind in words."""
    if machine.gpu:
        return machine.gpu
    used = machine.limited_to or machine.instructions
    instructions = _INSTRUCTIONS.get(used, used)
    with_them = f" {'limited to' if machine.limited_to else 'with'} {instructions}" if instructions else ""
    return f"{_family(machine)}{with_them}, {counted(machine.cores, 'core')}"


def own_kinds() -> list[str]:
    """The kinds of this machine: its GPU's where it has one, then its processor's."""
    processor = MachineRecord(
        processor=cpu_name(), cores=core_count(), instructions=instruction_set(),
        limited_to=instruction_limit(), threads=0, torch="", python="",
    )  # fmt: skip
    gpu = gpu_name()
    with_gpu = [processor.model_copy(update={"gpu": gpu})] if gpu else []
    return [kind_of(machine) for machine in (*with_gpu, processor)]


def kinds(folder: Path = MEASURED) -> list[Kind]:
    """The kinds of machines that have records, the default one first."""
    return [
        _kind(place.name, records)
        for place in sorted(folder.glob("*/"), key=lambda place: (place.name != DEFAULT_KIND, place.name))
        # The headline is enough, and there are many records.
        if place.name != FORMULAS
        and (records := records_of(place.name, folder, HEADLINE) or records_of(place.name, folder))
    ]


def default(folder: Path = MEASURED) -> Kind | None:
    """The kind whose figures are stated in files, on whatever machine they are read: DEFAULT_KIND.

    Another kind takes its place where it has a headline of a newer engine, except machines that were held
    to less than they have. None where the store is empty.
    """
    known = kinds(folder)
    whole = [kind for kind in known if not kind.limited]
    found = [
        kind
        for kind in whole
        if kind.slug == DEFAULT_KIND or (folder / kind.slug / f"{HEADLINE}.json").is_file()
    ]
    return max(found or whole or known, key=lambda kind: kind.engine, default=None)


def shown(folder: Path = MEASURED) -> Kind | None:
    """The kind whose figures the page states: this machine's own, unless its engine is older, or the default.

    None where the store is empty.
    """
    stated = default(folder)
    found = {kind.slug: kind for kind in kinds(folder)}
    own = (found[slug] for slug in own_kinds() if slug in found)
    return next((kind for kind in own if stated is None or kind.engine >= stated.engine), stated)


def record(name: str, kind: str | None = None, folder: Path = MEASURED) -> ExperimentRecord | None:
    """The record of an experiment on a kind of machine, None where there is none.

    Without ``kind`` it is the shown kind's, or another's where that one has none. Raises MedusaError for a
    file that is not a record.
    """
    return _first(name, shown(folder), folder) if kind is None else _read(name, [kind], folder)


def stated_record(name: str, folder: Path = MEASURED) -> ExperimentRecord | None:
    """The record of the default kind, on whatever machine: for figures that are written into files."""
    return _first(name, None, folder)


def records_of(kind: str, folder: Path = MEASURED, names: str = "*") -> list[ExperimentRecord]:
    """The records of a kind by name, all of them or those that fit a pattern; other files are left out."""
    found = []
    for file in sorted((folder / kind).glob(f"{names}.json")):
        try:
            found.append(read_record(file))
        except MedusaError:
            continue
    return found


def older_records(folder: Path = MEASURED) -> Iterator[str]:
    """A line for each kind of machine that has records of an older engine than this one."""
    for kind in kinds(folder):
        if older := [one.name for one in records_of(kind.slug, folder) if one.is_outdated]:
            yield f"{kind.title} ({kind.slug}): {', '.join(older)} are of an older engine"


def place_of(record: ExperimentRecord, folder: Path = MEASURED) -> Path:
    """Where a record is kept."""
    kind = FORMULAS if record.simulated else kind_of(record.machine)
    return folder / kind / f"{record.name}.json"


def keep(record: ExperimentRecord, folder: Path = MEASURED) -> Path:
    """Write a record in the place of the one before it. Raises MedusaError."""
    file = place_of(record, folder)
    write_record(record, file)
    return file


def _first(name: str, first: Kind | None, folder: Path) -> ExperimentRecord | None:
    wanted = [first, default(folder), *kinds(folder)]
    return _read(name, [*[kind.slug for kind in wanted if kind is not None], DEFAULT_KIND], folder)


def _read(name: str, places: list[str], folder: Path) -> ExperimentRecord | None:
    files = (folder / place / f"{name}.json" for place in [*places, FORMULAS])
    file = next((file for file in files if file.is_file()), None)
    return None if file is None else read_record(file)


def _kind(slug: str, records: list[ExperimentRecord]) -> Kind:
    headline = next((one for one in records if one.name == HEADLINE), None)
    stated = headline or max(records, key=lambda one: (one.engine, one.date))
    machine = stated.machine
    return Kind(slug, title_of(machine), stated.engine, bool(machine.limited_to))


def _family(machine: MachineRecord) -> str:
    """The vendor with its line of processors, as in Intel Xeon; other names by their first two words."""
    name = re.sub(r"\(.*?\)", " ", machine.processor)
    found = _FAMILY.search(name)
    return " ".join(found.groups() if found else name.split()[:2])
