"""Pretrain a small Llama from scratch on packed text.

Matrices are trained with Muon, embeddings and norms with AdamW; learning rate constant after warm-up,
then linear to zero, so that a longer or shorter budget can be chosen while a run is under way.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import torch
from tokenizers import Tokenizer
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from medusa_core.config import PretrainConfig
from medusa_core.errors import MedusaError
from medusa_core.training.corpus import (
    END_OF_TEXT,
    PackedMixture,
    Source,
    encode_source,
    heldout_windows,
    load_recipe,
)
from medusa_core.training.loop import Schedule, TrainRun
from medusa_core.training.tokenizer import build_tokenizer, save_tokenizer


def pretrain(config: PretrainConfig) -> Path:
    """Run the recipe and return the folder of the finished model (``<out>/model``)."""
    if not hasattr(torch.optim, "Muon"):
        raise MedusaError(
            f"pretraining uses torch.optim.Muon, torch {torch.__version__} has none: upgrade to 2.9"
        )
    out = Path(config.out)
    sources = load_recipe(Path(config.recipe), Path(config.data_root))
    tokenizer = _tokenizer(sources, config, out)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(config.seed)
    # Compiled, plain attention fuses into its neighbours and beats the CPU's fused kernel on short windows.
    model = LlamaForCausalLM(_architecture(config, tokenizer)).to(device)
    model.set_attn_implementation("eager" if config.compile and device.type == "cpu" else "sdpa")
    body = torch.compile(model.model) if config.compile else model.model
    steps = config.tokens // config.batch_tokens
    windows = _windows(sources, tokenizer, config, out)
    long_from = round(steps * (1 - config.long_share))

    def loss_of(window: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            hidden = body(window[:, :-1], use_cache=False).last_hidden_state
            logits = model.lm_head(hidden)
        return F.cross_entropy(logits.float().flatten(0, 1), window[:, 1:].flatten())

    def forward_backward(step: int) -> dict[str, float]:
        length = config.context if step >= long_from else config.sequence_length
        window = torch.from_numpy(windows[length].batch(step, config.batch_tokens // length))
        loss = loss_of(window.to(device))
        loss.backward()
        return {"loss": float(loss.detach())}

    heldout = heldout_windows(sources, tokenizer, out / "tokens", config.sequence_length)

    @torch.inference_mode()
    def evaluate() -> dict[str, float]:
        # One window at a time: kinds differ in their number of windows, and a compiled model in shapes.
        return {
            f"heldout/{kind}": mean(float(loss_of(window[None].to(device))) for window in windows)
            for kind, windows in heldout.items()
        }

    run = TrainRun(
        out,
        config,
        {"model": model},
        _optimizers(model, config),
        Schedule(steps, config.warmup_steps, config.decay_share),
        config.checkpoint_every,
    )
    run.run(forward_backward, evaluate, config.batch_tokens, config.evaluate_every)
    folder = out / "model"
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="9MB")
    save_tokenizer(tokenizer, folder, config.context)
    return folder


def _tokenizer(sources: list[Source], config: PretrainConfig, out: Path) -> Tokenizer:
    file = out / "tokenizer.json"
    if not file.is_file():
        out.mkdir(parents=True, exist_ok=True)
        documents = (doc for source in sources for doc in source.documents(heldout=False))
        build_tokenizer(documents, config.vocab_size).save(str(file))
    return Tokenizer.from_file(str(file))


def _windows(
    sources: list[Source], tokenizer: Tokenizer, config: PretrainConfig, out: Path
) -> dict[int, PackedMixture]:
    """Short windows for most of the run, windows of the whole context for its end."""
    arrays = [encode_source(s, tokenizer, out / "tokens", heldout=False) for s in sources]
    weights = [s.weight for s in sources]
    return {
        length: PackedMixture(arrays, weights, length, config.max_tokens // length, config.seed + length)
        for length in {config.sequence_length, config.context}
    }


def _architecture(config: PretrainConfig, tokenizer: Tokenizer) -> LlamaConfig:
    end = tokenizer.token_to_id(END_OF_TEXT)
    return LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.attention_heads,
        num_key_value_heads=config.kv_heads,
        max_position_embeddings=config.context,
        tie_word_embeddings=True,
        bos_token_id=end,
        eos_token_id=end,
    )


def _optimizers(model: LlamaForCausalLM, config: PretrainConfig) -> list[torch.optim.Optimizer]:
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    muon = torch.optim.Muon(
        matrices,
        lr=config.matrix_learning_rate,
        weight_decay=config.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    adamw = torch.optim.AdamW(
        others, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )
    return [muon, adamw]
