"""Run in vLLM's own environment: what its Medusa and EAGLE-3 classes make of our files, on the CPU.

``python vllm_reads.py BASE MEDUSA EAGLE3 INPUTS OUT`` reads rows from INPUTS and writes logits. A wheel
without compiled parts has no attention, so torch's replaces it. All else is vLLM's.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from vllm import config as vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.model_executor.models import llama, llama_eagle3, medusa
from vllm.transformers_utils.configs.medusa import MedusaConfig


class Attention(nn.Module):
    """Causal attention over all rows, as vLLM's layer is called."""

    def __init__(self, heads, size, scale, num_kv_heads, **_):
        super().__init__()
        self.heads, self.size, self.scale, self.groups = heads, size, scale, num_kv_heads

    def forward(self, query, key, value):
        parts = ((query, self.heads), (key, self.groups), (value, self.groups))
        rows = (x.unflatten(-1, (count, self.size)).transpose(0, 1)[None] for x, count in parts)
        mixed = nn.functional.scaled_dot_product_attention(
            *rows, is_causal=True, scale=self.scale, enable_gqa=True
        )
        return mixed[0].transpose(0, 1).flatten(1)


def loaded(module, folder):
    """The module with the weights of a folder, ready to compute as vLLM's loader leaves it."""
    module.load_weights(load_file(f"{folder}/model.safetensors").items())
    for part in module.modules():
        if method := getattr(part, "quant_method", None):
            method.process_weights_after_loading(part)
    return module


@torch.inference_mode()
def main(base, medusa_folder, eagle_folder, inputs, out):
    rows = load_file(inputs)
    llama.Attention = Attention
    model = vllm_config.ModelConfig(model=base, dtype="float32", enforce_eager=True)
    alone = vllm_config.ParallelConfig()
    settings = vllm_config.VllmConfig(
        model_config=model,
        parallel_config=alone,
        device_config=vllm_config.DeviceConfig("cpu"),
        compilation_config=vllm_config.CompilationConfig(custom_ops=["none"]),
        speculative_config=vllm_config.SpeculativeConfig(
            method="eagle3", model=eagle_folder, num_speculative_tokens=3,
            target_model_config=model, target_parallel_config=alone,
        ),
    )  # fmt: skip
    of_heads = SimpleNamespace(hf_config=MedusaConfig.from_pretrained(medusa_folder))
    with vllm_config.set_current_vllm_config(settings):
        init_distributed_environment(1, 0, f"file://{out}.group", 0, "gloo")
        initialize_model_parallel(1, 1)
        torch.set_default_dtype(torch.float32)
        speculative = SimpleNamespace(draft_model_config=of_heads)
        heads = loaded(
            medusa.Medusa(vllm_config=SimpleNamespace(speculative_config=speculative)), medusa_folder
        )
        layer = loaded(llama_eagle3.Eagle3LlamaForCausalLM(vllm_config=settings), eagle_folder)
        layer.model.embed_tokens.weight.data.copy_(rows["embedding"])  # vLLM shares the target's
        fused = layer.combine_hidden_states(rows["features"])
        positions = torch.arange(len(fused))
        hidden, _ = layer(rows["tokens"], positions, fused)
        found = {"heads": torch.stack(heads.compute_logits(heads(rows["hidden"])))}
        save_file(found | {"eagle3": layer.compute_logits(hidden)}, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
