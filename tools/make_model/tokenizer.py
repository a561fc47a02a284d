"""Byte-level BPE tokenizer for a small model, built with ``tokenizers``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import project_folder, read_text
from medusa_core.training.examples import END_OF_TEXT

# Words with their leading space, single digits (so that sums are spelled the same way everywhere), runs
# of punctuation, line breaks.
_PIECES = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+"

_CHAT_TEMPLATE = "assets/model/chat_template.jinja"  # the embedded model's; the training text has its form


def build_tokenizer(documents: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train a byte-level BPE of ``vocab_size`` tokens; every byte is a token, so any text encodes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Write the files that ``AutoTokenizer.from_pretrained`` reads.

    A prompt then starts with end-of-text, as every document of the training text does.
    """
    end = tokenizer.token_to_id(END_OF_TEXT)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A", special_tokens=[(END_OF_TEXT, end)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TEXT,
        bos_token=END_OF_TEXT,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
        chat_template=read_text(project_folder() / _CHAT_TEMPLATE),
    ).save_pretrained(folder)


def read_tokenizer(file: Path) -> Tokenizer:
    """An existing tokenizer. Raises MedusaError if it is damaged or has no end-of-text."""
    try:
        tokenizer = Tokenizer.from_str(read_text(file))
    except Exception as error:  # tokenizers raises plain Exception for what it cannot read
        raise MedusaError(
            f"cannot read the tokenizer {file} ({reason_of(error)}): put back the one that pretraining made"
        ) from error
    if tokenizer.token_to_id(END_OF_TEXT) is None:
        raise MedusaError(
            f"the tokenizer {file} has no token {END_OF_TEXT}: name one made by pretraining, or leave it out"
        )
    return tokenizer
