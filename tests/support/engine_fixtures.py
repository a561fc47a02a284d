"""Fixtures of the engine's tests: tiny models that need no files and no network."""

from __future__ import annotations

import io
import json
import shutil
import signal
import sys
from copy import copy
from dataclasses import replace
from functools import cache

import chats
import pytest
import tiny
import torch
from bad_input import Workshop
from built_once import built_once
from hypothesis import settings
from training_corpus import write_corpus

from medusa_core.checkpoints.names import HEADS_FOLDER, TREE_NAME
from medusa_core.cli.main import build_parser, main
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.drafters.medusa.files import save_heads
from medusa_core.evaluation import step_limits
from medusa_core.hardware.this_machine import Machine
from medusa_core.loading.tuning import cache_folder
from tools.make_model.pretrain import pretrain
from tools.make_model.settings import PretrainConfig

# A loaded machine must not fail a property test by being slow; derandomised, a red run can be repeated.
settings.register_profile("medusa", deadline=None, derandomize=True, database=None)
settings.load_profile("medusa")
torch.set_num_threads(1)

KV_HEADS = {"mha": 4, "gqa": 2, "mqa": 1}


@pytest.fixture(scope="session", params=KV_HEADS)
def attention_variant(request):
    """A tiny model for each way of sharing key-value heads."""
    return tiny.frequent_zero_model(KV_HEADS[request.param])


@pytest.fixture(scope="session")
def model():
    """A tiny grouped-query Llama whose token 0 is a real and frequent token."""
    return tiny.frequent_zero_model(kv_heads=2)


@pytest.fixture(scope="session")
def heads(model):
    """Its heads, which guess well on its own texts."""
    return tiny.fitted_heads(model)


@pytest.fixture(scope="session")
def engine(model):
    """The tiny model with heads that are often right, and a tokenizer of one letter per token."""
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
    """A tiny base that has learned the small corpus, as a model's folder, and the folder of the corpus."""

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
    """The tiny engine with a tokenizer that ends texts, as training needs, and a text to train on."""
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
    """A function that runs a command in this process: exit code, standard output and standard error."""

    def call(argv, typed=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        capsys.readouterr()  # output of the test's own set-up
        try:
            code = main([str(part) for part in argv])
        except SystemExit as stop:  # argparse exits this way
            code = stop.code
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return call


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    """The test's own folder for measurements; the C is not compiled again for it."""
    usual = cache_folder()
    monkeypatch.setattr("medusa_core.loading.devices.cache_folder", lambda: usual)
    monkeypatch.setenv("MEDUSA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session", autouse=True)
def parser_built_once():
    """The parser of the command line for each name of the program: building it takes longer than parsing."""
    built = cache(lambda program: build_parser())
    with pytest.MonkeyPatch.context() as patch:
        # A copy, since the script for a shell's completion takes another name.
        patch.setattr("medusa_core.cli.main.build_parser", lambda: copy(built(sys.argv[0])))
        yield


@pytest.fixture(scope="session", autouse=True)
def limits_found_at_once():
    """Quickly measured speeds for a step's limits: each `bench` would measure for over a second."""
    measured, read = cache(step_limits.measure_machine), step_limits.read_speed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_limits, "measure_machine", lambda *where: measured(*where, seconds=0.1))
        patch.setattr(
            step_limits, "read_speed", lambda size, device, seconds=0.01: read(size, device, seconds)
        )
        yield


@pytest.fixture
def slow_machine(monkeypatch):
    """1 GB/s and 1 GFLOP/s, so that a byte and an operation take a nanosecond each; nothing is measured."""
    machine = Machine("a machine", 1, ((2**30, 1e9),), (("float32", 1e9), ("bfloat16", 1e9)), 1e9)
    monkeypatch.setattr(step_limits, "measure_machine", lambda *_: machine)
    monkeypatch.setattr(step_limits, "read_speed", lambda *_: 0.0)


@pytest.fixture
def heard_interrupts():
    """Handle SIGINT as in a terminal; a suite started in the background inherits ignoring it."""
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
