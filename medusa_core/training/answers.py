"""Self-distillation, first half: text by the model itself, for heads to learn from (paper §2.3.2).

A seed is a dialogue whose user turns the model answers one after the other, or the beginning of a text that
it continues. Answers are written in batches at a low temperature, all kinds of text together, since many rows
take hardly longer than a few. They go into one JSON-lines file a kind, which every recipe reads. Each line
names its batch, so that a run that is resumed drops a half-written batch.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from medusa_core.acceptance.sampling import COLDEST, not_a_number
from medusa_core.errors import MedusaError
from medusa_core.model.loaded_model import cache_argument
from medusa_core.text.chat_template import chat_ids
from medusa_core.training.config import SelfDistillConfig
from medusa_core.training.corpus import load_recipe
from medusa_core.training.encoding import end_token
from medusa_core.training.examples import Example, data_files, read_examples
from medusa_core.training.run_folder import cut_lines, read_record, replace_file, write_record

SHORTEST, LONGEST = 8, 96  # tokens of a text's beginning that is handed to the model
INVENTED = "invented"  # the kind of text whose beginnings the model makes up
INVENTED_TEMPERATURE = 1.0  # of those beginnings, so that they differ
PROGRESS = ".progress"  # how many batches are whole
MOST_SEEDS = 50_000  # prompts of a kind of text held in memory
_AT_ONCE = 8  # tokens of each row that are written without a pause: about half a second on two cores
_BARE = Example("", (), paired=False, place="")  # nothing to begin with: the model makes it up


@dataclass(frozen=True)
class Seeds:
    """What answers of one kind begin with."""

    kind: str
    examples: list[Example]
    weight: float


def load_seeds(config: SelfDistillConfig) -> list[Seeds]:
    """Seeds from ``--prompts``, else from the recipe's training text, else none but the model's own.

    Raises MedusaError when a file cannot be read.
    """
    if config.prompts:
        files = data_files(Path(config.prompts))
        read = ((file.name.split(".")[0], list(read_examples(file, answered=False))) for file in files)
        return [Seeds(kind, examples, float(len(examples))) for kind, examples in read]
    try:
        sources = load_recipe(Path(config.recipe), Path(config.data_root))
    except MedusaError:  # on most machines the texts are not there
        return [Seeds(INVENTED, [_BARE], 1.0)]
    return [
        Seeds(source.kind, _some(source.examples(heldout=False)), cast("float", source.weight))
        for source in sources  # a recipe's sources, so that each has a weight
    ]


Answers = Generator[int, None, list[dict]]  # yields tokens as they are written, returns the records


class Writer:
    """Writes answers batch by batch; knows from its files how far it is."""

    def __init__(
        self,
        config: SelfDistillConfig,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        folder: Path,
    ) -> None:
        """Raises MedusaError when seeds cannot be read, or model and tokenizer have no room for answers."""
        self._config = config
        self._model, self._cache = model, cache_argument(model)
        self._tokenizer = tokenizer
        self._folder = folder
        self._seeds = load_seeds(config)
        self._end = end_token(tokenizer)
        named = model.generation_config.eos_token_id
        ends = {self._end, *(named if isinstance(named, list) else [named])} - {None}
        self._ends = torch.tensor(list(ends), device=model.device)
        chats = any(example.messages for seeds in self._seeds for example in seeds.examples)
        if chats and not tokenizer.chat_template:
            raise MedusaError(
                "the prompts are for dialogues, but the tokenizer has no chat template: give plain texts"
            )
        self._context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        if self._context and config.answer_tokens >= self._context:
            raise MedusaError(
                f"answers of {config.answer_tokens} tokens leave no room for a prompt, the model's context "
                f"holds {self._context}: lower --answer-tokens"
            )
        folder.mkdir(parents=True, exist_ok=True)
        self.batches = -(-config.answers // config.answer_batch)
        self.done = 0  # of them are whole

    def write(self) -> Iterator[int]:
        """Write what is missing; yields the tokens written since the last yield, and 0 after each batch."""
        self.done = self._resume()
        for index in range(self.done, self.batches):
            rng = np.random.default_rng([self._config.seed, index])
            torch.manual_seed(int(rng.integers(2**31)))
            rows = min(self._config.answer_batch, self._config.answers - index * self._config.answer_batch)
            weights = np.asarray([seeds.weight for seeds in self._seeds])
            picks = rng.choice(len(self._seeds), size=rows, p=weights / weights.sum())
            picked = [self._seeds[which] for which in picks]
            chosen = [(seeds.kind, seeds.examples[rng.integers(len(seeds.examples))]) for seeds in picked]
            chosen.sort(key=lambda one: one[1].text is None)  # texts first
            records = yield from self._answer([example for _, example in chosen], rng)
            for kind in sorted({kind for kind, _ in chosen}):
                own = [record for (its, _), record in zip(chosen, records, strict=True) if its == kind]
                with open(self._folder / f"{kind}.jsonl", "a", encoding="utf-8") as file:
                    file.writelines(json.dumps({"batch": index, **record}) + "\n" for record in own if record)
            self.done = index + 1
            write_record(self._folder / PROGRESS, {"batches": self.done})
            yield 0

    def _answer(self, examples: list[Example], rng: np.random.Generator) -> Answers:
        """A record of each example, texts before dialogues; it is empty where the text is blank."""
        texts = [example.text for example in examples if example.text is not None]
        chats = [list(example.user_turns) for example in examples if example.text is None]
        lengths = rng.integers(SHORTEST, LONGEST + 1, size=len(texts)).tolist()
        openings = [self._ids(text, length) for text, length in zip(texts, lengths, strict=True)]
        continued = yield from self._continue(openings, int(rng.integers(SHORTEST, LONGEST // 2)))
        dialogues = yield from self._converse(chats)
        return continued + dialogues

    def _continue(self, openings: list[list[int]], invented: int) -> Answers:
        """Texts that begin with the openings; an empty one becomes ``invented`` tokens drawn freely."""
        begin = self._tokenizer.bos_token_id
        begin = self._end if begin is None else begin
        rows = [[begin, *opening] for opening in openings]
        bare = [row for row in rows if len(row) == 1]
        drawn = yield from self._generate(bare, invented, INVENTED_TEMPERATURE)
        for row, tokens in zip(bare, drawn, strict=True):
            row.extend(tokens)
        new = yield from self._generate(rows, self._config.answer_tokens, self._config.temperature)
        texts = [self._text(row[1:] + tokens) for row, tokens in zip(rows, new, strict=True)]
        yield sum(len(opening) + 1 for opening in openings)  # they are trained on too
        return [{"text": text} if text.strip() else {} for text in texts]

    def _converse(self, turns: list[list[str]]) -> Answers:
        """Dialogues in which the model answers each user's turn, knowing its earlier answers."""
        dialogues: list[list[dict]] = [[] for _ in turns]
        for number in range(max(map(len, turns), default=0)):
            open_ones = [i for i, all_turns in enumerate(turns) if number < len(all_turns)]
            for i in open_ones:
                dialogues[i].append({"role": "user", "content": turns[i][number]})
            rows = [chat_ids(self._tokenizer, dialogues[i]) for i in open_ones]
            said = yield from self._generate(rows, self._config.answer_tokens, self._config.temperature)
            for i, new in zip(open_ones, said, strict=True):
                dialogues[i].append({"role": "assistant", "content": self._text(new).strip() or "…"})
        return [{"messages": dialogue} for dialogue in dialogues]

    def _generate(
        self, rows: Sequence[list[int]], limit: int, temperature: float
    ) -> Generator[int, None, list[list[int]]]:
        """What the model writes after each row, cut at end-of-text. Rows are padded on the left.

        Yields the new tokens of all rows after every ``_AT_ONCE`` of each: others may wait for this thread.
        """
        if not rows:
            return []
        width = max(map(len, rows))
        if self._context:
            width = min(width, self._context - limit)
        kept = [row[-width:] for row in rows]
        device = self._model.device
        ids = torch.tensor([[self._end] * (width - len(row)) + row for row in kept], device=device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in kept], device=device)
        cache, counted = None, 0
        sampling = {"do_sample": True, "temperature": max(temperature, COLDEST), "top_k": 0, "top_p": 1.0}
        generate: Any = self._model.generate  # a mixin of every model that the type does not name
        while True:
            try:
                with torch.inference_mode():
                    output = generate(
                        ids,
                        attention_mask=mask,
                        **{self._cache: cache},
                        max_new_tokens=min(_AT_ONCE, width + limit - ids.shape[1]),
                        pad_token_id=self._end,
                        return_dict_in_generate=True,
                        **(sampling if temperature > 0 else {"do_sample": False}),
                    )
            except RuntimeError as error:
                if "probability tensor" not in str(error):
                    raise
                raise not_a_number() from error
            ids, cache = output.sequences, getattr(output, self._cache)
            new = ids[:, width:]
            lengths = (torch.isin(new, self._ends).cumsum(1) == 0).sum(1)
            written = int(lengths.sum())
            yield written - counted
            counted = written
            if ids.shape[1] >= width + limit or bool((lengths < new.shape[1]).all()):
                return [row[:length] for row, length in zip(new.tolist(), lengths.tolist(), strict=True)]
            mask = torch.nn.functional.pad(mask, (0, ids.shape[1] - mask.shape[1]), value=1)

    def _ids(self, text: str, length: int) -> list[int]:
        text = text[: length * 16]  # far more characters than so many tokens have
        return self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"][:length]

    def _text(self, tokens: list[int]) -> str:
        text = self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return cast("str", text)  # several lists would give several texts

    # --- the files

    def _resume(self) -> int:
        """The batch to go on with; what an interrupted one has left behind is dropped."""
        note = self._folder / PROGRESS
        done: Any = 0
        if note.exists():
            way_out = f"delete {self._folder}, and the answers are written anew"
            done = read_record(note, way_out).get("batches")
            if type(done) is not int or done < 0:
                raise MedusaError(f"{note} says {done!r:.40} batches: {way_out}")
        for file in sorted(self._folder.glob("*.jsonl")):
            kept = cut_lines(file, "batch", done - 1, f"take the line out, or delete {self._folder}")
            replace_file(file, kept)
        return done


def _some(examples: Iterator[Example]) -> list[Example]:
    """The examples, or some thousands of them from all over the text where there are more."""
    kept = list(examples)
    stride = -(-len(kept) // MOST_SEEDS)
    return kept[::stride]
