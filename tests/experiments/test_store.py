"""The store of measurements: kinds of machines, whose figures are stated, and where a record is kept."""

from __future__ import annotations

import os

import pytest
from tiny_experiments import DEFAULT_MACHINE, headline

from medusa_core.config import ENGINE_VERSION
from medusa_core.experiments import store
from medusa_core.experiments.record import MachineRecord, paper_facts
from medusa_core.hardware import processor

PLACES = sorted(store.MEASURED.glob("*/*.json"))


def machine(name, instructions="", cores=2, gpu=None, limited=""):
    return MachineRecord(
        processor=name, gpu=gpu, cores=cores, instructions=instructions, limited_to=limited, threads=2,
        torch="", python="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "slug", "title"),
    [
        (machine("Intel(R) Xeon(R) Processor", "amx"), "intel-xeon-amx-2", "Intel Xeon with AMX, 2 cores"),
        (machine("AMD EPYC 9R14", "avx512_bf16"), "amd-epyc-avx512-bf16-2",
         "AMD EPYC with AVX-512 and bfloat16, 2 cores"),
        (machine("AMD EPYC-Rome Processor", "avx2"), "amd-epyc-avx2-2", "AMD EPYC with AVX2, 2 cores"),
        (machine("13th Gen Intel(R) Core(TM) i7-13700K", "avx2", 24), "intel-core-avx2-24",
         "Intel Core with AVX2, 24 cores"),
        (machine("aarch64", "neon", 1), "aarch64-neon-1", "aarch64 with NEON, 1 core"),
        (machine("Intel(R) Xeon(R) Processor", "amx", limited="avx2"), "intel-xeon-amx-2-limited-to-avx2",
         "Intel Xeon limited to AVX2, 2 cores"),
        (machine("Intel(R) Xeon(R) Processor", "amx", limited="avx512_bf16"),
         "intel-xeon-amx-2-limited-to-avx512-bf16", "Intel Xeon limited to AVX-512 and bfloat16, 2 cores"),
        (machine("AMD EPYC 9R14", "avx512", limited="sse2"), "amd-epyc-avx512-2-limited-to-sse2",
         "AMD EPYC limited to SSE2, 2 cores"),
        (machine("NVIDIA H100 80GB HBM3", "amx", gpu="NVIDIA H100 80GB HBM3"), "nvidia-h100-80gb-hbm3",
         "NVIDIA H100 80GB HBM3"),
    ],
)  # fmt: skip
def test_a_kind_is_the_processor_s_family_its_instructions_and_its_cores(found, slug, title):
    assert (store.kind_of(found), store.title_of(found)) == (slug, title)


@pytest.mark.parametrize(
    ("flags", "limit", "widest", "held_to"),
    [
        ("fpu avx2 avx512f avx512_bf16 amx_bf16 amx_tile", "", "amx", ""),
        ("fpu avx2 avx512f avx512_bf16 amx_bf16 amx_tile", "amx", "amx", ""),
        ("fpu avx2 avx512f avx512_bf16 amx_bf16 amx_tile", "avx512_bf16", "amx", "avx512_bf16"),
        ("fpu avx2 avx512f", "", "avx512", ""),
        ("fpu avx2 avx512f", "avx2", "avx512", "avx2"),
        ("fpu avx2", "amx", "avx2", ""),
        ("fpu sse2 avx2 avx512f", "sse2", "avx512", "sse2"),
        ("fp asimd", "", "neon", ""),
        ("fp asimd bf16", "", "neon_bf16", ""),
        ("fp asimd bf16", "neon", "neon_bf16", "neon"),
        ("fpu sse2", "avx2", "sse2", ""),
        ("fpu", "avx2", "", ""),
        ("fpu avx2", "sse9", "avx2", ""),
    ],
)
def test_the_widest_instruction_set_and_what_the_processor_is_held_to(
    monkeypatch, flags, limit, widest, held_to
):
    monkeypatch.setenv(processor.ISA_VARIABLE, limit)
    monkeypatch.setattr(processor, "processor_flags", lambda: flags)
    assert processor.instruction_set() == widest
    assert processor.instruction_limit() == held_to


def test_torch_is_held_to_the_same(monkeypatch):
    monkeypatch.setattr(processor, "instruction_set", lambda: "amx")
    monkeypatch.setattr(os, "environ", {processor.ISA_VARIABLE: "avx2", "ATEN_CPU_CAPABILITY": "default"})
    processor.limit_torch()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert os.environ["ATEN_CPU_CAPABILITY"] == "default"  # the user's setting stays
    os.environ[processor.ISA_VARIABLE] = ""
    del os.environ["ONEDNN_MAX_CPU_ISA"]
    processor.limit_torch()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_this_machine_is_of_the_kind_that_its_records_would_have(tmp_path, monkeypatch):
    system = tmp_path / "cpuinfo"
    system.write_text(
        "processor\t: 0\nmodel name\t: AMD EPYC 9R14\nflags\t\t: fpu avx2 avx512f avx512_bf16\n"
    )
    monkeypatch.setattr(processor, "_CPU_FILE", system)
    monkeypatch.setattr(processor, "_GPU_FILES", tmp_path / "gpus")
    monkeypatch.setenv(processor.ISA_VARIABLE, "")
    cores = processor.core_count()
    assert store.own_kinds() == [f"amd-epyc-avx512-bf16-{cores}"]
    monkeypatch.setenv(processor.ISA_VARIABLE, "avx2")
    held = f"amd-epyc-avx512-bf16-{cores}-limited-to-avx2"
    assert store.own_kinds() == [held]
    gpu = tmp_path / "gpus" / "0000:01:00.0" / "information"
    gpu.parent.mkdir(parents=True)
    gpu.write_text("Model: \t\t NVIDIA GeForce RTX 4090\nIRQ: 24\n")
    assert store.own_kinds() == ["nvidia-geforce-rtx-4090", held]


@pytest.mark.parametrize("file", PLACES, ids=lambda file: "/".join(file.parts[-2:]))
def test_every_record_lies_where_its_machine_and_name_say(file):
    record = store.read_record(file)
    assert store.place_of(record) == file
    assert record.paper == paper_facts(record.name)
    assert record.simulated or 0 < record.engine <= ENGINE_VERSION


def test_the_default_kind_is_in_the_store():
    assert store.kinds()[0].slug == store.DEFAULT_KIND


def renewed(name, engine, **changes):
    machine = DEFAULT_MACHINE.model_copy(update=changes)
    return headline(name=name, engine=engine, machine=machine, date="2026-12-01")


def test_this_machine_s_own_kind_is_shown_unless_its_engine_is_older(tmp_path, monkeypatch):
    assert store.shown(tmp_path) is None
    assert store.kinds(tmp_path) == []
    assert store.record("figure3", folder=tmp_path) is None
    monkeypatch.setattr(store, "own_kinds", lambda: ["nvidia-x", "amd-epyc-avx2-2"])
    own = {"processor": "AMD EPYC 7763", "instructions": "avx2", "cores": 2, "gpu": None}
    for engine, slug in ((2, store.DEFAULT_KIND), (3, "amd-epyc-avx2-2"), (4, "amd-epyc-avx2-2")):
        store.keep(renewed("figure3", 3), tmp_path)
        store.keep(renewed("table2", 3), tmp_path)
        store.keep(renewed("figure3", engine, **own), tmp_path)
        stated = store.shown(tmp_path)
        assert stated.slug == slug
        assert store.kind_of(store.record("figure3", folder=tmp_path).machine) == slug
        # What the own kind lacks is the default one's.
        assert store.kind_of(store.record("table2", folder=tmp_path).machine) == store.DEFAULT_KIND
    assert store.record("table2", "amd-epyc-avx2-2", tmp_path) is None
    assert [kind.slug for kind in store.kinds(tmp_path)] == [store.DEFAULT_KIND, "amd-epyc-avx2-2"]


def test_a_file_that_is_no_record_hides_no_other(tmp_path):
    file = store.keep(renewed("figure3", 3), tmp_path)
    file.with_name("figure4.json").write_text("<b>{", encoding="utf-8")
    assert [record.name for record in store.records_of(store.DEFAULT_KIND, tmp_path)] == ["figure3"]
    assert store.shown(tmp_path).engine == 3
