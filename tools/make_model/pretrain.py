"""Pretrain a small Llama on packed text, from scratch or from existing weights.

Matrices are trained with Muon, embeddings and norms with AdamW; after warm-up the learning rate is
constant, then falls linearly to zero, so that the budget can be changed while a run is under way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from statistics import mean

import torch
from tokenizers import Tokenizer
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from medusa_core.checkpoints.heads import disk_errors
from medusa_core.errors import MedusaError
from medusa_core.loading.devices import cpu_has_bf16
from medusa_core.training.corpus import Source, encode_source, load_recipe
from medusa_core.training.data import Batch, heldout_windows
from medusa_core.training.divergence import DivergenceLimit
from medusa_core.training.encoding import Encoder
from medusa_core.training.examples import END_OF_TEXT
from medusa_core.training.loop import Losses, Metrics, Progress, Schedule, TrainRun, make_accelerator
from medusa_core.training.optimizers import muon_and_adamw
from medusa_core.training.run_folder import replace_file
from tools.make_model.phases import PhasedText, load_phases
from tools.make_model.preferences import Preferences, read_pairs
from tools.make_model.settings import PretrainConfig
from tools.make_model.teachers import Teachers, read_llama
from tools.make_model.tokenizer import build_tokenizer, read_tokenizer, save_tokenizer

PLAIN_ATTENTION = 256  # longest window for which plain attention is faster on a CPU
IGNORED = -100  # cross_entropy's mark for a target that does not count


def pretrain(config: PretrainConfig) -> Generator[Progress, None, None]:
    """Run the recipe, on one process; the last record's ``folder`` is the finished model (``<out>/model``).

    Raises MedusaError for data that cannot be used or several processes.
    """
    accelerator = make_accelerator(config)
    if accelerator.num_processes > 1:
        raise MedusaError("pretraining runs on one process: start it without accelerate launch")
    _check_sizes(config)
    (out := Path(config.out)).mkdir(parents=True, exist_ok=True)
    sources = load_recipe(Path(config.recipe), Path(config.data_root))
    phases = load_phases(config, sources)
    tokenizer = _tokenizer(sources, config, out)
    device = accelerator.device
    bf16 = device.type != "cpu" or cpu_has_bf16()  # a processor without it takes many times as long
    torch.manual_seed(config.seed)
    model = _model(config, tokenizer).to(device)
    teachers = Teachers(config.teachers.split(","), config.feature_weight, model) if config.teachers else None
    dropout = Dropout(model)
    # Phases differ in their windows: a graph for each shape is faster than one for all.
    body = torch.compile(model.model, dynamic=False) if config.compile else model.model
    encoder = Encoder(PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END_OF_TEXT))
    splits = {source.kind: encode_source(source, encoder, out / "tokens") for source in sources}
    preferences = _preferences(config, teachers, encoder.end)
    text = PhasedText(phases, {kind: split.train for kind, split in splits.items()}, config, encoder.end)

    def loss_of(tokens: torch.Tensor, trained: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
            hidden = body(tokens[:, :-1].to(device), use_cache=False).last_hidden_state
            logits = model.lm_head(hidden)
        targets = tokens.masked_fill(~trained, IGNORED)[:, 1:].to(device)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED)

    def losses_of(step: int, number: int) -> Losses:
        phase = text.phase(step)
        dropout.rate = phase.dropout
        # Compiled on a CPU, plain attention fuses into its neighbours; on long windows it takes gigabytes.
        plain = device.type == "cpu" and config.compile and phase.window <= PLAIN_ATTENTION
        model.set_attn_implementation("eager" if plain else "sdpa")
        batch = text.batch(step, number)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
            if teachers and text.keeps(step, number):
                loss = teachers.loss(model, batch.tokens.to(device), batch.trained.to(device))
            else:
                loss = loss_of(batch.tokens, batch.trained)
            if preferences:
                loss = loss + preferences.loss(model, step * config.accumulate + number)
        return {"loss": loss}

    heldout = {
        kind: heldout_windows(split.heldout, config.sequence_length, encoder.end)
        for kind, split in splits.items()
    }

    def evaluate() -> Metrics:
        model.eval()
        losses = _heldout_losses(loss_of, heldout)
        model.train()
        return losses

    optimizers = muon_and_adamw(
        model.named_parameters(), config.matrix_learning_rate, config.learning_rate, config.weight_decay
    )
    watch = DivergenceLimit("loss", math.log(tokenizer.get_vocab_size()))
    run = TrainRun(
        config,
        model,
        optimizers,
        Schedule(config.steps, config.warmup_steps, config.decay_share),
        accelerator,
    )
    yield from run.steps(losses_of, evaluate, "base", watch)
    folder = _saved(model, tokenizer, config)
    yield Progress("base", run.step, config.steps, run.step * config.batch_tokens, 0.0, folder=folder)


class Dropout:
    """Dropout after every attention and MLP of a Llama, which has none there itself.

    One rate for all layers, set between steps, so that a run can begin without it.
    """

    def __init__(self, model: LlamaForCausalLM) -> None:
        self.rate = 0.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.register_forward_hook(self._drop)
            layer.mlp.down_proj.register_forward_hook(self._drop)

    def _drop(self, module: torch.nn.Module, inputs: tuple, output: torch.Tensor) -> torch.Tensor:
        return F.dropout(output, self.rate, training=module.training and self.rate > 0)


def _saved(model: LlamaForCausalLM, tokenizer: Tokenizer, config: PretrainConfig) -> Path:
    folder = Path(config.out) / "model"
    with disk_errors():
        model.bfloat16().save_pretrained(folder, max_shard_size="9MB")
    save_tokenizer(tokenizer, folder, config.context)
    return folder


def _preferences(config: PretrainConfig, teachers: Teachers | None, end: int) -> Preferences | None:
    if not config.pairs:
        return None
    if teachers is None:
        raise MedusaError("--pairs are learned against a teacher: name the base that repeats with --teachers")
    pairs = read_pairs(Path(config.pairs), teachers.first.config.vocab_size)
    return Preferences(pairs, teachers.first, end, config)


def _check_sizes(config: PretrainConfig) -> None:
    """Raise MedusaError for sizes that fit no model, or a batch that holds no window."""
    for whole, part in (("hidden_size", "attention_heads"), ("attention_heads", "kv_heads")):
        sizes = getattr(config, whole), getattr(config, part)
        if sizes[0] % sizes[1]:
            raise MedusaError(f"{whole} is {sizes[0]}, no multiple of {part} {sizes[1]}: make it one")
    if config.hidden_size // config.attention_heads % 2:
        raise MedusaError(
            f"{config.attention_heads} heads share a width of {config.hidden_size} in odd parts, rotary "
            "positions need even ones: make hidden_size a multiple of twice the attention_heads"
        )
    longest = max(config.sequence_length, config.context)
    if config.batch_tokens < longest:
        raise MedusaError(
            f"a step of {config.batch_tokens} tokens holds no window of {longest}: raise --batch-tokens"
        )


def _tokenizer(sources: list[Source], config: PretrainConfig, out: Path) -> Tokenizer:
    file = Path(config.tokenizer) if config.tokenizer else out / "tokenizer.json"
    if not config.tokenizer and not file.exists():
        documents = (doc for source in sources for doc in source.documents(heldout=False))
        replace_file(file, build_tokenizer(documents, config.vocab_size).to_str().encode())
    return read_tokenizer(file)


@torch.inference_mode()
def _heldout_losses(
    loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], heldout: Mapping[str, Batch]
) -> Metrics:
    # One window at a time: a compiled model would be compiled anew for each kind's number of windows.
    return {
        f"heldout/{kind}": mean(map(float, map(loss_of, batch.tokens.split(1), batch.trained.split(1))))
        for kind, batch in heldout.items()
    }


def _model(config: PretrainConfig, tokenizer: Tokenizer) -> LlamaForCausalLM:
    if not config.start:
        return LlamaForCausalLM(_architecture(config, tokenizer))
    model = read_llama(config.start)
    if model.config.vocab_size != tokenizer.get_vocab_size():
        raise MedusaError(
            f"{config.start} has {model.config.vocab_size} tokens, the tokenizer "
            f"{tokenizer.get_vocab_size()}: "
            "name the model's own with --tokenizer"
        )
    return model


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
        rope_parameters={"rope_type": "default", "rope_theta": config.rotary_base},
        tie_word_embeddings=True,
        bos_token_id=end,
        eos_token_id=end,
    )
