"""Bad input ends in one clear line, exit code 2 or a visible message, and the program goes on.

The tables are in ``bad_tables`` and ``bad_texts``. Each row goes through Python, where the error comes from;
through the commands and the page go rows that differ in where they fail, and with ``-m slow`` all.
"""

from __future__ import annotations

import json
import re

import page_runs
import pytest
from bad_answers import CPU, refused, says, told, training
from bad_input import Workshop, cut, larger_tokenizer
from bad_tables import BASES, HEAD_ROWS, Row
from bad_texts import FLAGS, PROMPTS, BadText
from page_runs import problem_of, run_chat, run_decode

from medusa_core import Conversation, MedusaError, generate, load
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.engine.chat import Message
from ui.records.conversation import ChatState
from ui.records.settings import Selection
from ui.records.updates import StopFlag
from ui.runs.session import Session

LOADS = BASES | HEAD_ROWS
SETTINGS = page_runs.SETTINGS | {"max_new_tokens": 8}


# One for each place: no folder, config, weights, tokenizer, heads, their adapter, the run, the text.
EVERYWHERE = {
    "no such folder", "a config that is not JSON", "weights cut off", "a tokenizer that is not JSON",
    "weights that are not numbers", "heads cut off", "an adapter for another width", "a tree for more heads",
    "empty", "too long", "an escape sequence", "half an emoji", "a letter of another tokenizer",
}  # fmt: skip


def _row(name):
    """A row of a table that goes through a further front."""
    return pytest.param(name, marks=() if name in EVERYWHERE else pytest.mark.slow)


def decode(session, prompt, chosen=None):
    return list(run_decode(session, prompt, SETTINGS | {"selection": chosen or Selection()}, StopFlag()))


def new_tokens(updates):
    """Of a run that went well."""
    return updates[-1].trace["output"]["new_tokens"]


# --- files, through every command --------------------------------------------------------------------------


ENGINE_COMMANDS = {
    "generate": lambda shop, named: ["generate", "abc", "--max-new-tokens", 8, *CPU, *named.flags()],
    "bench": lambda shop, named: [
        "bench", "--prompts", shop.engine / "text.jsonl", "--limit", 1, "--runs", 1, "--max-new-tokens", 8,
        *CPU, *named.flags(),
    ],
    "chat": lambda shop, named: ["chat", *CPU, *named.flags()],
    "calibrate": lambda shop, named: [
        "calibrate", "--no-latency", "--prompts", shop.engine / "text.jsonl", "--limit", 1,
        "--max-new-tokens", 8, "--out", shop.out / "found.json", *CPU, *named.flags(),
    ],
    "heads check": lambda shop, named: ["heads", "check", *CPU, *named.flags()],
}  # fmt: skip
BASE_COMMANDS = ENGINE_COMMANDS | {
    "train": lambda shop, named: training(shop, "--model", named.model),
    "fit": lambda shop, named: ["fit", "--plan", "--model", named.model, "--out", shop.out / "fit", *CPU],
    "heads init": lambda shop, named: [
        "heads", "init", "--model", named.model, "--num-heads", 1, "--out", shop.out / "fresh",
    ],
    "convert": lambda shop, named: [
        "convert", shop.engine / "heads", shop.out / "converted", "--to", "v2", "--model", named.model,
    ],
}  # fmt: skip
HEAD_COMMANDS = ENGINE_COMMANDS | {
    "train": lambda shop, named: training(shop, "--model", named.model, "--start", named.heads),
    "convert": lambda shop, named: [
        "convert", named.heads, shop.out / "converted", "--to", "v1", "--model", named.model,
    ],
}  # fmt: skip


ALIKE = [name for name in ENGINE_COMMANDS if name != "generate"]  # they load an engine first thing


def commands_for(name, row):
    """The commands that a row goes through: beside ``generate`` one of ``ALIKE``, which they take in turn."""
    commands = BASE_COMMANDS if name in BASES else HEAD_COMMANDS
    left_out = set() if row.only_runs_fail else {*ALIKE} - {ALIKE[list(LOADS).index(name) % len(ALIKE)]}
    return {which: argv for which, argv in commands.items() if which not in left_out}


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", LOADS)
def test_bad_files_end_every_command_with_one_line(command, shop, subtests, name):
    row: Row = LOADS[name]
    named = row.build(shop)
    for which, argv in commands_for(name, row).items():
        with subtests.test(command=which):
            code, out, err = command(argv(shop, named), typed="abc\n/quit\n")
            assert not shop.mark.exists()  # code in a file was not executed
            if which in row.spared:
                assert code == 0 or (code == 2 and err.splitlines()[-1].startswith("error: "))
            elif which == "chat" and code == 0:  # a run that fails is told, and the chat goes on
                says(told(err), row)
            else:
                refused((code, out, err), row)


@pytest.mark.sample(30)
@pytest.mark.parametrize("name", LOADS)
def test_bad_files_are_an_error_of_ours_in_python_too(shop, name):
    row: Row = LOADS[name]
    named = row.build(shop)

    def use():
        engine = load(named.model, heads=named.heads, dtype="float32", device="cpu")
        assert row.only_runs_fail
        generate(engine, "abc")

    with pytest.raises(MedusaError) as caught:
        use()
    says(str(caught.value), row)


@pytest.mark.parametrize("name", [_row(name) for name in LOADS])
def test_bad_files_are_shown_in_the_app(shop, name):
    row: Row = LOADS[name]
    named = row.build(shop)
    session = Session(LoadConfig(named.model, named.heads, dtype="float32", device="cpu"))
    says(problem_of(decode(session, "abc")), row)
    assert not session.busy


@pytest.fixture(scope="module")
def good_session(shop_engine):
    return Session(LoadConfig(str(shop_engine), dtype="float32", device="cpu"))


@pytest.mark.parametrize("name", [_row(name) for name in LOADS])
def test_a_bad_choice_of_a_model_leaves_the_one_in_use(good_session, shop, name):
    row: Row = LOADS[name]
    named = row.build(shop)
    wish = LoadConfig(named.model, named.heads, dtype="float32")
    *_, last = good_session.models.choose(wish, Selection(), StopFlag())
    if row.only_runs_fail:
        assert not last.problem
        says(problem_of(decode(good_session, "abc", last.selection)), row)
    else:
        assert last.problem
        assert last.status.endswith("Still using engine.")
        says(re.sub(r"“(\w+)”", r"--\1", last.status), row)  # the page calls flags by its fields' names
    assert new_tokens(decode(good_session, "abc")) == 8


def test_the_app_decodes_once_the_files_are_whole_again(shop):
    folder = shop.base()
    whole = (folder / "model.safetensors").read_bytes()
    cut(folder / "model.safetensors", 0.5)
    session = Session(LoadConfig(str(folder), dtype="float32", device="cpu"))
    assert "is damaged or cut off" in problem_of(decode(session, "abc"))
    assert "is damaged or cut off" in session.load()
    (folder / "model.safetensors").write_bytes(whole)
    assert new_tokens(decode(session, "abc")) == 8


# --- prompts -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide_engine(shop_engine, tmp_path_factory):
    """The engine with a tokenizer that knows a letter the model does not."""
    wide = Workshop(shop_engine, tmp_path_factory.mktemp("wide"))
    folder = wide.base()
    larger_tokenizer(wide, folder)
    return folder


@pytest.fixture(scope="module")
def session(wide_engine):
    return Session(LoadConfig(str(wide_engine), dtype="float32", device="cpu"))


@pytest.mark.parametrize("name", [_row(name) for name in PROMPTS])
def test_a_bad_prompt_is_refused_and_a_chat_goes_on(command, wide_engine, name):
    row = PROMPTS[name]
    common = ["--model", wide_engine, "--max-new-tokens", 8, *CPU]
    refused(command(["generate", row.text, *common]), row)
    refused(command(["generate", "-", *common], typed=row.text), row)
    if row.text:  # a chat lets an empty line pass
        code, out, err = command(["chat", *common], typed=f"{row.text}\nabc\n")
        assert code == 0
        assert out.strip()  # the reply to the message after it
        says(told(err), row)


@pytest.mark.parametrize("name", [_row(name) for name in PROMPTS])
def test_a_bad_prompt_in_a_file_is_refused_with_its_line(command, wide_engine, tmp_path, name):
    row = PROMPTS[name]
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(json.dumps({"prompt": text}) for text in ("abc", row.text)), encoding="utf-8")
    for words in (["bench"], ["calibrate", "--out", tmp_path / "found.json"]):
        result = command([*words, "--prompts", file, "--model", wide_engine, *CPU])
        refused(result, row)
        assert result[2].startswith(f"error: line 2 of {file}: ")


@pytest.fixture(scope="module")
def engine_of_wide(wide_engine):
    return load(str(wide_engine), dtype="float32", device="cpu")


@pytest.mark.parametrize("name", PROMPTS)
def test_a_bad_prompt_is_an_error_of_ours_in_python(engine_of_wide, name):
    row = PROMPTS[name]
    with pytest.raises(MedusaError) as caught:
        generate(engine_of_wide, row.text)
    says(str(caught.value), row)


@pytest.mark.parametrize("name", [_row(name) for name in PROMPTS])
def test_a_bad_prompt_is_told_in_the_app(session, name):
    row = PROMPTS[name]
    settings = SETTINGS | {"selection": Selection()}
    says(problem_of(decode(session, row.text)), row)
    assert new_tokens(decode(session, "abc")) == 8
    says(problem_of(list(run_chat(session, row.text, ChatState(), settings, StopFlag()))), row)
    assert new_tokens(list(run_chat(session, "abc", ChatState(), settings, StopFlag()))) == 8


def test_other_texts_are_prompts(command, wide_engine):
    for text in ("a\tb\r\nc", "a\u2028b", "\u200da\ufeff", "日本語", "😀"):
        assert command(["generate", text, "--model", wide_engine, "--max-new-tokens", 2, *CPU])[0] == 0


def test_system_prompts_are_looked_at_too(command, wide_engine):
    flags = ["chat", "--model", wide_engine, "--max-new-tokens", 4, *CPU]
    row = BadText("", r"the system prompt has the control character U\+0007 at position 2", "remove it")
    refused(command([*flags, "--system", "a\x07"]), row)
    code, out, err = command(flags, typed="/system a\x07\nabc\n")
    assert (code, bool(out.strip())) == (0, True)
    says(told(err), row)


def test_what_the_model_writes_may_go_on_as_context(shop, monkeypatch):
    """Control characters are refused where a person writes them, not where a model has said them."""
    engine = load(str(shop.engine), dtype="float32", device="cpu")
    conversation = Conversation(engine)
    conversation.messages = [Message("user", "ab"), Message("assistant", "c\x07d")]
    assert conversation.reply("abc", GenerationConfig.of(max_new_tokens=4)).prompt


LINES = {
    "no JSON": ("{", r"line 1 of .*: it is not JSON \(.*\)", 'write {"prompt"'),
    "a list": ("[1]", "it is not a JSON object", 'write {"prompt"'),
    "a number for a prompt": ('{"prompt": 3}', 'its "prompt" is not text', 'write {"prompt"'),
    "a question that is none": ('{"question": null}', 'its "question" is not text', 'write {"prompt"'),
    "no turn": ('{"turns": []}', "it has no prompt", 'write {"prompt"'),
    "turns that are a text": ('{"turns": "abc"}', "it has no prompt", 'write {"prompt"'),
    "something else": ('{"instruction": "abc"}', "it has no prompt", 'write {"prompt"'),
    "brackets without end": ("[" * 100_000, "it is not JSON .*nested too deeply", 'write {"prompt"'),
    "nothing": ("\n\n", "holds no prompt", "write one a line"),
    "bytes that are no text": (b'{"prompt": "\xe9"}', "cannot read the prompts .*no UTF-8", "lines in UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_broken_prompt_files_are_refused(command, shop, name):
    content, cause, fix = LINES[name]
    file = shop.out / "prompts.jsonl"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(command(["bench", "--prompts", file, "--model", shop.engine, *CPU]), BadText("", cause, fix))


def test_a_json_line_may_hold_what_splits_other_lines(command, shop):
    file = shop.out / "prompts.jsonl"
    file.write_text('\ufeff{"prompt": "a\u2028b"}\r\n{"turns": ["ab"]}\n', encoding="utf-8")
    flags = ["--model", shop.engine, "--runs", 1, "--max-new-tokens", 2, "--json", *CPU]
    code, out, _ = command(["bench", "--prompts", file, *flags])
    assert code == 0
    assert json.loads(out.splitlines()[-1])["settings"]["prompts"] == 2


# --- flags and files of commands ---------------------------------------------------------------------------


@pytest.mark.sample(20)
@pytest.mark.parametrize("name", FLAGS)
def test_bad_flags_are_refused(command, shop, name):
    row = FLAGS[name]
    argv = [part.format(out=shop.out, engine=shop.engine) for part in row.argv]
    (shop.out / "file").write_text("x", encoding="utf-8")
    refused(command(argv), row)
