"""What serving engines want to find beside the tensors, and the commands that serve heads there.

Pure: from numbers and names to configs and text. Flags are those of the engines' own documentation and
examples: vLLM's ``SpeculativeConfig``, TGI's launcher, TensorRT-LLM's ``examples/medusa``. No server
of theirs has been run by this project; vLLM's classes have read its files.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from medusa_core.checkpoints.layouts import HeadTensors
from medusa_core.checkpoints.names import BASE_KEY

CHOICES_NAME = "medusa_choices.txt"


def vllm_config(tensors: HeadTensors, base: str, vocabulary: int) -> dict[str, Any]:
    """vLLM's config; ``vocabulary`` is the base's, of which the heads may know a part."""
    return {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        BASE_KEY: base,
        "hidden_size": tensors.width,
        "vocab_size": vocabulary,
        "num_heads": tensors.count,
        "num_hidden_layers": tensors.layers,
        "truncated_vocab_size": None if tensors.token_map is None else len(tensors.token_map),
        "original_lm_head": tensors.lm_weight is not None and tensors.lm_weight.ndim == 2,
        "medusa_fc_bias": True,  # by default vLLM would silently drop the biases
        "logit_scale": 1.0,
        "max_paths": 64,
        "topk": 10,
    }


def vllm_commands(base: str, folder: str, heads: int) -> list[str]:
    """How vLLM serves them: the heads' best guesses as a chain, without a tree."""
    settings = json.dumps({"method": "medusa", "model": folder, "num_speculative_tokens": heads})
    return [f"vllm serve {shlex.quote(base)} --speculative-config {shlex.quote(settings)}"]


def tgi_commands(folder: str, heads: int) -> list[str]:
    """How TGI serves them: it finds the base in the heads' config; without a tree."""
    return [f"text-generation-launcher --model-id {shlex.quote(folder)} --speculate {heads}"]


def trtllm_commands(base: str, folder: str, tensors: HeadTensors, nodes: int) -> list[str]:
    """How TensorRT-LLM builds and runs an engine with the whole tree; in its folder ``examples/medusa``."""
    kind = str(tensors.block_weight.dtype).removeprefix("torch.")
    base, folder = shlex.quote(base), shlex.quote(folder)
    return [
        f"python convert_checkpoint.py --model_dir {base} --medusa_model_dir {folder} "
        f"--output_dir ./checkpoint --dtype {kind} --num_medusa_heads {tensors.count} "
        f"--num_medusa_layers {tensors.layers} --max_medusa_token_len {nodes}",
        f"trtllm-build --checkpoint_dir ./checkpoint --output_dir ./engine --gemm_plugin {kind} "
        "--speculative_decoding_mode medusa --max_batch_size 4",
        f"python ../run.py --engine_dir ./engine --tokenizer_dir {base} --max_output_len 100 "
        f'--medusa_choices="$(cat {folder}/{CHOICES_NAME})" --temperature 1.0 --input_text "Once upon"',
    ]
