"""The small model as it is loaded beside a target: as a target of its own, by the same checks.

It runs on the target's device in the target's dtype, and must have its vocabulary: the numbers of tokens
are all that the two models exchange.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa_core.checkpoints.base import (
    empty_base,
    is_known_kind,
    load_base,
    load_tokenizer,
    read_base_config,
)
from medusa_core.checkpoints.files import read_config
from medusa_core.checkpoints.names import PICKLED_NAME, WEIGHTS_NAME
from medusa_core.drafters import Draft, DraftSize
from medusa_core.errors import MedusaError
from medusa_core.llama.choose_forward import choose_forward
from medusa_core.model.quantization import packing_of
from medusa_core.model.target import Target
from medusa_core.words import count_words

if TYPE_CHECKING:
    import torch

    from medusa_core.loading.model_size import ModelSize


@dataclass(frozen=True)
class ModelDraft(Draft):
    """A small model, ready to draft."""

    model: Target

    @property
    def label(self) -> str:
        return f"draft model, {count_words(self.model.held.parameters)} parameters"

    def tensors(self) -> Iterator[torch.Tensor]:
        yield from self.model.held.weights.parameters()


def owns(folder: Path) -> bool:
    """Whether the folder holds a whole language model. Asked last: heads bring a config of a model, too."""
    config = read_config(folder)
    # Where only the small files were fetched so far, the config stands for the weights.
    weights = any(folder.glob("*.safetensors*")) or any(folder.glob("*.bin*"))
    named = any(folder.glob(f"{name.partition('.')[0]}*") for name in (WEIGHTS_NAME, PICKLED_NAME))
    return isinstance(config.get("model_type"), str) and (named or not weights)


def load(folder: Path, target: Target) -> ModelDraft:
    """Read the model as bases are read. Raises MedusaError when it cannot draft for ``target``."""
    _refuse_own_code(folder)
    config = read_base_config(folder)
    if packed := packing_of(config):
        raise MedusaError(
            f"the draft model in {folder} is {packed.words()}: name one whose weights are plain numbers"
        )
    _require_same_tokens(folder, target)
    device = target.output_device
    # Layer by layer onto a GPU, as a base is.
    placed: dict[str, Any] = {"device_map": {"": device}} if device.type == "cuda" else {}
    read = load_base(folder, dtype=target.dtype, **placed)
    if not placed:
        read.to(device)  # type: ignore[arg-type]  # transformers wraps `to` without its self
    model = Target(read)
    _require_smaller(folder, model, target)
    choose_forward(model, library=target.library, capture=target.choice.captured)
    return ModelDraft(model)


def size(folder: Path, base: ModelSize) -> DraftSize:
    """A whole model, which is counted as a base is."""
    return DraftSize(0, model=folder)


def _refuse_own_code(folder: Path) -> None:
    """Raise MedusaError for a model that needs Python of its own; --trust-remote-code is for a base."""
    config = read_config(folder)
    if "auto_map" in config and not is_known_kind(config.get("model_type")):
        raise MedusaError(
            f"the draft model in {folder} needs Python code of its own, which is run for a base alone: name "
            "a smaller model of a kind that transformers knows"
        )


def _require_same_tokens(folder: Path, target: Target) -> None:
    """Raise MedusaError unless a token's number means the same to both models.

    Where a tokenizer is missing, LM heads with equally many rows are enough. With both, the rows may differ,
    as within a family whose larger models pad them: tokens are what the tokenizers name.
    """
    head = empty_base(folder).get_output_embeddings()
    rows, base = len(head.weight) if head is not None else 0, target.held.folder
    places = [place for place in (folder, base) if place is not None and place.is_dir()]
    found = [
        {number: token for token, number in tokenizer.get_vocab().items()}
        for tokenizer in map(load_tokenizer, places)
        if tokenizer is not None
    ]
    own, wanted = found if len(found) == 2 else ({}, {})
    if (number := next((one for one in own if wanted.get(one, own[one]) != own[one]), None)) is not None:
        raise MedusaError(
            f"the draft model in {folder} calls token {number} {own[number]!r}, the target "
            f"{wanted[number]!r}: name a model with the target's tokenizer"
        )
    if rows != target.vocab_size and not (wanted and max(wanted) < min(rows, target.vocab_size)):
        raise MedusaError(
            f"the draft model in {folder} has {rows} tokens, the target {target.vocab_size}: "
            "name a model with the target's vocabulary, as smaller ones of one family have"
        )


def _require_smaller(folder: Path, model: Target, target: Target) -> None:
    """Raise MedusaError for a model with more numbers, unless packed weights hide how many there are."""
    if target.held.packing is None and model.held.parameters > target.held.parameters:
        raise MedusaError(
            f"the draft model in {folder} has {count_words(model.held.parameters)} parameters, the target "
            f"{count_words(target.held.parameters)}: drafting would take longer than the target alone, so "
            "name a smaller model"
        )
