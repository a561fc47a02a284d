"""Ctrl-C and SIGTERM end unfinished work with 130 and 143, so that ``&& next`` does not go on."""

from __future__ import annotations

import json
import signal

import pytest

from medusa_core.cli.commands import train
from medusa_core.cli.signals import Terminated, signals_stop
from medusa_core.engine import Engine
from medusa_core.engine.chat import Reply

BOTH = pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
pytestmark = pytest.mark.usefixtures("heard_interrupts")


def signalled(steps, number):
    """The steps, with a signal to this process after the third."""
    for index, step in enumerate(steps):
        yield step
        if index == 2:
            signal.raise_signal(number)


@BOTH
def test_generate(command, engine_folder, monkeypatch, number, exit_code):
    stream = Engine.stream
    monkeypatch.setattr(Engine, "stream", lambda *args, **more: signalled(stream(*args, **more), number))
    argv = ["generate", "abc", "--model", engine_folder, "--max-new-tokens", 50, "--ignore-eos", "--json"]
    code, out, err = command(argv)
    assert (code, err.splitlines()[-1]) == (exit_code, "stopped")
    record = json.loads(out.splitlines()[-1])
    assert (record["finish_reason"], record["steps"]) == ("cancelled", 3)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@BOTH
def test_chat_that_reads_a_pipe(command, engine_folder, monkeypatch, number, exit_code):
    replies = Reply.__iter__
    monkeypatch.setattr(Reply, "__iter__", lambda reply: signalled(replies(reply), number))
    argv = ["chat", "--model", engine_folder, "--max-new-tokens", 50, "--ignore-eos"]
    code, _, err = command(argv, typed="abc\nabc\n")
    assert (code, err.splitlines()[-1]) == (exit_code, "stopped")
    assert err.count("interrupted") == 1


@BOTH
def test_train(command, shop, monkeypatch, number, exit_code):
    recipe = train.train
    monkeypatch.setattr(train, "train", lambda config: signalled(recipe(config), number))
    files = ["--out", shop.out / "run", "--model", shop.engine, "--data", shop.engine / "text.jsonl"]
    sizes = "--tokens 5120 --batch-tokens 256 --sequence-length 32 --heads 1"
    code, _, err = command(["train", "medusa1", *files, *sizes.split()])
    assert code == exit_code, err
    assert "the same command goes on from there" in err
    assert (shop.out / "run" / "checkpoint.pt").is_file()


def test_a_signal_that_python_drops_in_a_finalizer_comes_again():
    class Dropping:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    def work():
        with signals_stop():
            Dropping()
            signal.sigtimedwait([], 10)

    with pytest.raises(Terminated):
        work()
