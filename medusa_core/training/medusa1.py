"""Medusa-1: train heads on a frozen base (paper §2.2.1).

Only the hidden states of the base are needed, so they are computed once a batch without its graph.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from medusa_core.checkpoints import save_heads
from medusa_core.config import Medusa1Config
from medusa_core.heads import MedusaHeads
from medusa_core.training.corpus import PackedMixture, encode_source, heldout_windows, load_recipe
from medusa_core.training.loop import Schedule, TrainRun
from medusa_core.training.losses import head_losses, head_scores, weighted_sum


def medusa1(config: Medusa1Config) -> Path:
    """Run the recipe and return the folder of the finished heads (``<out>/heads``)."""
    out, base = Path(config.out), Path(config.model)
    sources = load_recipe(Path(config.recipe), Path(config.data_root))
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.to(device).eval().requires_grad_(False)
    lm_head = model.get_output_embeddings().weight.float()
    heads = MedusaHeads.fresh(lm_head, config.heads, config.head_layers).to(device)
    arrays = [encode_source(s, tokenizer, out / "tokens", heldout=False) for s in sources]
    data = PackedMixture(
        arrays,
        [s.weight for s in sources],
        config.sequence_length,
        config.tokens // config.sequence_length + 1,
        config.seed,
    )
    rows = config.batch_tokens // config.sequence_length

    def hidden_of(tokens: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return model.base_model(tokens, use_cache=False).last_hidden_state

    def forward_backward(step: int) -> dict[str, float]:
        tokens = torch.from_numpy(data.batch(step, rows)).to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            losses = head_losses(heads, hidden_of(tokens), tokens)
        loss = weighted_sum(losses, config.head_decay)
        loss.backward()
        return {"loss": float(loss.detach())} | _by_head("loss", losses.detach())

    heldout = heldout_windows(sources, tokenizer, out / "tokens", config.sequence_length)

    @torch.inference_mode()
    def evaluate() -> dict[str, float]:
        metrics: dict[str, float] = {}
        for kind, windows in heldout.items():
            with torch.autocast(device.type, dtype=torch.bfloat16):
                scores = [head_scores(heads, hidden_of(w[None]), w[None]) for w in windows.to(device)]
            for name in ("loss", "top1", "top5"):
                per_head = torch.stack([getattr(score, name) for score in scores]).mean(dim=0)
                metrics |= _by_head(f"heldout/{kind}/{name}", per_head)
        return metrics

    steps = config.tokens // config.batch_tokens
    optimizer = torch.optim.AdamW(
        heads.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )
    run = TrainRun(
        out,
        config,
        {"heads": heads},
        [optimizer],
        Schedule(steps, config.warmup_steps, 1.0, "cosine"),
        config.checkpoint_every,
    )
    run.run(forward_backward, evaluate, config.batch_tokens, config.evaluate_every)
    save_heads(heads, out / "heads", base=config.base_name or config.model)
    return out / "heads"


def _by_head(name: str, values: torch.Tensor) -> dict[str, float]:
    return {f"{name}/{head}": value for head, value in enumerate(values.tolist(), start=1)}
