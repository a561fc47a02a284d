"""Fixtures of the engine's tests: tiny models that need no files and no network."""

from __future__ import annotations

import gc
import io
import json
import os
import shutil
import signal
import threading
from collections import Counter
from dataclasses import replace

# Before any import of the libraries that read them: no test may reach the network, and products of tiny
# matrices take far longer when several threads share them than on one.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["OMP_NUM_THREADS"] = "1"
# Tests start many processes that import the project; none of them should compile it anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A tree chosen by the speed of the machine would make runs differ; tests of that choice allow it themselves.
os.environ["MEDUSA_MEASURE"] = "0"

# Importing torch, transformers and gradio makes a million objects that stay, and the collector would go
# through them again and again meanwhile. It is on again when all tests are imported (pytest_collection).
gc.disable()

import chats
import pytest
import tiny
import torch
from bad_input import Workshop
from built_once import built_once
from hypothesis import settings
from training_corpus import write_corpus

from medusa_core.checkpoints.names import HEADS_FOLDER, TREE_NAME
from medusa_core.cli.main import main
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.drafters.medusa.files import save_heads
from medusa_core.evaluation import step_limits
from medusa_core.hardware.this_machine import Machine
from medusa_core.loading.native_library import native_library
from medusa_core.loading.remembered import cache_folder
from tools.make_model.pretrain import pretrain
from tools.make_model.settings import PretrainConfig

# A loaded machine must not fail a property test by being slow; derandomised, a red run can be repeated.
settings.register_profile("medusa", deadline=None, derandomize=True, database=None)
settings.load_profile("medusa")
torch.set_num_threads(1)

KV_HEADS = {"mha": 4, "gqa": 2, "mqa": 1}


def pytest_configure(config):
    """The C is compiled once, while the workers import, and not by each of them at the same time."""
    if not hasattr(config, "workerinput"):
        threading.Thread(target=native_library).start()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a table marked ``sample`` some rows run by default, and the others are slow; files are mixed."""
    items[:] = _mixed(items)
    tables = {}
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("slow"):
            tables.setdefault((item.path, item.originalname), []).append(item)
    for rows in tables.values():
        chosen = _sampled(rows, *rows[0].get_closest_marker("sample").args)
        for row in rows:
            if row not in chosen:
                row.add_marker(pytest.mark.slow)


def _mixed(items):
    """The browser's files spread among the others, so that some workers compute while others wait for a page.

    They are through before the others, since a long one at the end would keep one worker alone.
    """
    files, places = {}, {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    kinds = {path: rows[0].get_closest_marker("browser") is not None for path, rows in files.items()}
    for browser, until in ((True, 0.8), (False, 1.0)):
        paths = [path for path, kind in kinds.items() if kind == browser]
        places |= {path: until * number / len(paths) for number, path in enumerate(paths)}
    return [item for path in sorted(files, key=places.get) for item in files[path]]


def _sampled(rows, most=None):
    """``most`` rows of a table, spread over its columns; without a number each value of each column once."""
    if most is not None:
        # Multiples of the golden ratio: no step that always meets the same value of an inner column.
        return sorted(rows, key=lambda row: rows.index(row) * 0.618034 % 1)[:most]
    values = {row: {(name, repr(value)) for name, value in row.callspec.params.items()} for row in rows}
    chosen, lacking, used = [], set.union(*values.values()), Counter()
    while lacking:
        # Of rows with as many values that are lacking the one whose values were used least.
        chosen.append(
            max(rows, key=lambda row: (len(values[row] & lacking), -sum(used[one] for one in values[row])))
        )
        lacking -= values[chosen[-1]]
        used.update(values[chosen[-1]])
    return chosen


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """From here on a collection looks at what tests make, not at the objects of the libraries each time."""
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """What a file leaves alive, libraries and models for all tests, is not looked at again either."""
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            gc.collect()
            gc.freeze()


@pytest.fixture(scope="session", params=KV_HEADS)
def attention_variant(request):
    """A tiny model for each way of sharing key-value heads."""
    return tiny.frequent_zero_model(KV_HEADS[request.param])


@pytest.fixture(scope="session")
def model():
    """A tiny grouped-query Llama whose token 0 is a real and frequent token."""
    return tiny.frequent_zero_model(kv_heads=2)


@pytest.fixture(scope="session")
def engine(model):
    """The tiny model with heads that are often right, and a tokenizer of one letter a token."""
    return tiny.build_engine(model, tiny.fitted_heads(model))


@pytest.fixture(scope="session")
def engine_folder(engine, tmp_path_factory):
    """The same engine as files: model, tokenizer, heads and their tree, as ``load_engine`` wants them."""

    def build(folder):
        engine.target.model.save_pretrained(folder)
        engine.tokenizer.save_pretrained(folder)
        heads = folder / HEADS_FOLDER
        save_heads(medusa_draft(engine).heads, heads, "tiny", torch.float32)
        (heads / TREE_NAME).write_text(json.dumps([[0], [1], [0, 0]]), encoding="utf-8")

    return built_once(tmp_path_factory, "model", build)


@pytest.fixture
def corpus(tmp_path):
    """A folder with a recipe over a small corpus."""
    return write_corpus(tmp_path)


@pytest.fixture(scope="session")
def trained_base(tmp_path_factory):
    """A tiny base that has learned the small corpus, as the folder of a model, and its corpus' folder."""

    def build(folder):
        write_corpus(folder)
        files = {"out": str(folder / "base"), "recipe": str(folder / "recipe.json"), "data_root": str(folder)}
        config = PretrainConfig(
            **files, tokens=150 * 512, vocab_size=300, hidden_size=48, intermediate_size=96, layers=2,
            attention_heads=3, kv_heads=1, context=128, sequence_length=64, batch_tokens=512,
            max_tokens=100_000, warmup_steps=8,
        )  # fmt: skip
        for _ in pretrain(config):
            pass

    return built_once(tmp_path_factory, "corpus", build) / "base" / "model"


@pytest.fixture
def base(engine_folder, tmp_path):
    """The tiny model without heads."""
    folder = tmp_path / "base"
    shutil.copytree(engine_folder, folder, ignore=shutil.ignore_patterns("heads"))
    return folder


@pytest.fixture(scope="session")
def shop_engine(engine_folder, tmp_path_factory):
    """The tiny engine with a tokenizer that ends its texts, as training needs it, and a text to train on."""
    folder = tmp_path_factory.mktemp("shop") / "engine"
    shutil.copytree(engine_folder, folder)
    tiny.tiny_tokenizer(end_token=23).save_pretrained(folder)
    (folder / "text.jsonl").write_text('{"text": "abcdefgh"}\n' * 200, encoding="utf-8")
    return folder


@pytest.fixture
def shop(shop_engine, tmp_path):
    """A place to build bad input in."""
    return Workshop(shop_engine, tmp_path)


@pytest.fixture
def command(capsys, monkeypatch):
    """Run a command in this process; returns its exit code, standard output and standard error."""

    def call(argv, typed=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        try:
            code = main([str(part) for part in argv])
        except SystemExit as stop:  # argparse leaves this way
            code = stop.code
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return call


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    """A folder of the test for what is measured; the C is not compiled again for it."""
    usual = cache_folder()
    monkeypatch.setattr("medusa_core.loading.native_library.cache_folder", lambda: usual)
    monkeypatch.setenv("MEDUSA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def slow_machine(monkeypatch):
    """1 GB/s and 1 GFLOP/s, so that a byte and an operation take a nanosecond each; nothing is measured."""
    machine = Machine("a machine", 1, ((2**30, 1e9),), (("float32", 1e9), ("bfloat16", 1e9)), 1e9, 0.0)
    monkeypatch.setattr(step_limits, "measure_machine", lambda *_: machine)
    monkeypatch.setattr(step_limits, "read_speed", lambda *_: 0.0)


@pytest.fixture
def heard_interrupts():
    """SIGINT as a terminal's program hears it; a suite started in the background inherits a deaf ear."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def chat_model():
    return chats.chat_model()


@pytest.fixture(scope="session")
def chat_heads(chat_model):
    return tiny.fitted_heads(chat_model)


@pytest.fixture
def engine_for(chat_model, chat_heads):
    """An engine with a chat template; a smaller context on request."""

    def build(template, context=None):
        engine = tiny.build_engine(chat_model, chat_heads)
        engine = replace(engine, tokenizer=chats.chat_tokenizer(template))
        if context is not None:
            engine.target.context = context
        return engine

    return build
