"""An engine: a target, the weights of drafters and a tokenizer. A prompt goes in, steps come out.

Owns what is shared by all runs and nothing of any run: settings, cache, drafter and random numbers live in
the generator that ``stream`` returns, or in the ``RunState`` of a conversation. Beside it, ``summary`` adds
up a run and ``chat`` is a conversation.
Imports: acceptance, decoding, drafters, model, text, trees.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import torch

from medusa_core.acceptance import make_rule, sampling_of
from medusa_core.acceptance.logits.processor import processor_of
from medusa_core.config import AUTO_METHOD, GenerationConfig
from medusa_core.decoding import Run, Step, decode_batch, read_prompt, rows_of_run
from medusa_core.drafters import (
    Draft,
    Drafter,
    auto_method,
    draft_of,
    drafters_of,
    fixed_tree,
    make_drafter,
    method,
    method_names,
)
from medusa_core.drafters._options import check_options
from medusa_core.engine.summary import RunSummary
from medusa_core.errors import MedusaError, is_out_of_memory
from medusa_core.model.kv_cache import TreeCache
from medusa_core.model.target import Target
from medusa_core.model.threads import each_within
from medusa_core.text.prompt_check import check_text
from medusa_core.text.stopping import Stopper
from medusa_core.trees.tree import Topology

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class EngineInfo:
    """What is loaded, in words and numbers that a person or a trace file can carry."""

    name: str
    base: str
    heads: str | None  # names of the drafters' weights
    dtype: str
    device: str
    parameters: int
    draft_parameters: int
    dtype_reason: str
    context: int = 0  # positions of a text
    extended: str = ""  # the context in words where it is longer than the trained one
    forward: str = ""  # the forward in words: "forward in C, exact"
    drafts: tuple[str, ...] = ()  # the weights of drafters in words: "5 Medusa heads"
    own_drafts: tuple[str, ...] = ()  # further drafters that the model brings
    notes: tuple[str, ...] = ()  # where the weights' configs contradict their tensors


@dataclass
class RunState:
    """What a conversation keeps between replies: the target's cache and the drafter's own state."""

    cache: TreeCache
    drafter: Drafter | None = None
    config: GenerationConfig | None = None  # the drafter was made for this config
    draft: Draft | None = None  # the weights it was made with
    tokens: list[int] = field(default_factory=list)  # the part of a conversation that the cache holds

    @property
    def nbytes(self) -> int:
        """Bytes of what was read, by the target and by the drafter."""
        return self.cache.nbytes + (0 if self.drafter is None else self.drafter.cache_bytes)

    def forget(self, target: Target) -> None:
        """Begin anew with a cache of ``target``."""
        self.cache, self.drafter = target.new_cache(0), None
        self.tokens.clear()

    def made_for(self, config: GenerationConfig, draft: Draft | None) -> bool:
        """Whether the drafter has the method and the settings of ``config``, and these weights.

        A conversation may go on with other heads on the same target, as those that were just trained.
        """
        before = self.config
        same = before is not None and (before.method, before.options) == (config.method, config.options)
        return same and self.draft is draft


@dataclass(frozen=True, repr=False)
class Engine:
    """A loaded target, its tokenizer, and the loaded weights of drafters by the method's name."""

    target: Target
    drafts: Mapping[str, Draft]
    tokenizer: PreTrainedTokenizerBase | None
    info: EngineInfo
    # Texts of single tokens, at most one for each of the vocabulary: a look-up is quicker than the tokenizer.
    _token_texts: dict[int, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        """What is loaded, in one line: the modules of a model would fill a screen."""
        return f"<Engine: {self.info.name}, {self.info.dtype} on {self.info.device}>"

    def methods(self) -> list[str]:
        """Methods that this engine can run: those without weights, and those whose weights are loaded."""
        return [
            name
            for name in method_names()
            if drafters_of(name)[0] in self.drafts or not method(name).has_weights
        ]

    def with_method(self, config: GenerationConfig) -> GenerationConfig:
        """The settings with a drafter's name in place of "auto"."""
        return config.changed(method=auto_method(self.drafts)) if config.method == AUTO_METHOD else config

    def name_for(self, config: GenerationConfig) -> str:
        """The name of what runs: the model as it was loaded, or with those of its weights that it uses."""
        draft = draft_of(self.drafts, config)
        own = draft is not None and draft.label in self.info.own_drafts
        return f"{self.info.base} + {draft.label}" if draft and own else self.info.name

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt. Raises MedusaError for control characters, or without a tokenizer."""
        self.require_tokenizer()
        return self.tokenize(check_text(text))

    def require_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer. Raises MedusaError when there is none."""
        if self.tokenizer is None:
            raise MedusaError(
                f"{self.info.base} has no tokenizer: put its files beside the weights, or give token ids "
                "with --prompt-ids"
            )
        return self.tokenizer

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        """Token ids of any text, with the tokens that begin one where ``special``. Raises MedusaError."""
        # Too long a prompt is our error to report, with the cause and the fix.
        ids = self.require_tokenizer()(text, add_special_tokens=special, verbose=False)["input_ids"]
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
        text = self.tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return cast("str", text)  # several lists would give several texts

    def token_text(self, token: int) -> str:
        """Text of one token, special tokens by their name."""
        if self.tokenizer is None:
            return str(token)
        if (text := self._token_texts.get(token)) is None:
            text = cast("str", self.tokenizer.decode([token], clean_up_tokenization_spaces=False))
            self._token_texts[token] = text
        return text

    def end_tokens(self) -> frozenset[int]:
        """Ids that end a text, by the model's generation config and the tokenizer."""
        ends = self.target.held.end_tokens
        found = list(ends if isinstance(ends, list) else [ends])
        if self.tokenizer is not None:
            found.append(self.tokenizer.eos_token_id)
        return frozenset(end for end in found if end is not None)

    def fixed_tree(self, config: GenerationConfig) -> Topology | None:
        """The tree of every step of a run with these settings, None where it changes or there is none."""
        return fixed_tree(self.drafts, config)

    def stream(
        self,
        prompt: Sequence[int],
        config: GenerationConfig,
        *,
        state: RunState | None = None,
        end_tokens: frozenset[int] = frozenset(),
        written: int = 0,
    ) -> Generator[Step, None, None]:
        """Decode after ``prompt``: a generator of steps.

        ``state`` holds what was read of the prompt's first tokens in a run before, ``end_tokens`` end the
        text too; the last ``written`` tokens of the prompt belong to the text in which stop strings are
        looked for. Raises MedusaError at the first ``next``, or later for an overflow and when memory runs
        out; a run that began forgets its ``state`` at any error.
        """
        run = self._run(prompt, config, state, end_tokens, written)
        words = (
            f"{len(prompt)} prompt tokens, {config.max_new_tokens} new ones and a tree of "
            f"{run.drafter.largest_tree} nodes: shorten the prompt, lower --max-new-tokens or take a smaller "
            "--tree"
        )
        try:
            for _, step in self._decoded([run], 1, words):
                yield step
        except Exception:
            if state is not None:
                # Behind the committed rows may be NaN, which passes through a mask.
                state.forget(self.target)
            raise

    def new_state(self, prompt: int, config: GenerationConfig) -> RunState:
        """A state with room for a whole run after ``prompt`` tokens, so that its cache never grows.

        Raises MedusaError.
        """
        drafter = make_drafter(self.target, self.drafts, config)
        rows = rows_of_run(self.target, drafter, prompt, config.max_new_tokens)
        return RunState(self.target.new_cache(rows), drafter, config, draft_of(self.drafts, config))

    def read(self, prompt: Sequence[int], config: GenerationConfig, state: RunState) -> None:
        """Read ``prompt`` into ``state`` from where its cache ends, as ``stream`` would.

        Raises MedusaError.
        """
        with self.target.running():
            read_prompt(self._run(prompt, config, state))

    def stream_batch(
        self, prompts: Iterable[Sequence[int]], config: GenerationConfig, size: int
    ) -> Generator[tuple[int, Step], None, None]:
        """Decode after each of ``prompts``, up to ``size`` of them at once: steps with the prompt's number.

        A text gets the tokens that it gets alone, with random numbers of its own. Raises MedusaError.
        """
        numbers: dict[Run, int] = {}

        def runs() -> Iterator[Run]:
            for number, prompt in enumerate(prompts):
                run = self._run(prompt, config)
                numbers[run] = number
                yield run

        words = f"{size} prompts at once with {config.max_new_tokens} new tokens each: lower --batch"
        for run, step in self._decoded(runs(), size, words):
            # A run that has ended gives its memory back.
            yield (numbers[run] if step.finish_reason is None else numbers.pop(run)), step

    def _run(
        self,
        prompt: Sequence[int],
        config: GenerationConfig,
        state: RunState | None = None,
        end_tokens: frozenset[int] = frozenset(),
        written: int = 0,
    ) -> Run:
        """A ``Run`` with its own drafter, rule, stopper and cache. Raises MedusaError."""
        check_options(config)
        if self.target.choice.native and torch.get_default_device().type != "cpu":
            raise MedusaError(
                f"torch's default device is {torch.get_default_device()}, where the C of a model on the CPU "
                'cannot read: torch.set_default_device("cpu")'
            )
        generator = torch.Generator(device=self.target.output_device).manual_seed(config.seed)
        stopper = Stopper(
            end_tokens=frozenset() if config.ignore_eos else self.end_tokens() | end_tokens,
            stop=config.stop,
            budget=config.max_new_tokens,
            decode=self.decode_text,
            before=prompt[len(prompt) - written :],
        )
        drafter = self._drafter(config, state)
        drafter.sample_by(sampling_of(config, generator))
        rule, processor = make_rule(config, generator), processor_of(config)
        cache = state.cache if state is not None else None
        budget = config.max_new_tokens
        return Run(self.target, drafter, rule, prompt, stopper, budget, cache, processor)

    def _decoded(self, runs: Iterable[Run], size: int, words: str) -> Generator[tuple[Run, Step], None, None]:
        """Run the loop on the target's threads; ``words`` name the work where memory runs out."""
        try:
            yield from each_within(self.target.running, decode_batch(self.target, runs, size))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise MedusaError(f"{self.info.device} has too little memory for {words}") from error

    def summary(self, config: GenerationConfig) -> RunSummary:
        """An empty summary for a run with these settings."""
        return RunSummary(self.decode_text, config.stop)

    def _drafter(self, config: GenerationConfig, state: RunState | None) -> Drafter:
        """The drafter of a run: the conversation's, or a new one where settings or weights have changed."""
        draft = draft_of(self.drafts, config)
        if state is not None and state.drafter is not None and state.made_for(config, draft):
            return state.drafter
        drafter = make_drafter(self.target, self.drafts, config)
        if state is not None:
            state.drafter, state.config, state.draft = drafter, config, draft
        return drafter
