"""The one call that runs: model, heads and tokenizer together, prompt in, steps out.

Owns what is shared by all runs (weights, tokenizer) and nothing of any run: settings, cache and random
numbers live in the generator that ``stream`` returns. How it comes to be is ``loading``'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from medusa_core.acceptance import make_rule
from medusa_core.config import GenerationConfig
from medusa_core.decoding import Step, decode
from medusa_core.drafters import make_drafter
from medusa_core.drafters.medusa.heads import MedusaHeads
from medusa_core.errors import MedusaError, is_out_of_memory
from medusa_core.target.kv_cache import TreeCache
from medusa_core.target.model import Target
from medusa_core.text.prompt_check import check_text
from medusa_core.text.stopping import Stopper
from medusa_core.trees.search import assumed_accuracies, search_tree
from medusa_core.trees.tree import Topology, load_tree

_FALLBACK_NODES = 15  # drafted nodes of the default tree of heads that bring none


@dataclass(frozen=True)
class EngineInfo:
    """What is loaded, in words and numbers that a person or a trace file can carry."""

    name: str
    base: str
    heads: str | None
    head_count: int
    dtype: str
    device: str
    parameters: int
    head_parameters: int
    dtype_reason: str
    notes: tuple[str, ...] = ()  # what the heads' config says otherwise than their tensors


@dataclass(frozen=True)
class Engine:
    """A loaded target, its tokenizer and, when there are any, its heads with their tree and accuracies."""

    target: Target
    heads: MedusaHeads | None
    default_tree: Topology | None
    accuracies: list[list[float]] | None  # of head k's guess of rank i, measured; None when nobody has
    tokenizer: PreTrainedTokenizerBase | None
    info: EngineInfo

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt. Raises MedusaError for a text nobody writes, or without a tokenizer."""
        self.require_tokenizer()
        return self.tokenize(check_text(text))

    def require_tokenizer(self) -> None:
        """Raise MedusaError when there is no tokenizer."""
        if self.tokenizer is None:
            raise MedusaError(
                f"{self.info.base} has no tokenizer: put its files beside the weights, or give token ids "
                "with --prompt-ids"
            )

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        """Token ids of any text, with the tokens that begin one where ``special``. Raises MedusaError."""
        # Too long a prompt is our error to report, with the cause and the fix.
        ids = self.tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
        if ids and max(ids) >= (rows := self.target.vocab_size):
            raise MedusaError(
                f"the tokenizer makes token {max(ids)} of this text, {self.info.base} has {rows}: "
                "it belongs to another model, so put this model's tokenizer beside the weights"
            )
        return ids

    def decode_text(self, tokens: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        if self.tokenizer is None:
            return " ".join(map(str, tokens))
        return self.tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def token_text(self, token: int) -> str:
        """Text of one token, special tokens by their name."""
        if self.tokenizer is None:
            return str(token)
        return self.tokenizer.decode([token], clean_up_tokenization_spaces=False)

    def end_tokens(self) -> frozenset[int]:
        """Ids that end a text, by the model's generation config and the tokenizer."""
        ends = self.target.model.generation_config.eos_token_id
        found = set(ends if isinstance(ends, list) else [ends])
        if self.tokenizer is not None:
            found.add(self.tokenizer.eos_token_id)
        return frozenset(found - {None})

    def tree(self, name: str) -> Topology:
        """The tree a setting names; "default" is the one shipped with the heads."""
        if name != "default":
            return load_tree(name)
        if self.default_tree is not None:
            return self.default_tree
        return self.budget_tree(_FALLBACK_NODES)

    def budget_tree(self, nodes: int) -> Topology:
        """The best tree of ``nodes`` drafted nodes for the heads' accuracies, measured or else assumed."""
        heads = self.heads.count if self.heads else 1
        accuracies = self.accuracies or assumed_accuracies(heads)
        return Topology.from_choices(search_tree(accuracies, nodes).choices)

    def stream(
        self,
        prompt: Sequence[int],
        config: GenerationConfig,
        *,
        cache: TreeCache | None = None,
        end_tokens: frozenset[int] = frozenset(),
    ) -> Iterator[Step]:
        """Decode after ``prompt``: a generator of steps.

        ``cache`` holds rows of the prompt's first tokens of a run before, ``end_tokens`` end the text too.
        Raises MedusaError at the first ``next``, or later when memory runs out.
        """
        tree = self.tree(config.tree) if config.method == "medusa" and self.heads else None
        generator = torch.Generator(device=self.target.output_device).manual_seed(config.seed)
        stopper = Stopper(
            end_tokens=frozenset() if config.ignore_eos else self.end_tokens() | end_tokens,
            stop=config.stop,
            budget=config.max_new_tokens,
            decode=self.decode_text,
        )
        drafter = make_drafter(self.target, self.heads, tree, config)
        rule = make_rule(config, generator)
        steps = decode(self.target, drafter, rule, prompt, stopper, config.max_new_tokens, cache)
        try:
            yield from steps
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise MedusaError(
                f"{self.info.device} has too little memory for {len(prompt)} prompt tokens, "
                f"{config.max_new_tokens} new ones and a tree of {drafter.largest_tree} nodes: "
                "shorten the prompt, lower --max-new-tokens or take a smaller --tree"
            ) from error
