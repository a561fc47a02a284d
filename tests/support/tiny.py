"""Tiny random models, heads, tokenizers and trees for the engine's tests, built in memory and offline.

Token 0 is an ordinary token that the models produce often: padding with 0 or treating it as "nothing" is a
known fault of public code, which no test could see with a model that never says 0.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Sequence
from dataclasses import replace

import torch
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    AutoModelForMultimodalLM,
    LlamaConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.decoding import Step
from medusa_core.drafters.medusa.draft import MedusaDraft
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.engine import Engine, EngineInfo
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.llama.greedy import GreedySteps, Guessing, Made
from medusa_core.loading.load import load_engine
from medusa_core.model.target import Target
from medusa_core.trace.builder import TraceBuilder
from medusa_core.trees.origin import ROOT
from medusa_core.trees.token_tree import TokenTree

VOCABULARY = 24
HEADS = 3
LETTERS = string.ascii_lowercase
PROMPT = [1, 2, 0, 3]


def tiny_config(kv_heads: int = 4, **changes) -> LlamaConfig:
    """Two layers, four query heads; ``kv_heads`` 4 is MHA, 2 GQA, 1 MQA."""
    settings = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": kv_heads, "max_position_embeddings": 96,
        "initializer_range": 0.35,  # wide enough for peaked distributions and varied text
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "tie_word_embeddings": False,
    }  # fmt: skip
    return LlamaConfig(**(settings | changes))


def build_model(
    config, attention: str = "sdpa", seed: int = 0, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    """A model with random weights; one that also reads pictures has another class."""
    torch.manual_seed(seed)
    text_only = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    auto = AutoModelForCausalLM if text_only else AutoModelForMultimodalLM
    model = auto.from_config(config, attn_implementation=attention, dtype=dtype)
    return model.eval().requires_grad_(False)


def frequent_zero_model(kv_heads: int = 4, seed: int = 1) -> PreTrainedModel:
    """A tiny Llama whose most frequent token is renamed 0, by swapping rows of embedding and LM head."""
    model = build_model(tiny_config(kv_heads), seed=seed)
    counts = torch.bincount(greedy_texts(model, 8, 40).flatten(), minlength=VOCABULARY)
    order = torch.arange(VOCABULARY)
    order[[0, int(counts.argmax())]] = order[[int(counts.argmax()), 0]]
    for weight in (model.get_input_embeddings().weight, model.get_output_embeddings().weight):
        weight.data = weight.data[order].clone()
    return model


def greedy_texts(model: PreTrainedModel, count: int, length: int, seed: int = 1) -> torch.Tensor:
    """``count`` greedy texts [count, 4 + length], each after four random tokens."""
    generator = torch.Generator().manual_seed(seed)
    prompts = torch.randint(0, len(model.get_output_embeddings().weight), (count, 4), generator=generator)
    everything = torch.ones_like(prompts)
    return model.generate(
        prompts, attention_mask=everything, max_new_tokens=length, do_sample=False, pad_token_id=0
    )


def random_heads(model: PreTrainedModel, count: int = HEADS, layers: int = 1, seed: int = 0) -> MedusaHeads:
    """Heads with random weights: nearly every draft is wrong."""
    rows, width = model.get_output_embeddings().weight.shape
    generator = torch.Generator().manual_seed(seed)
    heads = MedusaHeads(
        torch.randn(count, layers, width, width, generator=generator) * 0.2,
        torch.randn(count, layers, width, generator=generator) * 0.2,
        torch.randn(count, rows, width, generator=generator) * 0.2,
    )
    return heads.requires_grad_(False)


def randomised(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """The module, ready to compute, with noise on every parameter, so that each of them matters."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data += torch.randn(parameter.shape, generator=generator) * 0.2
    return module.requires_grad_(False).eval()


def fitted_heads(model: PreTrainedModel, count: int = HEADS) -> MedusaHeads:
    """Heads that are often right: last layers fitted by least squares to greedy texts of the model."""
    said = greedy_texts(model, 48, 40, seed=2)
    hidden = model(said, output_hidden_states=True).hidden_states[-1]
    rows, width = model.get_output_embeddings().weight.shape
    last = []
    for head in range(1, count + 1):
        states = hidden[:, 3 : -1 - head].reshape(-1, width)
        wanted = torch.nn.functional.one_hot(said[:, 4 + head :].reshape(-1), rows).float()
        square = states.T @ states + 0.1 * torch.eye(width)
        last.append(torch.linalg.solve(square, states.T @ wanted).T)
    zeros = torch.zeros(count, 1, width, width)
    return MedusaHeads(zeros, zeros[..., 0].clone(), torch.stack(last)).requires_grad_(False)


def tiny_tokenizer(end_token: int | None = None) -> PreTrainedTokenizerFast:
    """One letter a token: token 0 is "a". ``end_token`` makes one of the letters the end of the text."""
    vocabulary = {LETTERS[i]: i for i in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="b"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    ends = {} if end_token is None else {"eos_token": LETTERS[end_token]}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends)


def build_engine(model: PreTrainedModel, heads: MedusaHeads | None, *, tokenizer: bool = True) -> Engine:
    """An engine around weights in memory, with transformers' forward."""
    target = Target(model)
    info = EngineInfo(
        name="tiny", base="tiny", heads="tiny" if heads else None, dtype="float32", device="cpu",
        parameters=sum(p.numel() for p in model.parameters()),
        draft_parameters=sum(p.numel() for p in heads.parameters()) if heads else 0, dtype_reason="as asked",
    )  # fmt: skip
    drafts = {"medusa": MedusaDraft(heads)} if heads else {}
    return Engine(target, drafts, tiny_tokenizer() if tokenizer else None, info)


def target_in_c(model: PreTrainedModel, library) -> Target:
    """The model's target with the forward in C."""
    target = Target(model)
    assert choose_forward(target, library=library).native
    return target


def load_config(folder="", heads="", **settings) -> LoadConfig:
    """How to load a folder: on the CPU in float32 unless the settings say otherwise."""
    names = {"model": str(folder), "heads": str(heads)}
    return LoadConfig(**names | {"dtype": "float32", "device": "cpu"} | settings)


def load_from(folder="", heads="", **settings) -> Engine:
    """The engine that ``load_config`` describes."""
    return load_engine(load_config(folder, heads, **settings))


@st.composite
def parent_lists(draw: st.DrawFn, max_nodes: int = 12) -> list[int]:
    """Parents of a random tree: node 0 is the root, every other node's parent is an earlier one."""
    size = draw(st.integers(1, max_nodes))
    return [-1, *(draw(st.integers(0, node - 1)) for node in range(1, size))]


def choices_of(parents: Sequence[int]) -> list[tuple[int, ...]]:
    """Rank tuples of a tree: each node gets the next free rank below its parent."""
    choices: list[tuple[int, ...]] = [()]
    for node in range(1, len(parents)):
        rank = sum(parent == parents[node] for parent in parents[:node])
        choices.append((*choices[parents[node]], rank))
    return choices[1:]


def token_tree(parents: Sequence[int], tokens: Sequence[int]) -> TokenTree:
    """Candidates from parents and tokens; who drafted them does not matter to the tests that use this."""
    return TokenTree.from_lists(tokens, parents, [ROOT] * len(parents))


def random_tokens(count: int, seed: int, vocabulary: int = VOCABULARY) -> list[int]:
    """Random tokens in which 0 is as likely as all others together."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, vocabulary, (count,), generator=generator)
    return (tokens * torch.randint(0, 2, (count,), generator=generator)).tolist()


def path_to(parents: Sequence[int], node: int) -> list[int]:
    """Node ids from the root to ``node``, by walking up."""
    path = [node]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


def greedy_step(forward, cache, tree) -> Made:
    """The step in C of this very tree."""
    filled = replace(tree, draft_logp=torch.zeros(tree.size))
    steps = GreedySteps(forward, Guessing(tree, [0] * tree.size), lambda *_: filled)
    return steps.run(cache, int(tree.tokens[0]))


def emitted(steps) -> list[int]:
    """All tokens of a run."""
    return list(itertools.chain.from_iterable(step.emitted for step in steps))


def run(engine, prompt=PROMPT, **settings) -> list[Step]:
    """All steps of a run, on a small tree unless told otherwise."""
    return list(engine.stream(prompt, GenerationConfig.of(**({"tree": "cartesian-4x2x2"} | settings))))


def recorded(engine, config, prompt=PROMPT) -> TraceBuilder:
    """The trace builder of a run, after all its steps."""
    return traced(engine, config, prompt)[0]


def traced(engine, config, prompt=PROMPT, most_steps: int | None = None) -> tuple[TraceBuilder, list[Step]]:
    """The trace builder of a run's first steps, or of all, and these steps."""
    builder, steps = TraceBuilder(engine, config, prompt), []
    for step in itertools.islice(engine.stream(prompt, config), most_steps):
        builder.add(step)
        steps.append(step)
    return builder, steps


def transformers_greedy(model, prompt, count) -> list[int]:
    """The slow version: greedy decoding by transformers itself."""
    return model.generate(
        torch.tensor([list(prompt)]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=count, do_sample=False, pad_token_id=0,
    )[0, len(prompt) :].tolist()  # fmt: skip
