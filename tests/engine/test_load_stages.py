"""A load as a watcher sees it: stages, progress, an early end, too little memory or disk, strangers' code."""

from __future__ import annotations

import gc
import io
import shutil
import threading

import httpx2
import pytest
import tiny
import torch
from bad_input import change_json
from hub_server import Hub, serving
from huggingface_hub import constants
from transformers import AutoModelForCausalLM, LlamaForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from medusa_core.checkpoints import download
from medusa_core.checkpoints.locate import locate
from medusa_core.cli import load as load_line
from medusa_core.cli.main import main
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError
from medusa_core.loading import bare_llama, load, memory
from medusa_core.loading.load import load_engine
from medusa_core.model.bare_llama import BareLlama


@pytest.fixture
def hub(tmp_path, monkeypatch, engine_folder):
    """A hub with the tiny model and, in a repository of their own, its heads; an empty cache."""
    heads = shutil.copytree(engine_folder / "heads", tmp_path / "heads")
    change_json(heads / "config.json", base_model_name_or_path="a/base")
    base = shutil.copytree(engine_folder, tmp_path / "base", ignore=shutil.ignore_patterns("heads"))
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 4096)
    monkeypatch.setattr(download, "POLL_SECONDS", 0.005)
    with serving(Hub({"a/base": base, "a/heads": heads}), tmp_path / "cache") as served:
        yield served


@pytest.fixture(params=["our own", "transformers"])
def reader(request, monkeypatch):
    """What reads the weights: the tiny model is one that our own reader takes."""
    if request.param == "transformers":
        monkeypatch.setattr(load, "read_bare_llama", lambda *_: None)


# --- stages ------------------------------------------------------------------------------------------------


def names_of(stages):
    """Names of the stages in order, each once a visit."""
    return [s.name for i, s in enumerate(stages) if i == 0 or stages[i - 1].name != s.name]


@pytest.mark.usefixtures("reader")
def test_a_load_tells_where_it_is(engine_folder, engine):
    stages = []
    loaded = load_engine(tiny.load_config(engine_folder), stages.append)
    assert names_of(stages) == ["files", "memory", "weights", "check", "heads"]
    shares = [stage.done for stage in stages if stage.name == "weights"]
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert shares == sorted(shares)
    assert len(shares) > len(list(engine.target.model.parameters()))
    assert [s.estimate is None for s in stages] == [s.name == "files" for s in stages]
    assert stages[-1].estimate.parameters == loaded.info.parameters
    assert all(stage.message and "\n" not in stage.message for stage in stages)


@pytest.mark.usefixtures("reader")
def test_two_loads_at_once_hear_each_of_their_own(engine_folder):
    """One ends while the other is under way, and the hook they share is gone when both have ended."""
    first, second, met = [], [], threading.Barrier(2, timeout=30)

    def watch(stages):
        def hear(stage):
            if stage.name == "weights" and stage.done == 0.0 and not any(s.name == "weights" for s in stages):
                met.wait()
            stages.append(stage)

        return hear

    other = threading.Thread(target=load_engine, args=(tiny.load_config(engine_folder), watch(second)))
    other.start()
    load_engine(tiny.load_config(engine_folder), watch(first))
    other.join()
    assert [s.done for s in first if s.name == "weights"] == [s.done for s in second if s.name == "weights"]
    # transformers patches this class while it reads a model; what it puts there has another name.
    assert PreTrainedModel.tie_weights.__name__ == "tie_weights"
    heard = len(first)
    assert list(transformers_logging.tqdm([1, 2], desc="Loading weights")) == [1, 2]
    assert len(first) == heard


# --- ending it ---------------------------------------------------------------------------------------------


class EnoughError(Exception):
    """A watcher's own."""


KINDS = [RuntimeError, OSError, MedusaError, KeyboardInterrupt]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        *((stage, EnoughError) for stage in ("files", "memory", "weights", "check", "heads")),
        *(("weights", kind) for kind in KINDS),
    ],
)
@pytest.mark.usefixtures("reader")
def test_what_the_watcher_raises_ends_the_load_and_leaves_nothing(engine_folder, stage, kind):
    def models():
        return sum(type(thing) in (LlamaForCausalLM, BareLlama) for thing in gc.get_objects())

    def hook(factory, args, options):
        return factory(*args, **options)

    refusal = kind("out of memory, or so it says")

    def watch(now):
        if now.name == stage and (now.done is None or now.done > 0.5):
            raise refusal

    gc.collect()
    before, previous = models(), transformers_logging.set_tqdm_hook(hook)
    try:
        with pytest.raises(kind) as caught:
            load_engine(tiny.load_config(engine_folder), watch)
        assert caught.value is refusal
        # The exception is still held, as by a program that shows it.
        assert models() <= before  # models of earlier tests may go in the meantime
        assert transformers_logging.set_tqdm_hook(hook) is hook
    finally:
        transformers_logging.set_tqdm_hook(previous)


# --- the hub -----------------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("named", [("a/base", "a/heads"), ("", "a/heads"), ("a/heads", "")])
def test_downloads_are_told_in_bytes(hub, named):
    hub.delay = 0.02
    stages = []
    loaded = load_engine(tiny.load_config(*named), stages.append)
    assert medusa_draft(loaded).heads.count == tiny.HEADS
    assert names_of(stages) == ["files", "memory", "files", "weights", "check", "heads"]
    # Small files first; it is told what the memory must hold before anything large is asked for.
    known = next(i for i, stage in enumerate(stages) if stage.name == "memory")
    assert any("Downloading a/base: " in stage.message for stage in stages[known:])
    shares = [stage.done for stage in stages[known:] if stage.name == "files" and stage.done]
    assert len(set(shares)) > 3
    assert all(0 < share <= 1 for share in shares)
    assert stages[known].estimate.parameters == loaded.info.parameters
    assert stages[known].estimate.heads == 4 * loaded.info.draft_parameters
    assert hub.sent.count("model.safetensors") == 1
    again = []
    load_engine(tiny.load_config(*named), again.append)
    assert hub.sent.count("model.safetensors") == 1
    assert not any("Downloading" in stage.message for stage in again)


def test_a_download_can_be_ended_and_taken_up_again(hub):
    hub.delay = 0.2
    refusal = EnoughError()

    def watch(stage):
        if stage.done and stage.name == "files" and "model.safetensors" in hub.sent:
            raise refusal

    with pytest.raises(EnoughError) as caught:
        load_engine(tiny.load_config("a/base", "none"), watch)
    assert caught.value is refusal
    hub.delay = 0.0
    assert tiny.load_from("a/base", "none").info.base == "a/base"


def test_too_little_memory_is_said_before_weights_are_fetched(hub, monkeypatch, capsys):
    monkeypatch.setattr(memory, "free_memory", lambda device: 2**16)
    with pytest.raises(
        MedusaError, match=r"the model needs about 67\.\d MB of memory, 65\.5 kB are free: take a"
    ):
        tiny.load_from("a/base", "a/heads")
    assert not any(name.endswith(".safetensors") for name in hub.sent)
    assert main(["generate", "abc", "--model", "a/base", "--device", "cpu"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.filterwarnings("ignore:Not enough free disk space")  # ours says it too
def test_too_little_disk_is_said_before_it_is_full(hub, monkeypatch):
    hub.delay = 0.02
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(
        MedusaError, match=r"a/base needs \d\d\.\d kB of disk, 1\.00 kB are free in .*HF_HOME"
    ):
        locate("a/base", ["*"])


def test_a_connection_that_breaks_is_said_in_one_line(hub, monkeypatch):
    """As huggingface_hub raises it once it has tried again for some seconds."""

    def broken(*_, **__):
        raise httpx2.ReadError("the line went dead")

    monkeypatch.setitem(locate.__globals__, "snapshot_download", broken)
    with pytest.raises(MedusaError, match="ReadError: the line went dead"):
        tiny.load_from("a/base", "none")


# --- memory that runs out while loading --------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.usefixtures("reader")
def test_memory_that_runs_out_is_said_with_what_would_help(engine_folder, monkeypatch):
    def read(*_, **__):
        return torch.empty(2**50)

    monkeypatch.setattr(bare_llama, "BareLlama", read)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", read)
    with pytest.raises(
        MedusaError, match=r"ran out while loading, though the model needs .*: use --"
    ) as caught:
        tiny.load_from(engine_folder)
    assert "--dtype bfloat16 (" in str(caught.value)


# --- code of strangers -------------------------------------------------------------------------------------

CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
Path({mark!r}).touch()
class HomemadeConfig(LlamaConfig):
    model_type = "homemade"
class HomemadeModel(LlamaForCausalLM):
    config_class = HomemadeConfig
"""


@pytest.fixture(params=["homemade", "llama"])
def homemade(request, engine_folder, tmp_path, monkeypatch):
    """A model of a new kind or a known one with classes of its own, whose file leaves a mark when run."""
    from transformers import dynamic_module_utils

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = shutil.copytree(engine_folder, tmp_path / "homemade")
    (folder / "homemade.py").write_text(CODE.format(mark=str(tmp_path / "mark")), encoding="utf-8")
    own = {"AutoConfig": "homemade.HomemadeConfig", "AutoModelForCausalLM": "homemade.HomemadeModel"}
    change_json(folder / "config.json", model_type=request.param, auto_map=own)
    return folder


def test_a_folders_code_runs_only_where_that_was_said(homemade, engine, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asks on the terminal"))
    known = "llama" in (homemade / "config.json").read_text(encoding="utf-8").split("model_type")[1][:12]
    if known:
        loaded = tiny.load_from(homemade)  # by transformers' own class
        assert type(loaded.target.model) is LlamaForCausalLM
    else:
        with pytest.raises(MedusaError, match=r"Python code of its own.*--trust-remote-code"):
            tiny.load_from(homemade)
        for argv in (
            ["heads", "init", "--out", str(tmp_path / "out")],
            ["generate", "abc"],
            ["heads", "check"],
        ):
            assert main([*argv, "--model", str(homemade)]) == 2
            assert "--trust-remote-code" in capsys.readouterr().err
    assert not (tmp_path / "mark").exists()
    trusted = tiny.load_from(homemade, trust_remote_code=True)
    assert (tmp_path / "mark").exists()
    assert type(trusted.target.model).__name__ == "HomemadeModel"
    assert tiny.emitted(tiny.run(trusted)) == tiny.emitted(tiny.run(engine))


def test_the_hubs_code_is_fetched_only_where_it_may_run(hub):
    (hub.repositories["a/base"] / "homemade.py").write_text("raise SystemExit", encoding="utf-8")
    tiny.load_from("a/base", "none")
    assert "homemade.py" not in hub.sent
    tiny.load_from("a/base", "none", trust_remote_code=True)
    assert "homemade.py" in hub.sent  # and not run, since no config names it


# --- on the terminal ---------------------------------------------------------------------------------------


def test_a_terminal_sees_one_line_that_goes_away(engine_folder):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    with load_line.load_line(terminal) as watch:
        load_engine(tiny.load_config(engine_folder), watch)
    written = terminal.getvalue()
    assert "Reading the weights 100% |" in written
    assert "Looking for the files …" in written
    assert "\n" not in written
    assert written.split("\r")[-2].strip() == ""  # wiped


def test_no_terminal_sees_nothing(engine_folder, capsys):
    assert load_line.load_with_line(tiny.load_config(engine_folder)).drafts
    assert capsys.readouterr().err == ""
