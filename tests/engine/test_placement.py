"""Where models go: decisions for machines that are not here, and layers that are spread for real on this one.

A GPU is played by what torch says of one. Spreading itself is accelerate's: layers whose weights lie on the
disk or elsewhere in memory, and come when they are run. That works on a CPU as it does on a GPU.
"""

from __future__ import annotations

from dataclasses import replace

import accelerate
import pytest
import tiny
import torch
from head_files import public_state, write
from transformers import LlamaConfig

from medusa_core.checkpoints.heads import read_heads
from medusa_core.config import LoadConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.drafters.medusa.files import build_heads
from medusa_core.errors import MedusaError
from medusa_core.llama.library import NoLibraryError
from medusa_core.loading import devices
from medusa_core.loading import load as loading
from medusa_core.loading.devices import Placement, place, spare_memory, spread
from medusa_core.loading.load import load_engine
from medusa_core.model.features import LAST_HIDDEN
from medusa_core.model.quantization import lm_head_weight

GIB = 2**30


@pytest.fixture
def gpus(monkeypatch):
    """A machine with GPUs of so many free GiB each, and so much free memory beside them."""

    def make(*free, cpu=64, bf16=True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(free))
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: bf16)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free))
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(
            torch.cuda, "mem_get_info", lambda device: (free[device.index or 0] * GIB, 80 * GIB)
        )
        monkeypatch.setattr(devices.psutil, "virtual_memory", lambda: _Memory(cpu * GIB))

    return make


class _Memory:
    def __init__(self, available):
        self.available = available


# --- decisions ---------------------------------------------------------------------------------------------


def test_auto_takes_the_best_device_in_the_dtype_it_is_fast_at(gpus, monkeypatch, library):
    gpus()
    monkeypatch.setattr(devices, "cpu_has_bf16", lambda: False)
    monkeypatch.setattr(devices, "native_library", lambda: NoLibraryError("none"))
    assert place("auto", "auto") == Placement(
        torch.device("cpu"), torch.float32, "the CPU has no bfloat16 units"
    )
    monkeypatch.setattr(devices, "native_library", lambda: library)
    assert place("auto", "auto").dtype == torch.bfloat16
    assert "forward in C" in place("auto", "auto").reason
    monkeypatch.setattr(devices, "cpu_has_bf16", lambda: True)
    assert place("auto", "auto").dtype == torch.bfloat16
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert (place("auto", "auto").device.type, place("auto", "auto").dtype) == ("mps", torch.float16)
    gpus(24)
    assert (place("auto", "auto").device.type, place("auto", "auto").dtype) == ("cuda", torch.bfloat16)
    gpus(24, bf16=False)
    assert place("auto", "auto").dtype == torch.float16
    assert place("cuda", "float32").reason == "as asked"
    assert place("cpu", "bfloat16").device_map is None
    gpus()
    with pytest.raises(MedusaError, match="no cuda device here: use --device mps, cpu"):
        place("cuda", "auto")


def test_a_model_that_fits_its_gpu_is_read_straight_onto_it(gpus):
    gpus(24, 24)
    chosen = place("cuda", "auto")
    assert chosen.device_map == {"": torch.device("cuda")}
    assert spread(chosen, 20 * GIB, 2 * GIB, packed=False) == chosen


def test_a_model_too_large_for_one_gpu_is_spread(gpus):
    gpus(24, 16, cpu=64)
    taken = spread(place("cuda", "auto"), 30 * GIB, 3 * GIB, packed=False)
    assert taken.device_map == "auto"
    driver = devices._CUDA_CONTEXT
    # What a run needs on each of them is kept free.
    assert taken.room == {0: 21 * GIB - driver, 1: 13 * GIB - driver, "cpu": 64 * GIB}
    packed = spread(place("cuda", "auto"), 30 * GIB, 3 * GIB, packed=True)
    assert "cpu" not in packed.room
    cuda = torch.device("cuda")
    assert spare_memory(cuda, packed=False) == 80 * GIB - driver
    assert spare_memory(cuda, packed=True) == 16 * GIB - driver
    assert spare_memory(torch.device("cpu"), packed=False) == 0


def test_a_cpu_spreads_nothing(gpus):
    gpus()
    chosen = place("cpu", "float32")
    assert spread(chosen, 10**15, 0, packed=False) == chosen


def test_the_room_is_what_accelerate_goes_by(gpus):
    """accelerate's own plan for a model of 7B shape keeps within the room; the LM head comes last."""
    gpus(8, 8, cpu=64)
    config = LlamaConfig(vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32)
    with torch.device("meta"):
        model = tiny.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    room = spread(place("cuda", "bfloat16"), 15 * GIB, 2 * GIB, packed=False).room
    plan = accelerate.infer_auto_device_map(
        model, max_memory=dict(room), no_split_module_classes=model._no_split_modules
    )
    assert set(plan.values()) == {0, 1, "cpu"}
    assert plan["lm_head"] == "cpu"
    for device, limit in room.items():
        modules = [model.get_submodule(name) for name, where in plan.items() if where == device]
        assert sum(2 * p.numel() for module in modules for p in module.parameters()) <= limit


@pytest.mark.parametrize(
    ("limit", "stat", "free"),
    [
        ("8589934592", "anon 5\ninactive_file 3221225472\nactive_file 1073741824\n", 7 * GIB),
        ("8589934592", "anon 5\n", 64 * GIB),
        ("max", "inactive_file 0\nactive_file 0\n", 64 * GIB),
    ],
)
def test_a_containers_limit_counts_without_its_page_cache(gpus, monkeypatch, tmp_path, limit, stat, free):
    gpus(cpu=64)
    for name, text in (("max", limit), ("current", "5368709120"), ("stat", stat)):
        (tmp_path / f"memory.{name}").write_text(text, encoding="utf-8")
    monkeypatch.setattr(devices, "_CGROUP", tmp_path)
    assert devices.free_memory(torch.device("cpu")) == free


# --- layers elsewhere --------------------------------------------------------------------------------------

WHOLE = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "model.layers.0": "cpu"}
MAPS = {
    "most": WHOLE | {"model.embed_tokens": "disk", "model.layers.1": "disk", "lm_head": "disk"},
    "a layer": WHOLE | {"model.layers.1": "disk", "lm_head": "cpu"},
    "the LM head": WHOLE | {"model.layers.1": "cpu", "lm_head": "disk"},
}


@pytest.fixture(params=MAPS)
def spread_engine(request, engine_folder, monkeypatch):
    """The tiny engine with a part of it on the disk."""
    chosen = Placement(torch.device("cpu"), torch.float32, "as asked", MAPS[request.param])
    monkeypatch.setattr(loading, "place", lambda device, dtype: chosen)
    return load_engine(LoadConfig(model=str(engine_folder)))


@pytest.mark.sample(1)
def test_a_spread_model_decodes_as_a_whole_one(spread_engine, engine):
    target = spread_engine.target
    elsewhere = [name for name, tensor in target.model.named_parameters() if tensor.is_meta]
    assert elsewhere
    cpu = torch.device("cpu")
    heads = medusa_draft(spread_engine).heads
    assert (target.dtype, target.vocab_size, target.context) == (torch.float32, tiny.VOCABULARY, 96)
    assert target.device == target.output_device == heads.block_weight.device == cpu
    assert torch.equal(lm_head_weight(target.model), engine.target.model.lm_head.weight)
    expected = tiny.transformers_greedy(engine.target.model, tiny.PROMPT, 40)
    for method in ("none", "medusa"):
        steps = tiny.run(spread_engine, max_new_tokens=40, method=method)
        assert tiny.emitted(steps) == expected
    assert len(steps) < 30  # drafts were kept
    cache = target.new_cache(8)
    with torch.inference_mode():
        logits, hidden = target.prefill(tiny.PROMPT, cache, LAST_HIDDEN)
    assert {logits.device, hidden.device, *(layer.keys.device for layer in cache.layers)} == {cpu}


def test_heads_that_share_an_absent_lm_head_have_its_numbers(spread_engine, engine, tmp_path):
    write(tmp_path, public_state(medusa_draft(engine).heads, version=2))
    tensors = read_heads(tmp_path)
    heads = build_heads(tensors, lm_head_weight(spread_engine.target.model), tmp_path)
    assert torch.equal(heads.lm_weight, engine.target.model.lm_head.weight)


def test_weights_elsewhere_in_memory_come_when_they_are_run(engine):
    """accelerate's offload to the CPU, as it is used for a GPU, with the CPU in the place of the GPU."""
    model = tiny.frequent_zero_model(kv_heads=2)
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    assert all(parameter.is_meta for parameter in model.parameters())
    spread_out = tiny.build_engine(model, medusa_draft(engine).heads)
    assert tiny.emitted(tiny.run(spread_out, max_new_tokens=40)) == tiny.emitted(
        tiny.run(replace(engine, tokenizer=None), max_new_tokens=40)
    )
    assert torch.equal(lm_head_weight(model), engine.target.model.lm_head.weight)
