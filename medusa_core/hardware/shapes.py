"""Shapes of models: the few sizes that decide what a step computes and reads.

Those of known models are written here; of any other they are read off its config.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from medusa_core.errors import MedusaError

MOST_PARAMETERS = 10**12
SMALLEST_SIZE, LARGEST_SIZE = 3e8, 2e11  # of models that are given by their number of parameters
MHA, GQA, MQA = "MHA", "GQA", "MQA"
# Names that families use in their config.json.
_NAMES = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "vocabulary": ("vocab_size",),
    "intermediate": ("intermediate_size", "n_inner", "ffn_dim"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "head_size": ("head_dim",),
}
# Families whose MLP has two products and no gate.
_WITHOUT_GATE = frozenset(
    ("bloom", "codegen", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "mpt", "opt", "phi")
)
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a decoder. ``tied``: the LM head is the embedding and takes no memory of its own.

    Raises MedusaError for sizes that no model has.
    """

    name: str
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    layers: int
    vocabulary: int
    gated: bool = True  # whether the MLP has a gate beside up and down
    tied: bool = False

    def __post_init__(self) -> None:
        for field, words in _FIELDS.items():
            value = getattr(self, field)
            if type(value) is not int or not 1 <= value < MOST_PARAMETERS:
                raise MedusaError(
                    f"{words} is {value!r}: give a whole number from 1 to {MOST_PARAMETERS:.0e}"
                )
        if self.heads % self.kv_heads:
            raise MedusaError(
                f"{self.kv_heads} key-value heads do not divide {self.heads} query heads evenly: "
                f"use one of {', '.join(map(str, divisors(self.heads)))}"
            )
        if self.parameters >= MOST_PARAMETERS:
            raise MedusaError(
                f"a model of these sizes has {self.parameters:.2g} parameters, the formulas take fewer than "
                f"{MOST_PARAMETERS:.0e}: lower the layers or the hidden size"
            )

    @property
    def linear_parameters(self) -> int:
        """Numbers in the linear layers of one layer."""
        attention = self.hidden * self.head_size * (2 * self.heads + 2 * self.kv_heads)
        return attention + (3 if self.gated else 2) * self.hidden * self.intermediate

    @property
    def parameters(self) -> int:
        """Numbers in the linear layers, the embedding and the LM head; norms and biases are left out."""
        tables = (1 if self.tied else 2) * self.vocabulary * self.hidden
        return self.layers * self.linear_parameters + tables

    @property
    def read_parameters(self) -> int:
        """Numbers that a step reads: all but the embedding, of which it takes single rows."""
        return self.layers * self.linear_parameters + self.vocabulary * self.hidden

    @property
    def kind(self) -> str:
        """How query heads share key-value heads: MHA, GQA or MQA."""
        return attention_kind(self.heads, self.kv_heads)


_FIELDS = {
    "hidden": "the hidden size",
    "intermediate": "the inner size of the MLP",
    "heads": "the number of query heads",
    "kv_heads": "the number of key-value heads",
    "head_size": "the head size",
    "layers": "the number of layers",
    "vocabulary": "the vocabulary",
}


def divisors(number: int) -> list[int]:
    """The whole numbers that divide ``number`` evenly, the smallest first."""
    return [part for part in range(1, number + 1) if number % part == 0]


def attention_kind(heads: int, kv_heads: int) -> str:
    """MHA where every query head has its own keys and values, MQA where all share one, else GQA."""
    return MHA if kv_heads == heads else MQA if kv_heads == 1 else GQA


def _llama(name: str, hidden: int, intermediate: int, heads: int, layers: int) -> ModelShape:
    return ModelShape(name, hidden, intermediate, heads, heads, 128, layers, 32_000)


def _qwen(
    name: str, hidden: int, intermediate: int, heads: tuple[int, int], layers: int, head_size: int = 128
) -> ModelShape:
    small = hidden <= 2048
    vocabulary = 151_936 if small else 152_064
    return ModelShape(name, hidden, intermediate, *heads, head_size, layers, vocabulary, tied=small)


def known_shapes() -> dict[str, ModelShape]:
    """The models of the paper's appendix and the sizes of Qwen 2.5, by the names that the command takes."""
    shapes = (
        _llama("llama-7b", 4096, 11_008, 32, 32),
        _llama("llama-13b", 5120, 13_824, 40, 40),
        _llama("llama-33b", 6656, 17_920, 52, 60),
        _qwen("qwen2.5-0.5b", 896, 4864, (14, 2), 24, head_size=64),
        _qwen("qwen2.5-1.5b", 1536, 8960, (12, 2), 28),
        _qwen("qwen2.5-3b", 2048, 11_008, (16, 2), 36),
        _qwen("qwen2.5-7b", 3584, 18_944, (28, 4), 28),
        _qwen("qwen2.5-14b", 5120, 13_824, (40, 8), 48),
        _qwen("qwen2.5-32b", 5120, 27_648, (40, 8), 64),
        _qwen("qwen2.5-72b", 8192, 29_568, (64, 8), 80),
    )
    return {shape.name: shape for shape in shapes}


def find_shape(name: str) -> ModelShape:
    """A known model, or one of a size such as "3B" or "350M" parameters.

    A size gets the proportions of the nearest known model and as many layers as come closest to it. Raises
    MedusaError.
    """
    known = known_shapes()
    if (key := name.strip().lower()) in known:
        return known[key]
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([mb])", key)
    if size is None:
        raise MedusaError(
            f"no shape is called {name!r}: give a size such as 3B, or one of {', '.join(known)}"
        )
    wanted = float(size[1]) * (1e9 if size[2] == "b" else 1e6)
    if not SMALLEST_SIZE <= wanted <= LARGEST_SIZE:
        raise MedusaError(
            f"{name} is {wanted:.3g} parameters: the sizes that can be estimated are 300M to 200B"
        )
    nearest = min(known.values(), key=lambda shape: abs(math.log(shape.parameters / wanted)))
    tables = nearest.parameters - nearest.layers * nearest.linear_parameters
    layers = max(1, round((wanted - tables) / nearest.linear_parameters))
    return replace(nearest, name=f"{size[1]}{size[2].upper()}", layers=layers)


def shape_of_config(config: Any, name: str) -> ModelShape:
    """The shape that a config describes: what config.json holds, or an object with the same names.

    Raises MedusaError where a size is missing, or where a step does not read all weights or keep plain
    keys and values, so that the formulas would not hold.
    """
    get = config.get if isinstance(config, Mapping) else lambda key: getattr(config, key, None)
    inner = get("text_config")
    if inner is not None and get("hidden_size") is None:
        return shape_of_config(inner, name)
    if any(get(key) not in (None, 0, 1) for key in _EXPERTS):
        raise MedusaError(
            f"{name} chooses among experts, so a step reads other weights for each token: "
            "the formulas take dense models, choose one"
        )
    if get("kv_lora_rank"):
        raise MedusaError(
            f"{name} keeps one compressed row instead of keys and values: "
            "the formulas take MHA, GQA and MQA, choose another model"
        )

    def size(field: str, default: int | None = None) -> int:
        value = next((value for key in _NAMES[field] if (value := get(key)) is not None), default)
        if value is None:
            raise MedusaError(f"the config of {name} does not say {_FIELDS[field]}: name another model")
        if not isinstance(value, int):
            raise MedusaError(f"the config of {name} says {value!r} for {_FIELDS[field]}: name another model")
        return value

    hidden, heads = size("hidden"), size("heads")
    return ModelShape(
        name=name,
        hidden=hidden,
        intermediate=size("intermediate", 4 * hidden),
        heads=heads,
        kv_heads=1 if get("multi_query") else size("kv_heads", heads),
        head_size=size("head_size", hidden // heads if heads else 0),
        layers=size("layers"),
        vocabulary=size("vocabulary"),
        gated=str(get("model_type")) not in _WITHOUT_GATE,
        tied=bool(get("tie_word_embeddings")),
    )
