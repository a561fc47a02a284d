"""Trains and measures what the package describes.

B windows · T tokens of a window · G key-value heads · D head size · d width
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM

from medusa_core.config import NO_HEADS
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError
from medusa_core.experiments.grouped_heads import Settings
from medusa_core.experiments.quality import Heldout, Text
from medusa_core.experiments.setup import Case, Findings, Setup
from medusa_core.experiments.train_variants import write_text
from medusa_core.hardware.shapes import attention_kind, divisors
from medusa_core.loading.load import load_engine
from medusa_core.training.examples import read_examples

WINDOW, BATCH = 128, 16  # T and B
HELD_OUT = 20  # one window in so many is judged and not trained on
RATE, LATER_RATE = 3e-3, 1e-3  # peak learning rates of the first training and of those behind it
CACHED = 8192  # positions for which the cache's size is reported


def measure(setup: Setup, settings: Settings) -> Findings:
    """Train, pool, train on, and compare loss, cache and time of a token. Raises MedusaError."""
    windows = read_windows(setup, settings)
    held_out, trained = windows[::HELD_OUT], windows[torch.arange(len(windows)) % HELD_OUT > 0]
    later = int(settings.tokens * settings.uptrained)
    first = fresh_model(setup.engine, settings)
    fit(first, trained, settings.tokens, RATE)
    models = {_words(settings.query_heads, settings.query_heads, ""): first}
    models[_words(settings.query_heads, settings.query_heads, "trained on")] = trained_on(
        first, trained, later
    )
    for count in reversed(divisors(settings.query_heads)[:-1]):
        shared = pooled(first, count)
        models[_words(settings.query_heads, count, "pooled")] = shared
        models[_words(settings.query_heads, count, "pooled and trained on")] = trained_on(
            shared, trained, later
        )
    engines = {name: saved_and_loaded(setup, settings, name, model) for name, model in models.items()}
    rows, _ = setup.compare([Case(name, engine, {"method": "none"}) for name, engine in engines.items()])
    texts = [Text(window[:1], window[1:]) for window in held_out.tolist()]
    losses = {name: Heldout.of(engine.target, texts) for name, engine in engines.items()}
    base = rows[0].label
    for row in rows:
        loss = losses[row.label]
        row.quality, row.quality_change, row.same_texts = loss.mean(), loss.change(losses[base]), None
        row.cache_bytes = engines[row.label].target.cache_bytes(CACHED)
    notes = [
        f"{settings.tokens:,} tokens of training, then {later:,} more where a row says trained on; the loss "
        f"is that of {len(texts)} windows of {windows.shape[1] - 1} tokens.",
        f"The cache is that of {CACHED:,} tokens. Every row is compared with the first.",
    ]
    return Findings(rows, notes, info=replace(engines[base].info, name="a small Llama trained here"))


def read_windows(setup: Setup, settings: Settings) -> torch.Tensor:
    """The text in windows of T + 1 tokens, [W, T + 1]. Raises MedusaError where there is too little."""
    if settings.data:
        files = setup.files(settings.data)
    else:
        files = [Path(write_text(setup, settings.runs, settings.tokens))]
    ends = sorted(setup.engine.end_tokens())[:1]
    ids: list[int] = []
    for file in files:
        for example in read_examples(file):
            ids += [*setup.engine.tokenize(example.plain_text, special=False), *ends]
    width = min(WINDOW + 1, setup.engine.target.context)
    count = len(ids) // width
    if count < 2:
        raise MedusaError(f"the text has {len(ids)} tokens, two windows of {width} are the least: add text")
    return torch.tensor(ids[: count * width]).view(count, width)


def fresh_model(engine: Engine, settings: Settings) -> LlamaForCausalLM:
    """A small Llama with multi-head attention for the engine's tokens."""
    width = settings.query_heads * settings.head_size
    config = LlamaConfig(
        vocab_size=engine.target.vocab_size, hidden_size=width, intermediate_size=3 * width,
        num_hidden_layers=settings.layers, num_attention_heads=settings.query_heads,
        num_key_value_heads=settings.query_heads, head_dim=settings.head_size,
        max_position_embeddings=engine.target.context, tie_word_embeddings=True,
        eos_token_id=sorted(engine.end_tokens())[:1] or None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config)


def pooled(model: LlamaForCausalLM, heads: int) -> LlamaForCausalLM:
    """A copy whose groups of key-value heads became one each: the mean of their projections."""
    config = copy.deepcopy(model.config)
    config.num_key_value_heads = heads
    found = LlamaForCausalLM(config)
    state = model.state_dict()
    for name, weight in state.items():
        if name.endswith(("k_proj.weight", "v_proj.weight")):  # [G·D, d]
            groups = weight.view(heads, -1, config.head_dim, weight.shape[-1])
            state[name] = groups.mean(dim=1).flatten(0, 1)
    found.load_state_dict(state)
    return found


def trained_on(model: LlamaForCausalLM, windows: torch.Tensor, tokens: int) -> LlamaForCausalLM:
    """A copy that has seen ``tokens`` more."""
    found = copy.deepcopy(model)
    fit(found, windows, tokens, LATER_RATE)
    return found


def fit(model: LlamaForCausalLM, windows: torch.Tensor, tokens: int, rate: float) -> None:
    """Train in place: ``rate`` is reached in a tenth of the steps and falls to nothing.

    The order of the windows is the same for all.
    """
    steps = tokens // (BATCH * WINDOW)
    if not steps:
        return
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, 10 * (step + 1) / steps) * (1 - step / steps)
    )
    order = torch.Generator().manual_seed(0)
    model.train()
    for _ in tqdm(range(steps), unit="step"):
        chosen = windows[torch.randint(len(windows), (BATCH,), generator=order)]
        logits = model(chosen[:, :-1], use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), chosen[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
    model.eval()


def saved_and_loaded(setup: Setup, settings: Settings, name: str, model: LlamaForCausalLM) -> Engine:
    """The model's engine: written into a folder of its name and loaded from there, as any other is."""
    folder = Path(settings.runs) / name.replace(", ", "-").replace(" ", "-")
    model.save_pretrained(folder)
    setup.engine.require_tokenizer().save_pretrained(folder)
    return load_engine(replace(setup.load, model=str(folder), heads=NO_HEADS))


def _words(heads: int, kv_heads: int, made: str) -> str:
    kind = f"{attention_kind(heads, kv_heads)}, {kv_heads} key-value {'head' if kv_heads == 1 else 'heads'}"
    return f"{kind}, {made}" if made else kind
