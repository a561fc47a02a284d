"""Named pipes and devices where a file is expected: refused, where reading would wait or never end."""

from __future__ import annotations

import os
import re
import shutil
import signal

import pytest
from bad_answers import CPU, refused, training
from bad_texts import BadText

from medusa_core.errors import MedusaError
from medusa_core.files import open_file, read_text
from medusa_core.trace.format import read_trace

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


@pytest.fixture(autouse=True)
def _no_endless_wait():
    """A read that waits at a pipe ends the test instead of the suite's patience."""

    def give_up(*_):
        raise TimeoutError("it waited at a pipe")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pipe(tmp_path):
    """A named pipe that nobody writes into."""
    os.mkfifo(tmp_path / "pipe.json")
    return tmp_path / "pipe.json"


# A command line in which {pipe} is a pipe and {engine} the tiny engine.
COMMANDS = {
    "a tree": ["generate", "abc", "--model", "{engine}", "--tree", "{pipe}", *CPU],
    "a tree to show": ["tree", "show", "{pipe}"],
    "accuracies": ["tree", "search", "--accuracies", "{pipe}"],
    "the latency": ["tree", "search", "--accuracies", "{good}", "--nodes", "auto", "--latency", "{pipe}"],
    "prompts": ["bench", "--prompts", "{pipe}", "--model", "{engine}", *CPU],
    "a trace to write": ["generate", "abc", "--model", "{engine}", "--trace", "{pipe}", *CPU],
    "figures to write": ["calibrate", "--model", "{engine}", "--out", "{pipe}", *CPU],
    "prompts of a fit": ["fit", "--plan", "--model", "{engine}", "--prompts", "{pipe}", "--out", "{out}/fit"],
    "a recipe of text": [
        "train", "medusa1", "--model", "{engine}", "--recipe", "{pipe}", "--out", "{out}/run",
    ],
    "a model": ["generate", "abc", "--model", "{pipe}", *CPU],
    "heads": ["generate", "abc", "--model", "{engine}", "--heads", "{pipe}", *CPU],
    "heads to convert": ["convert", "{pipe}", "{out}/converted", "--to", "v1"],
}  # fmt: skip


@pytest.mark.sample(8)
@pytest.mark.parametrize("which", ["a pipe", "a device"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_special_file_is_refused_by_every_command(command, shop, pipe, name, which):
    path = pipe if which == "a pipe" else "/dev/zero"
    good = shop.out / "good.json"
    good.write_text("[[0.5]]", encoding="utf-8")
    argv = [part.format(pipe=path, engine=shop.engine, out=shop.out, good=good) for part in COMMANDS[name]]
    code, out, err = command(argv)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("error: ")
    assert str(path) in err.splitlines()[-1]


@pytest.mark.parametrize(("path", "kind"), [("{pipe}", "a named pipe"), ("/dev/zero", "a device")])
def test_special_training_text_is_refused(command, shop, pipe, path, kind):
    row = BadText("", f"the training data .* is {kind} and no file", "save the text as a file")
    argv = training(shop, "--model", str(shop.engine))
    argv[argv.index("--data") + 1] = path.format(pipe=pipe)
    refused(command(argv), row)


FILES = [
    "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
    "chat_template.jinja", "vocab.json", "pytorch_model.bin", "model.safetensors.index.json",
]  # fmt: skip
HEADS = ["config.json", "medusa_lm_head.safetensors", "medusa_lm_head.pt", "tree.json", "accuracies.json",
         "adapter_config.json", "adapter_model.safetensors"]  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FILES)
def test_a_pipe_among_the_files_of_a_model_is_refused(command, shop, name):
    folder = shop.base()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    row = BadText("", f"{re.escape(name)} is a named pipe and no file", "take it out of the folder")
    refused(command(["generate", "abc", "--model", folder, *CPU]), row)
    refused(command(training(shop, "--model", str(folder))), row)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", HEADS)
def test_a_pipe_among_the_files_of_heads_is_refused(command, shop, name):
    folder = shop.heads()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    row = BadText("", f"{re.escape(name)} is a named pipe and no file", "take it out of the folder")
    refused(command(["generate", "abc", "--model", shop.engine, "--heads", folder, *CPU]), row)
    whole = shop.base()
    shutil.rmtree(whole / "heads")
    folder.rename(whole / "heads")
    refused(command(["generate", "abc", "--model", whole, *CPU]), row)


def test_a_pipe_in_a_run_folder_is_refused(command, shop):
    argv = training(shop, "--model", str(shop.engine))
    assert command(argv)[0] == 0
    for name in ("checkpoint.pt", "config.json", "metrics.jsonl"):
        whole = (shop.out / "run" / name).read_bytes()
        (shop.out / "run" / name).unlink()
        os.mkfifo(shop.out / "run" / name)
        refused(
            command(argv), BadText("", f"{re.escape(name)}.*named pipe and no file", "choose another --out")
        )
        (shop.out / "run" / name).unlink()
        (shop.out / "run" / name).write_bytes(whole)


def test_a_link_to_a_device_is_a_device(tmp_path):
    (tmp_path / "link.json").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="It is a device and no file"):
        open_file(tmp_path / "link.json")
    with pytest.raises(MedusaError, match=r"cannot read the trace .*It is a device"):
        read_trace(tmp_path / "link.json")


def test_links_to_files_are_files(tmp_path):
    (tmp_path / "a").write_text("ä", encoding="utf-8")
    (tmp_path / "b").symlink_to("a")
    assert read_text(tmp_path / "b") == "ä"
