"""``python -m tools.make_model.repeats``: pairs that teach a base not to repeat a sentence.

The answers are greedy texts of the base (``train self-distill --train nothing --temperature 0``). Where one
repeats a sentence, the pair is that sentence, and others that the base itself might say in its place.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tqdm import tqdm
from transformers import DynamicCache, LlamaForCausalLM

from medusa_core.cli.flags import add_settings, read_settings
from medusa_core.cli.main import OneLineParser, exit_code_of
from medusa_core.config import MOST_SEED, setting
from medusa_core.errors import MedusaError
from medusa_core.training.examples import END_OF_TEXT, read_examples
from medusa_core.training.run_folder import replace_file
from tools.make_model.preferences import Pair
from tools.make_model.teachers import read_llama
from tools.make_model.tokenizer import read_tokenizer
from tools.make_model.writing import SENTENCE, first_repeat, said_by

_TRIES = 12  # sentences drawn for each repeat
_KEPT = 3  # sentences kept of these, those that the base finds likeliest
_TEMPERATURE = 0.8
_MOST_TOKENS = 20  # longest sentence


@dataclass(frozen=True)
class Settings:
    """What may be set beside the files."""

    seed: int = setting(0, "seed of the base's alternatives", low=0, high=MOST_SEED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pairs; return the exit code."""
    args = build_parser().parse_args(arguments)
    return exit_code_of(lambda: _write(args))


def build_parser() -> argparse.ArgumentParser:
    """The flags of the command."""
    parser = OneLineParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of the base that wrote the answers")
    parser.add_argument("--answers", type=Path, required=True, help="folder of its greedy texts, as .jsonl")
    parser.add_argument("--out", type=Path, required=True, help="file of the pairs")
    add_settings(parser, Settings)
    return parser


def _write(args: argparse.Namespace) -> None:
    torch.manual_seed(read_settings(Settings, args).seed)
    model = read_llama(args.model).eval()
    tokenizer = read_tokenizer(Path(args.model) / "tokenizer.json")
    # Dialogues are left out, since somebody else wrote a part of their turns.
    texts = [example.text for example in read_examples(args.answers) if example.text is not None]
    if not texts:
        raise MedusaError(f"{args.answers} holds no texts: name the folder that self-distill wrote")
    pairs = [pair for text in tqdm(texts) if (pair := pair_of(text, model, tokenizer))]
    replace_file(args.out, "".join(json.dumps(asdict(pair)) + "\n" for pair in pairs).encode())
    print(f"{len(pairs)} pairs of {len(texts)} texts: {args.out}")


def pair_of(text: str, model: LlamaForCausalLM, tokenizer: Tokenizer) -> Pair | None:
    """The first repeat of a text and what else might stand there; None if either is missing."""
    found = first_repeat(text)
    if found is None:
        return None
    begin, end, known = found
    encoded = tokenizer.encode(text, add_special_tokens=False)
    # The token that ends the previous sentence, such as .", may overlap this one: it stays before.
    inside = [number for number, (left, _) in enumerate(encoded.offsets) if begin <= left < end]
    if not inside:
        return None
    before, refused = encoded.ids[: inside[0]], encoded.ids[inside[0] : inside[-1] + 1]
    others = {
        tuple(tokens): likely
        for tokens, likely in _drawn(before, model, tokenizer)
        if _says_something_new(tokenizer.decode(tokens), known)
    }
    wanted = sorted(others, key=lambda tokens: -others[tokens])[:_KEPT]
    if not wanted:
        return None
    return Pair(before, refused[:_MOST_TOKENS], [list(tokens) for tokens in wanted])


def _says_something_new(text: str, known: set[str]) -> bool:
    """Whether it is the end of the text, or a whole sentence that is not known."""
    sentence = SENTENCE.match(text)
    return not text or (
        sentence is not None and " " in (said := said_by(sentence.group())) and said not in known
    )


@torch.inference_mode()
def _drawn(
    before: list[int], model: LlamaForCausalLM, tokenizer: Tokenizer
) -> Iterator[tuple[list[int], float]]:
    """Sentences drawn after these tokens, with their mean log-likelihood per token."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    cache = DynamicCache()
    logits = model(torch.tensor([[end, *before]]), cache=cache).logits[:, -1].repeat(_TRIES, 1)
    cache.batch_repeat_interleave(_TRIES)
    columns: list[torch.Tensor] = []
    scores: list[torch.Tensor] = []
    for _ in range(_MOST_TOKENS):
        tokens = torch.multinomial((logits / _TEMPERATURE).softmax(-1), 1)
        columns.append(tokens)
        scores.append(logits.log_softmax(-1).gather(1, tokens))
        logits = model(tokens, cache=cache).logits[:, -1]
    for row, likely in zip(torch.cat(columns, 1).tolist(), torch.cat(scores, 1), strict=True):
        length = _sentence_tokens(row, end, tokenizer)
        yield row[:length], float(likely[:length].mean())


def _sentence_tokens(row: list[int], end: int | None, tokenizer: Tokenizer) -> int:
    """How many tokens the first sentence has; an end-of-text counts as a sentence of one token."""
    for length in range(1, len(row) + 1):
        if row[length - 1] == end or SENTENCE.match(tokenizer.decode(row[:length])):
            return length
    return len(row)


if __name__ == "__main__":
    sys.exit(main())
