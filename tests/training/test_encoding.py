"""Which tokens of an example count, for chat templates of several kinds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors
from training_text import CHATML, chat, embedded_tokenizer, plain, templated, write_lines
from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast

from medusa_core.errors import MedusaError
from medusa_core.training.encoding import Encoder, _pieces
from medusa_core.training.examples import END_OF_TEXT, read_examples
from tools.make_model.tokenizer import build_tokenizer

# Trims, has no generation prompt of its own, closes turns with end-of-text and begins with its own token.
INST = (
    "{% for m in messages %}{% if m.role == 'user' %}<s>[INST] {{ m.content | trim }} [/INST]"
    "{% else %} {{ m.content | trim }} <|endoftext|>{% endif %}{% endfor %}"
)
# Keeps the reasoning of the last answer alone, and opens it for the model.
REASONING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture(scope="module")
def embedded():
    return embedded_tokenizer()


class Characters(PreTrainedTokenizer):
    """A tokenizer written in Python: one token a character, no offsets."""

    model_input_names = ["input_ids"]  # noqa: RUF012

    def __init__(self, **names):
        self._ids = {chr(code): code - 32 for code in range(32, 127)} | {"\n": 95, "?": 31, "<end>": 96}
        super().__init__(eos_token="<end>", unk_token="?", **names)

    @property
    def vocab_size(self):
        return len(self._ids)

    def get_vocab(self):
        return self._ids | self.added_tokens_encoder

    def _tokenize(self, text, **kwargs):
        return list(text)

    def _convert_token_to_id(self, token):
        return self._ids.get(token, self._ids["?"])

    def _convert_id_to_token(self, index):
        return next(token for token, i in self._ids.items() if i == index)

    def convert_tokens_to_string(self, tokens):
        return "".join(tokens)


def answers(tokenizer, example):
    """The runs of tokens that count, decoded."""
    (arrays,) = Encoder(tokenizer).encode([example])
    runs, before = [], False
    for token, trained in zip(arrays.tokens.tolist(), arrays.trained.tolist(), strict=True):
        if trained:
            runs = [*runs[:-1], [*runs[-1], token]] if before else [*runs, [token]]
        before = trained
    return [tokenizer.decode(run) for run in runs]


content = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30).filter(
    lambda text: text.strip() and END_OF_TEXT not in text
)
conversations = st.lists(st.tuples(content, content), min_size=1, max_size=4).map(
    lambda pairs: [turn for pair in pairs for turn in pair]
)


@given(conversations)
def test_exactly_the_answers_count_in_a_chat(embedded, turns):
    found = answers(embedded, chat(*turns))
    wanted = [f" {answer}\n" for answer in turns[1::2]]
    assert found == [*wanted[:-1], wanted[-1] + END_OF_TEXT]


@given(conversations)
def test_a_turn_counts_up_to_the_token_that_ends_it(turns):
    found = answers(templated(CHATML, eos_token="<|im_end|>"), chat(*turns))
    assert found == [answer + "<|im_end|>" for answer in turns[1::2]]


@given(conversations)
def test_a_template_may_trim_and_lack_a_generation_prompt(turns):
    found = answers(templated(INST), chat(*turns))
    assert [text.strip() for text in found] == [
        f"{turn.strip()} {END_OF_TEXT}".strip() for turn in turns[1::2]
    ]


def test_a_document_ends_with_one_end_of_text():
    for tokenizer in (templated(CHATML), templated(CHATML, eos_token="<|im_end|>"), templated(INST)):
        for example in (chat("Hi.", "Hello."), plain("Hello."), plain("Hello." + tokenizer.eos_token)):
            (arrays,) = Encoder(tokenizer).encode([example])
            ends = [int(i) for i in np.flatnonzero(arrays.tokens == tokenizer.eos_token_id)]
            turns = 2 if example.messages and tokenizer.eos_token == "<|im_end|>" else 1
            assert len(ends) == turns
            assert ends[-1] == len(arrays) - 1
            assert arrays.trained[-1]


def test_what_the_user_says_after_the_last_answer_is_left_out(embedded):
    (arrays,) = Encoder(embedded).encode([chat("Hi.", "Hello.", "Bye.")])
    assert embedded.decode(arrays.tokens) == f"User: Hi.\nAssistant: Hello.\n{END_OF_TEXT}"


def test_rewritten_history_makes_a_document_of_each_answer():
    tokenizer = templated(REASONING, eos_token="<|im_end|>")
    example = chat("a", "<think>\nwhy</think>b", "c", "<think>\nso</think>d")
    assert answers(tokenizer, example) == ["why</think>b<|im_end|>", "so</think>d<|im_end|>"]
    (arrays,) = Encoder(tokenizer).encode([example])
    assert tokenizer.decode(arrays.tokens).count("<|im_start|>user\na<|im_end|>") == 2


def test_a_generation_prompt_that_opens_more_than_is_kept():
    found = answers(templated(REASONING, eos_token="<|im_end|>"), chat("a", "no thought"))
    assert found == ["no thought<|im_end|>"]


@pytest.mark.parametrize("template", [CHATML, None], ids=["chatml", "embedded"])
def test_a_conversation_may_begin_with_an_answer_or_a_system_prompt(template, embedded):
    tokenizer = templated(template, eos_token="<|im_end|>") if template else embedded
    pairs = [
        ("assistant", "a"),
        ("user", "b"),
        ("system", "be kind"),
        ("assistant", "sit"),
        ("assistant", "n"),
    ]
    found = answers(tokenizer, chat(*pairs))
    end = "<|im_end|>" if template else "\n"
    assert "".join(found).replace(END_OF_TEXT, "").replace(" ", "") == f"a{end}sit{end}n{end}"


@given(conversations)
def test_a_tokenizer_without_offsets_marks_the_same(turns):
    turns = [turn.encode("ascii", "replace").decode().replace("\r", "?") for turn in turns]
    turns = ["".join(c if c.isprintable() else "?" for c in turn) or "?" for turn in turns]
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}" \
               "{% if add_generation_prompt %}assistant:{% endif %}"  # fmt: skip
    tokenizer = Characters(chat_template=template)
    assert not tokenizer.is_fast
    (arrays,) = Encoder(tokenizer).encode([chat(*turns)])
    counted = tokenizer.decode(arrays.tokens[arrays.trained].tolist(), clean_up_tokenization_spaces=False)
    assert counted == "".join(f" {turn}\n" for turn in turns[1::2]) + "<end>"


def test_without_a_template_a_prompt_is_continued_and_messages_are_refused(tmp_path):
    tokenizer = templated(None)
    file = write_lines(tmp_path / "a.jsonl", {"prompt": "2 + 2 =", "response": " 4"})
    (example,) = read_examples(file)
    (arrays,) = Encoder(tokenizer).encode([example])
    assert tokenizer.decode(arrays.tokens) == f"2 + 2 = 4{END_OF_TEXT}"
    assert tokenizer.decode(arrays.tokens[arrays.trained]) == f" 4{END_OF_TEXT}"
    with pytest.raises(
        MedusaError, match=r"line 1 of chat\.jsonl has messages, and the tokenizer has no chat"
    ):
        Encoder(tokenizer).encode([chat("Hi.", "Hello.")])


def test_a_template_that_refuses_names_the_line():
    with pytest.raises(MedusaError, match=r"line 7 of b\.jsonl: .*roles must alternate.*: change its roles"):
        Encoder(templated(ALTERNATING)).encode(
            [chat("a", "b", ("assistant", "c"), place="line 7 of b.jsonl")]
        )


def test_every_token_of_a_plain_text_counts_but_the_token_it_begins_with():
    raw = embedded_tokenizer().backend_tokenizer
    tokenizer = templated.__wrapped__(None, bos_token="<s>")  # its own: it is changed below
    begin = tokenizer.convert_tokens_to_ids("<s>")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", begin)]
    )
    (arrays,) = Encoder(tokenizer).encode([plain("Hello there.")])
    wanted = raw.encode("Hello there.", add_special_tokens=False).ids
    assert arrays.tokens.tolist() == [begin, *wanted, tokenizer.eos_token_id]
    assert arrays.trained.tolist() == [False, *[True] * (len(wanted) + 1)]
    tokenizer.chat_template = INST  # writes the token itself
    (arrays,) = Encoder(tokenizer).encode([chat("Hi.", "Hello.")])
    assert arrays.tokens.tolist().count(begin) == 1


def test_a_long_text_is_encoded_in_pieces_that_make_it_up(embedded):
    for text in ("word and\n" * 90_000, "word " * 120_000, "x" * 600_000):
        pieces = _pieces(text)
        assert "".join(pieces) == text
        assert max(map(len, pieces)) <= 2**18 < len(text)
        (arrays,) = Encoder(embedded).encode([plain(text)])
        assert embedded.decode(arrays.tokens[:-1]) == text


def test_a_large_vocabulary_needs_larger_integers(embedded):
    assert Encoder(embedded).dtype == np.uint16
    large = PreTrainedTokenizerFast(tokenizer_object=build_tokenizer(["a b"], 300), eos_token=END_OF_TEXT)
    large.add_tokens([f"<{number}>" for number in range(66_000)])
    (arrays,) = Encoder(large).encode([plain("<65999>")])
    assert arrays.tokens.dtype == np.uint32
    assert large.decode(arrays.tokens[:1]) == "<65999>"


def test_a_tokenizer_without_an_end_is_refused():
    with pytest.raises(MedusaError, match="names no end-of-text token: set eos_token"):
        Encoder(PreTrainedTokenizerFast(tokenizer_object=build_tokenizer(["a"], 300)))
