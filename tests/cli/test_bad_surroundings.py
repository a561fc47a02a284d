"""What is not the files' fault: a hub that says no, no room in memory, a full disk, no permission."""

from __future__ import annotations

import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path

import psutil
import pytest
import torch
from bad_answers import CPU, refused, says, told, training
from bad_input import CONFIG, HEADS, WEIGHTS
from bad_texts import PROMPTS, BadText
from paths import ROOT

from medusa_core import MedusaError, generate, load
from medusa_core.llama.greedy import GreedySteps
from medusa_core.model.target import Target

# --- the hub -----------------------------------------------------------------------------------------------

NOBODY = "a name that nobody has"
ANSWERS = {
    NOBODY: (404, "RepoNotFound", "the hub knows none", "check the name, or set HF_TOKEN"),
    "a revision that is not there": (404, "RevisionNotFound", "no such revision", "check what follows the @"),
    "a repository with a gate": (403, "GatedRepo", "its owner asks for consent", "accept it on the hub"),
    "a login that is missing": (401, "", "401 Unauthorized", "set HF_TOKEN if it is private"),
    "a hub that is broken": (500, "", "the hub cannot be reached", "check the network"),
}


@contextmanager
def refusing_hub(status, code):
    """A hub on this machine that answers everything alike; real HTTP, so the errors are huggingface_hub's."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_):
            """Not on our terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def online(monkeypatch, tmp_path):
    """Ask a hub at the given address, with an empty cache."""

    def ask(endpoint):
        constants = import_module("huggingface_hub.constants")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(import_module("medusa_core.checkpoints.locate"), "HF_HUB_OFFLINE", False)

    return ask


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "flag"), [*((name, "--model") for name in ANSWERS), (NOBODY, "--heads")])
def test_a_hub_that_says_no(command, online, name, flag):
    status, code, cause, fix = ANSWERS[name]
    with refusing_hub(status, code) as endpoint:
        online(endpoint)
        result = command(["generate", "abc", flag, "somebody/model@v9"])
    refused(result, BadText("", f"'somebody/model@v9' is neither a folder here .*{cause}", fix))


def test_a_network_that_is_not_there(command, online):
    online("http://127.0.0.1:9")  # nobody listens there
    row = BadText("", "'somebody/model' is neither .*the hub cannot be reached", "check the network")
    refused(command(["generate", "abc", "--model", "somebody/model"]), row)


# --- real processes ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_real_process_goes_on_after_bytes_that_are_no_text(shop):
    """On standard input."""
    chat = _process(["chat", "--model", str(shop.engine), "--max-new-tokens", "4", *CPU])
    code, out, err = _result(chat, b"a\xffb\nabc\n")
    assert (code, bool(out.strip())) == (0, True)
    says(told(err), PROMPTS["a byte that is not UTF-8"])


@pytest.mark.slow
def test_a_real_process_ends_with_exit_code_2_and_no_traceback(shop):
    """Bytes that are not UTF-8 as an argument."""
    argument = _process(["generate", b"a\xffb", "--model", str(shop.engine), *CPU])
    refused(_result(argument), PROMPTS["a byte that is not UTF-8"])


def _process(argv):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    argv = [sys.executable, "-m", "medusa_core", *argv]
    return subprocess.Popen(argv, cwd=ROOT, **pipes)


def _result(process, typed=b""):
    out, err = process.communicate(typed, timeout=200)
    return process.returncode, out.decode(), err.decode()


# --- the disk ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["convert", "convert pt", "heads init", "calibrate", "generate", "train"])
def test_a_full_disk_is_told_and_leaves_nothing_half_done(command, shop, what):
    """A limit on the size of files stands for the disk: the writers get the system's refusal all the same."""
    heads, out = shop.engine / "heads", shop.out / "result"
    flags = ["--prompts", shop.engine / "text.jsonl", "--limit", 1, "--max-new-tokens", 4, *CPU]
    argv = {
        "convert": ["convert", heads, out, "--to", "v1", "--model", shop.engine],
        "convert pt": ["convert", heads, out, "--to", "v1", "--pt", "--model", shop.engine],
        "heads init": ["heads", "init", "--model", shop.engine, "--out", out],
        "calibrate": ["calibrate", "--no-latency", "--out", out, "--model", shop.engine, *flags],
        "generate": ["generate", "abc", "--trace", out, "--model", shop.engine, *CPU],
        "train": training(shop, "--model", shop.engine),
    }[what]
    with file_limit(100):
        code, _, err = command(argv)
    assert code == 2
    words = r"error: .*(too large|to its end|was damaged).*: (name another|free some).*"
    assert re.fullmatch(words, err.splitlines()[-1], re.IGNORECASE)
    assert [file.name for file in shop.out.iterdir() if file.name.startswith(".")] == []
    assert not (out / "medusa_lm_head.safetensors").exists()


@pytest.mark.parametrize("what", ["generate", "train"])
def test_a_full_disk_is_told_with_the_file_that_did_not_fit(command, shop, what):
    argv = {
        "generate": ["generate", "abc", "--save", shop.out, "--ignore-eos", "--model", shop.engine, *CPU],
        "train": training(shop, "--model", shop.engine),
    }[what]
    with file_limit(100):
        code, _, err = command(argv)
    assert code == 2
    assert re.search(rf"error: .*{shop.out}/\S+ .*\(File too large\)", err), err


@pytest.mark.parametrize("command", ["--print-completion bash", "roofline --device a100"])
def test_a_pipe_without_a_reader_is_no_error(command):
    """Also where the parser or rich writes into it."""
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, "-m", "medusa_core", *command.split()]
    with os.fdopen(writer, "w") as out:
        done = subprocess.run(argv, stdout=out, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_standard_output_cannot_encode_is_escaped():
    argv = [sys.executable, "-m", "medusa_core", "tree", "show", "cartesian-1"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u2559" in done.stdout


@pytest.mark.parametrize(
    ("command", "exit_code"), [("chat <&-", 0), ("tree show cartesian-2 >&-", 0), ("tree show none 2>&-", 2)]
)
def test_a_closed_stream_is_no_error(command, exit_code):
    line = f"{shlex.quote(sys.executable)} -m medusa_core {command}"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (exit_code, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("tree", ["cartesian-2", "cartesian-6x6x5"])  # the second fills more than a buffer
def test_a_full_standard_output_is_called_so(tree):
    argv = [sys.executable, "-m", "medusa_core", "tree", "show", tree]
    with open("/dev/full", "w") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "standard output cannot be used (No space left on device)" in done.stderr


@contextmanager
def file_limit(size):
    """No file of this process may grow beyond ``size`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def readable_by_others(shop_engine):
    """A copy of the engine that any user may read, in a folder that any user may enter."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(shutil.copytree(shop_engine, Path(name) / "engine"))
        for path in (Path(name), *Path(name).rglob("*")):
            path.chmod(0o755)
        yield folder


@contextmanager
def nobody():
    """Be a user without rights, as far as this process may."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, "tokenizer.json", f"heads/{HEADS}", "heads/tree.json"])
def test_files_that_may_not_be_read(readable_by_others, name):
    folder = readable_by_others
    load(str(folder), dtype="float32", device="cpu")  # so that nothing is left to import
    (folder / name).chmod(0)
    with nobody(), pytest.raises(MedusaError) as caught:
        load(str(folder), dtype="float32", device="cpu")
    says(str(caught.value), BadText("", rf"{Path(name).name}.*Permission denied", "check"))


# --- memory ------------------------------------------------------------------------------------------------


def test_a_model_that_does_not_fit_is_not_begun(command, shop, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 1000}))
    row = BadText("", r"the model needs about .*B of memory, 1\.00 kB are free", "take a smaller model")
    refused(command(["generate", "abc", "--model", shop.engine, *CPU]), row)


def _host(*_, **__):
    """The allocator's own error: more than there is room for addresses."""
    torch.empty(2**60, dtype=torch.uint8)


def _gpu(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def _python(*_, **__):
    raise MemoryError


@pytest.mark.parametrize("fails", [_host, _gpu, _python])
def test_memory_that_runs_out_in_a_run(command, shop, monkeypatch, fails):
    flags = ["--model", shop.engine, "--max-new-tokens", 8, *CPU]
    row = BadText(
        "", "cpu has too little memory for 3 prompt tokens, 8 new ones and a tree of 4 nodes", "shorten"
    )
    with monkeypatch.context() as patch:
        patch.setattr(Target, "verify_all", fails)
        patch.setattr(GreedySteps, "run", fails)
        refused(command(["generate", "abc", *flags]), row)
        code, _, err = command(["chat", *flags], typed="abc\n")
        assert code == 0
        says(told(err), row)
    assert command(["generate", "abc", *flags])[0] == 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("fails", [_host, _gpu, _python])
def test_memory_that_runs_out_while_loading_or_elsewhere(command, shop, monkeypatch, fails):
    with monkeypatch.context() as patch:
        patch.setattr("medusa_core.loading.bare_llama.BareLlama", fails)
        row = BadText("", "the memory ran out while loading", "use --|smaller model")
        refused(command(["generate", "abc", "--model", shop.engine, *CPU]), row)
    monkeypatch.setattr("medusa_core.training.medusa1.HeadLosses.forward", fails)
    code, _, err = command(training(shop, "--model", shop.engine))
    assert code == 2
    says(err.splitlines()[-1], BadText("", "^error: the memory is used up", "use a smaller model, batch"))


def test_other_faults_are_not_taken_for_a_lack_of_memory(shop, monkeypatch):
    def breaks(*_):
        raise RuntimeError("a fault of ours")

    engine = load(str(shop.engine), dtype="float32", device="cpu")
    monkeypatch.setattr(Target, "prefill_all", breaks)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        generate(engine, "abc")
