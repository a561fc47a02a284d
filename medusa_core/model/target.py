"""The target model: a transformers causal LM that can read a prompt and verify a tree.

``Target.forward`` computes its rows: transformers' model of the same weights, or the C where
``choose_forward`` allows it. Nothing in the model is patched, except while a step is captured, and nothing is
stored on it, so runs on one model cannot meet. What a model must be for that is read off its config and its
forward, and tried out when it loads where no test has run its family. Knows nothing about heads, rules or
text. Medusa paper §2.1.2.

N nodes · V vocabulary · d hidden size · L committed rows
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from medusa_core.model.context import WINDOW, LongerContext, context_of, inside_window, why_not_longer
from medusa_core.model.features import LAST_HIDDEN, NO_FEATURES, Features
from medusa_core.model.forward import Forward, ForwardChoice, Outputs, Part, Rows
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.loaded_model import LoadedModel, require_causal, require_tree_equals_branch
from medusa_core.model.masks import SLIDING, LayerMasks, layer_kinds
from medusa_core.model.recording import forward_with_features
from medusa_core.model.threads import cpu_threads
from medusa_core.model.transformers_forward import TransformersForward
from medusa_core.trees.origin import Origin
from medusa_core.trees.token_tree import TokenTree

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from medusa_core.llama.library import Library
    from medusa_core.model.captured_forward import Capture

PREFILL_CHUNK = 512  # rows of the prompt a forward, which bounds the mask and the attention scores


class Target:
    """A loaded model, its dtype and the context it can hold. Raises MedusaError for models it cannot use."""

    def __init__(self, model: PreTrainedModel | LoadedModel, longer: LongerContext | None = None) -> None:
        """``longer`` is the context that ``stretch`` has set in the model's config, or a window."""
        self.held = model if isinstance(model, LoadedModel) else LoadedModel(model)
        config = self.config = self.held.config
        require_causal(config)
        self.masks = LayerMasks.of(config)
        self.longer = longer
        context = context_of(config)
        if longer is not None and longer.how == WINDOW:
            self.masks = replace(self.masks, kinds=frozenset({SLIDING}), window=longer.trained)
            context = replace(context, length=longer.length)
        self.forward: Forward = TransformersForward(self.held, self.masks)
        self.choice = ForwardChoice(why="no other was asked for")
        self.library: Library | None = None  # the forward in C, also for models that draft
        self.capture: Capture | None = None  # captures work on its device, also that of drafters
        self.threads: int | None = None  # threads of a run, None: the usual number
        if not self.held.is_proven:
            if longer is None:
                context = inside_window(context, self.masks, config.model_type)
            require_tree_equals_branch(self)
        self.context: int = context.length
        self.context_note: str = context.why

    @property
    def model(self) -> PreTrainedModel:
        """transformers' model, for what only it can do; where it was not loaded yet, this takes seconds."""
        return self.held.model

    @property
    def device(self) -> torch.device:
        """The device that token ids go to."""
        return self.held.device

    @property
    def output_device(self) -> torch.device:
        """Where logits and hidden states come from: the device of the LM head, and of Medusa heads."""
        return self.held.output_device

    @property
    def dtype(self) -> torch.dtype:
        return self.held.dtype

    @property
    def vocab_size(self) -> int:
        """V, the rows of the LM head."""
        return self.held.vocab_size

    @property
    def context_words(self) -> str:
        """The context and why it ends there, in words for where a text is too long."""
        return f"the context holds {self.context}" + (
            f", since {self.context_note}" if self.context_note else ""
        )

    @property
    def context_fix(self) -> str:
        """The fix for a text that is too long, other than shortening it; empty where there is none."""
        return "a longer --context" if self.longer is not None or not why_not_longer(self.config) else ""

    @property
    def layer_kinds(self) -> list[str]:
        if self.longer is not None and self.longer.how == WINDOW:
            return [SLIDING] * self.config.num_hidden_layers
        return layer_kinds(self.config, self.config.num_hidden_layers)

    @property
    def threads_used(self) -> int:
        return self.threads or torch.get_num_threads()

    def on_its_threads(self) -> AbstractContextManager[None]:
        """A context in which torch uses the threads fastest for this model (``cpu_threads``)."""
        return cpu_threads(self.threads)

    def running(self) -> AbstractContextManager[None]:
        """A context in which ``forward`` has the threads fastest for this model (``cpu_threads``)."""
        return cpu_threads(self.threads, self.library if self.choice.native else None)

    def new_cache(self, slots: int) -> TreeCache:
        return self.forward.new_cache(slots)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights, packed copies of them included."""
        return self.held.nbytes + self.forward.copied_bytes

    def cache_bytes(self, slots: int) -> int:
        """Bytes of the cache of a run of so many rows."""
        return self.forward.cache_bytes(slots)

    def token_tree(
        self,
        tokens: Sequence[int],
        parents: Sequence[int],
        origins: Sequence[Origin],
        draft_p: Sequence[float] | None = None,
    ) -> TokenTree:
        """A tree for ``verify``, for drafters that know their tokens on the host."""
        return TokenTree.from_lists(tokens, parents, origins, draft_p, self.device)

    def prefill(
        self, tokens: Sequence[int], cache: TreeCache, features: Features = NO_FEATURES
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read and commit tokens [T]: logits [V] of the last, features [1, F·d] of it or [T, F·d] of all."""
        read: list[torch.Tensor] = []
        for start in range(0, len(tokens), PREFILL_CHUNK):
            part = tokens[start : start + PREFILL_CHUNK]
            ((logits, states),) = self._run([Part(Rows.of_text(part, self.device, 1, features), cache)])
            cache.commit(range(len(part)))
            read = [*read, states] if features.all_rows else [states[-1:]]
        return logits[-1], torch.cat(read)

    def prefill_all(
        self, texts: Sequence[Sequence[int]], caches: Sequence[TreeCache], features: Features = NO_FEATURES
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """``prefill`` of several texts; short ones share a forward."""
        if len(texts) == 1 or max(map(len, texts)) > PREFILL_CHUNK:
            return [self.prefill(*one, features) for one in zip(texts, caches, strict=True)]
        rows = (Rows.of_text(text, self.device, 1, features) for text in texts)
        read = self._run([Part(*one) for one in zip(rows, caches, strict=True)])
        for text, cache in zip(texts, caches, strict=True):
            cache.commit(range(len(text)))
        return [(logits[-1], states if features.all_rows else states[-1:]) for logits, states in read]

    def verify(
        self, tree: TokenTree, cache: TreeCache, features: Features = NO_FEATURES
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One forward over all nodes: logits [N, V] and features [N, F·d]. Commits nothing."""
        return self._run([Part(Rows.of_tree(tree, self.device, features), cache)])[0]

    def verify_all(
        self, trees: Sequence[TokenTree], caches: Sequence[TreeCache], features: Features = NO_FEATURES
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """``verify`` of several sequences, each with its tree and cache; where possible in one forward."""
        rows = (Rows.of_tree(tree, self.device, features) for tree in trees)
        return self._run([Part(*one) for one in zip(rows, caches, strict=True)])

    def read(
        self, tokens: Sequence[int], features: Features = LAST_HIDDEN, *, last: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [T, V] and features [T, F·d] of a whole text, without a cache, for measurements.

        ``last`` limits the logits to so many rows at the end where the model can do that, 0 keeps every row.
        """
        ids = torch.tensor([list(tokens)], device=self.device)
        read = forward_with_features(
            self.model,
            features,
            input_ids=ids,
            attention_mask=self._window_mask(ids.shape[1]),
            use_cache=False,
            **({"logits_to_keep": last} if self.held.limits_head else {}),
        )
        logits, states = read.of()
        place = self.output_device
        return _side_by_side((logits.to(place), [state.to(place) for state in states]))

    def _window_mask(self, length: int) -> Any:
        """The mask of a text read without a cache, where the model does not know of its window."""
        if self.longer is None or self.longer.how != WINDOW or length <= self.longer.trained:
            return None
        depths = torch.arange(length, device=self.device)
        allowed = torch.ones(length, length, dtype=torch.bool, device=self.device).tril()
        return self.masks.build([(allowed, depths, 0)], self.dtype)

    def _run(self, parts: Sequence[Part]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Logits and features of each sequence, behind the committed rows of its cache."""
        for part in parts:
            part.cache.require(len(part.rows.tokens))
        return [_side_by_side(outputs) for outputs in self.forward(parts)]


def _side_by_side(outputs: Outputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits, and hidden states [N, d] as features [N, F·d]."""
    logits, states = outputs
    if len(states) == 1:
        return logits, states[0]  # the usual case, without a copy
    return logits, torch.cat(states, dim=-1) if states else logits.new_empty(len(logits), 0)
