"""vLLM's own classes read what ``convert --to vllm`` and ``train eagle3`` write, and give the same logits."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from medusa_core.checkpoints.locate import embedded_model
from medusa_core.config import LoadConfig
from medusa_core.drafters.eagle3.files import save
from medusa_core.loading.load import load_engine

VERSION = "0.32.0"  # the last with Medusa
BUILD = ["setuptools>=77,<81", "setuptools-scm", "setuptools-rust", "wheel", "packaging", "jinja2"]
ROWS = 6


@pytest.fixture(scope="module")
def vllm_python(tmp_path_factory):
    """Python of an environment with vLLM's source without its compiled parts, on this one's torch."""
    folder = tmp_path_factory.mktemp("vllm")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    inside = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (inside / "beside.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    environment = os.environ | {"VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": VERSION}
    for wanted in (BUILD, ["--no-build-isolation", "--no-binary", "vllm", f"vllm=={VERSION}"]):
        made = subprocess.run(
            [python, "-m", "pip", "install", "-q", *wanted], env=environment, check=False, text=True,
            capture_output=True,
        )  # fmt: skip
        if made.returncode:
            pytest.skip(f"vLLM cannot be installed here: {made.stderr[-300:]}")
    return python


@pytest.mark.slow
def test_vllm_gives_the_logits_of_our_heads_and_of_our_eagle3_layer(command, tmp_path, vllm_python):
    assert command(["convert", "embedded", tmp_path / "heads", "--to", "vllm"])[0] == 0
    engine = load_engine(LoadConfig(dtype="float32"))
    eagle = engine.drafts["eagle3"]
    layer, eagle_folder = eagle.model, tmp_path / "eagle3"
    save(layer, eagle_folder, "embedded", torch.float32)
    made = torch.Generator().manual_seed(0)
    inputs = {
        "tokens": torch.randint(engine.target.vocab_size, (ROWS,), generator=made),
        "hidden": torch.randn(ROWS, layer.shape.hidden, generator=made),
        "features": torch.randn(ROWS, 3 * layer.shape.hidden, generator=made),
        "embedding": eagle.embedding.contiguous(),
    }
    save_file(inputs, tmp_path / "inputs")
    script = Path(__file__).parents[1] / "support" / "vllm_reads.py"
    words = [embedded_model(), tmp_path / "heads", eagle_folder, tmp_path / "inputs", tmp_path / "out"]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [vllm_python, script, *words], env=alone | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
        cwd=tmp_path, check=False, text=True, capture_output=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    theirs = load_file(tmp_path / "out")

    def attend(query, key, value):
        rows = (part.transpose(0, 1)[None] for part in (query, key, value))
        mixed = F.scaled_dot_product_attention(*rows, is_causal=True, enable_gqa=True)
        return mixed[0].transpose(0, 1).flatten(1)

    with torch.inference_mode():
        heads = engine.drafts["medusa"].heads(inputs["hidden"])
        embedded = F.embedding(inputs["tokens"], eagle.embedding)
        by = eagle.rotary.at(0, ROWS)
        drafted = layer.logits(layer.output(embedded, layer.fuse(inputs["features"]), by, attend))
    torch.testing.assert_close(theirs["heads"], heads, rtol=1e-4, atol=1e-4)
    known = layer.target_tokens(torch.arange(layer.shape.draft_vocabulary))
    torch.testing.assert_close(theirs["eagle3"][:, known], drafted, rtol=1e-4, atol=1e-4)
    assert theirs["eagle3"].isfinite().sum() == ROWS * len(known)
