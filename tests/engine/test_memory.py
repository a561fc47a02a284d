"""What a load will take, told beforehand: against what is really held, and with the advice that follows."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import tiny
import torch
from head_files import public_state, vllm_state, write, write_config, write_full, write_vllm
from transformers import DeepseekV3Config, MambaConfig, MambaForCausalLM

from medusa_core.config import LoadConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.drafters.medusa.files import size
from medusa_core.errors import MedusaError
from medusa_core.llama.library import Library, NoLibraryError
from medusa_core.loading import devices, memory
from medusa_core.loading.memory import estimate_memory
from medusa_core.loading.model_size import model_size

GIB = 2**30


def held(tensors):
    """Bytes of tensors, each counted once."""
    return sum(
        tensor.numel() * tensor.element_size() for tensor in {t.data_ptr(): t for t in tensors}.values()
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_base_heads_and_cache_are_those_of_the_engine(engine_folder, dtype):
    estimate = estimate_memory(tiny.load_config(engine_folder, dtype=dtype))
    engine = tiny.load_from(engine_folder, dtype=dtype)
    assert estimate.base == held(engine.target.model.parameters())
    assert estimate.heads == held(medusa_draft(engine).heads.parameters())
    assert estimate.device == "cpu"
    assert estimate.parameters == engine.info.parameters
    cache = engine.target.new_cache(engine.target.context + 64)
    with torch.inference_mode():
        engine.target.prefill(tiny.PROMPT, cache)
    # The C pads the numbers of a head, of which a tiny model has eight.
    assert estimate.cache <= cache.nbytes < estimate.cache + estimate.margin
    assert estimate.total > estimate.base + estimate.heads + estimate.cache
    assert estimate_memory(tiny.load_config(engine_folder, "none")).heads == 0


def test_tied_weights_are_counted_once(tmp_path):
    model = tiny.build_model(tiny.tiny_config(tie_word_embeddings=True))
    model.save_pretrained(tmp_path)
    assert estimate_memory(tiny.load_config(tmp_path)).base == held(model.parameters())


def test_latent_keys_and_values_are_narrow(tmp_path):
    config = DeepseekV3Config(
        vocab_size=64, hidden_size=32, intermediate_size=48, moe_intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, n_routed_experts=4, n_group=1, topk_group=1,
        num_experts_per_tok=2, first_k_dense_replace=1, kv_lora_rank=16, q_lora_rank=None, qk_rope_head_dim=8,
        qk_nope_head_dim=16, v_head_dim=12, max_position_embeddings=96, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    tiny.build_model(config).save_pretrained(tmp_path)
    engine = tiny.load_from(tmp_path)
    cache = engine.target.new_cache(96 + 64)
    with torch.inference_mode():
        engine.target.prefill(tiny.PROMPT, cache)
    whole = held(tensor for layer in cache.layers for tensor in (layer.keys, layer.values))
    assert estimate_memory(tiny.load_config(tmp_path)).cache == whole


def only_config(folder, heads, _):
    folder.mkdir()
    write_config(folder, {"medusa_num_heads": heads.count, "medusa_num_layers": heads.layers})


def write_old(folder, heads, _):
    """A pickle of torch's format before 1.6, which cannot be mapped."""
    write(folder, public_state(heads), "pt")
    file = folder / "medusa_lm_head.pt"
    torch.save(torch.load(file), file, _use_new_zipfile_serialization=False)


LAYOUTS = {
    "safetensors": lambda folder, heads, _: write(folder, public_state(heads)),
    "pt": lambda folder, heads, _: write(folder, public_state(heads), "pt"),
    "pt of old": write_old,
    "shards": lambda folder, heads, _: write(folder, public_state(heads), "shards"),
    "v2": lambda folder, heads, _: write(folder, public_state(heads, version=2)),
    "vllm": lambda folder, heads, _: write_vllm(folder, vllm_state(heads)),
    "full": lambda folder, heads, base: write_full(folder, base, heads),
    "not fetched yet": only_config,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_heads_are_counted_in_every_format_or_by_their_config(model, base, tmp_path, layout):
    heads = tiny.random_heads(model, 4, layers=2)
    LAYOUTS[layout](tmp_path / "heads", heads, base)
    blocks = heads.block_weight.numel() + heads.block_bias.numel()
    expected = blocks if layout == "v2" else blocks + heads.lm_weight.numel()
    assert size(tmp_path / "heads", model_size(base)).weights == expected


def test_a_model_that_cannot_be_counted_says_what_it_is(tmp_path):
    MambaForCausalLM(MambaConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1)).save_pretrained(
        tmp_path
    )
    with pytest.raises(MedusaError, match="mamba has no attention"):
        estimate_memory(tiny.load_config(tmp_path))
    with pytest.raises(MedusaError, match="recurrent state"):
        tiny.load_from(tmp_path)


# --- advice ------------------------------------------------------------------------------------------------


@pytest.fixture
def seven_b(tmp_path):
    """The config of a 7B model; there are no weights."""
    tiny.LlamaConfig(
        vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, max_position_embeddings=4096,
    ).save_pretrained(tmp_path)  # fmt: skip
    return tmp_path


@pytest.fixture
def in_c(monkeypatch):
    """Say whether there is a forward in C: its cache is another one."""

    def there_is(there):
        found = Library(None, "avx2") if there else NoLibraryError("there is no C compiler")
        monkeypatch.setattr(devices, "native_library", lambda: found)

    return there_is


@pytest.fixture
def free(monkeypatch):
    """Set how many GiB are free."""
    return lambda gib: monkeypatch.setattr(memory, "free_memory", lambda device: int(gib * GIB))


def test_what_is_needed_and_what_would_help_is_said(seven_b, free, in_c):
    free(13)
    in_c(False)
    estimate = estimate_memory(tiny.load_config(seven_b, dtype="float32"))
    assert not estimate.fits
    words = estimate.sentence()
    assert words.startswith("needs about 35.1 GB of memory, 14.0 GB are free: use --quantize 8bit (")
    assert "--quantize 4bit (" in words
    assert "bfloat16" not in words  # bfloat16 needs 17.6
    # What fits comes first.
    assert [advice.split(" (")[0] for advice in estimate.advice] == [
        "--quantize 8bit",
        "--quantize 4bit",
        "--dtype bfloat16",
    ]
    for advice in estimate.alternatives:
        flag, value = advice.flags.removeprefix("--").split()
        assert estimate_memory(tiny.load_config(seven_b, **{flag: value})).total == advice.needed
    half = estimate_memory(tiny.load_config(seven_b, dtype="bfloat16"))
    assert half.sentence().startswith("needs about 17.6 GB of memory")
    in_c(True)
    packed = estimate_memory(tiny.load_config(seven_b, dtype="float32", quantize="8bit"))
    embedding = linear = 32000 * 4096
    linear += 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    assert packed.base == round(linear * (1 + 4 / 4096)) + 4 * (6738415616 - linear)
    assert 4 * embedding < packed.base < 7.5e9
    # All of it is read before it is packed, where the file has other numbers.
    assert packed.total > 4 * 6738415616
    free(64)
    assert estimate.base == 6738415616 * 4
    assert (
        estimate_memory(tiny.load_config(seven_b)).sentence()
        == "needs about 35.1 GB of memory, 68.7 GB are free"
    )


def test_several_changes_are_offered_where_no_single_one_helps(seven_b, free):
    free(7)
    words = estimate_memory(tiny.load_config(seven_b, dtype="float32")).sentence()
    assert "use --dtype bfloat16 --quantize 4bit together (" in words
    free(2)
    assert "take a smaller model or a larger machine" in estimate_memory(tiny.load_config(seven_b)).sentence()


def test_a_gpu_has_the_cpu_beside_it(seven_b, free, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    free(8)
    config = LoadConfig(model=str(seven_b))
    monkeypatch.setattr(memory, "spare_memory", lambda device, packed: 0 if packed else 32 * GIB)
    spread = estimate_memory(config)
    assert spread.fits
    assert (
        "of GPU memory, 8.59 GB are free: the rest goes to slower memory, of which 34.4 GB"
        in spread.sentence()
    )
    assert {"--quantize 4bit", "--device cpu"} <= {other.flags for other in spread.alternatives if other.fits}
    free(4)
    packed = estimate_memory(replace(config, quantize="4bit"))
    assert not packed.fits  # packed layers do not run from the CPU


def test_packed_weights_need_no_room_for_captured_steps(seven_b, free, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr(memory, "spare_memory", lambda device, packed: 0)
    free(8)
    for quantize, alike in (("none", False), ("4bit", True)):
        config = LoadConfig(model=str(seven_b), quantize=quantize)
        sizes = {estimate_memory(replace(config, capture=capture)).total for capture in (False, True)}
        assert (len(sizes) == 1) == alike


# --- against what a process takes --------------------------------------------------------------------------

MEASURE = """
import json, sys, threading, time
import torch
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.loading.load import load_engine

def held():
    rows = open("/proc/self/status", encoding="utf-8").read().splitlines()
    return 1024 * next(int(row.split()[1]) for row in rows if row.startswith("RssAnon"))

def run(engine, tokens):
    config = GenerationConfig.of(max_new_tokens=20, tree="cartesian-4x2")
    for _ in engine.stream(torch.arange(tokens).remainder(20).tolist(), config):
        pass

small, large, dtype, quantize = sys.argv[1:]
kind = {"dtype": dtype, "quantize": quantize, "device": "cpu"}
run(load_engine(LoadConfig(small, **kind)), 8)  # libraries and kernels
before = peak = held()

def look():
    global peak
    while True:
        peak = max(peak, held())
        time.sleep(0.001)

threading.Thread(target=look, daemon=True).start()
stages = []
engine = load_engine(LoadConfig(large, **kind), stages.append)
after = held()
run(engine, engine.target.context - 40)
estimate = stages[-1].estimate
print(json.dumps({
    "after": after - before, "peak": peak - before, "total": estimate.total,
    "weights": estimate.base + estimate.heads, "held": engine.target.weight_bytes, "base": estimate.base,
}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("dtype", "quantize", "saved"),
    [
        ("float32", "none", torch.bfloat16),  # in files of this dtype, weights would be pages of the file
        pytest.param("bfloat16", "none", torch.float32, marks=pytest.mark.slow),
        pytest.param("bfloat16", "8bit", torch.bfloat16, marks=pytest.mark.slow),
        pytest.param("bfloat16", "8bit", torch.float32, marks=pytest.mark.slow),
    ],
)
def test_a_load_and_a_run_take_what_was_told(engine_folder, tmp_path, dtype, quantize, saved):
    """A model of 80 MB in another process: weights as they were counted, and never more than the total."""
    config = tiny.tiny_config(
        8, vocab_size=4000, hidden_size=512, intermediate_size=1536, num_hidden_layers=4,
        num_attention_heads=8, max_position_embeddings=1024,
    )  # fmt: skip
    model = tiny.build_model(config)
    model.to(saved).save_pretrained(tmp_path)
    write(tmp_path / "heads", public_state(tiny.random_heads(model, 2)))
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, str(engine_folder), str(tmp_path), dtype, quantize],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    took = json.loads(result.stdout.splitlines()[-1])
    if dtype == "float32":  # in bfloat16 there are kernels as well
        assert took["after"] == pytest.approx(took["weights"], rel=0.15)
    if quantize == "8bit":
        assert took["held"] == pytest.approx(took["base"], rel=0.01)
    # The allocator keeps some megabytes of the load's probes, more at one time than at another.
    assert 0.9 * took["weights"] < took["peak"] < 1.05 * took["total"]
