"""Starting the app: its flags, what it says on the terminal, and how it asks gradio to serve the page."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import httpx
import pytest
from launching import started

import app
from medusa_core.cli.flags import read_settings
from medusa_core.config import LoadConfig
from medusa_core.files import read_asset
from ui import launch
from ui.runs.session import Session
from ui.serving.policy import Exposure, Policy, policy_of
from ui.tabs.layout import build_page


def test_every_setting_of_loading_is_a_flag():
    flags = app.parse_flags(
        ["--model", "m", "--heads", "h", "--device", "cpu", "--dtype", "bfloat16", "--quantize", "4bit",
         "--trust-remote-code", "--allow", "a/b", "--allow", "c+d"]
    )  # fmt: skip
    load = read_settings(LoadConfig, flags)
    assert load == LoadConfig("m", "h", "bfloat16", "cpu", "4bit", trust_remote_code=True)
    assert flags.allow == ["a/b", "c+d"]
    assert read_settings(LoadConfig, app.parse_flags([])) == LoadConfig()
    assert not LoadConfig().trust_remote_code


def test_help_names_the_flags(capsys):
    with pytest.raises(SystemExit) as end:
        app.parse_flags(["--help"])
    assert end.value.code == 0
    words = capsys.readouterr().out
    for flag in ("--share", "--host", "--port", "--allow MODEL[+HEADS]", "--trust-remote-code", "--quantize"):
        assert flag in words


@pytest.fixture
def taken():
    """A port that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--allow", "model+"], "error: 'model+' offers no model: write MODEL or MODEL+HEADS"),
        (["--model", "/nope"], "error: the model is not loaded: there is no folder /nope"),
        (["--heads", "./nope"], "error: the model is not loaded: there is no folder ./nope"),
        (["--host", "203.0.113.7"], "error: cannot listen on 203.0.113.7"),  # no address of this machine
        (["--host", "no.such.machine.invalid"], "error: cannot listen on no.such.machine.invalid"),
        (["--port", "TAKEN"], "choose another --port"),
        (["--port", "0"], "argument --port: '0' is not a port: choose one from 1 to 65535"),
        (["--port", "65536"], "'65536' is not a port"),
        (["--port", "-1"], "'-1' is not a port"),
        (["--port", "x"], "'x' is not a port"),
        (["--port", "9" * 400], "is not a port"),
        (["--port", "٣"], "is not a port"),
        (["--host", "a" * 300], "cannot listen on aaaa"),
        (["--host", "a..b"], "cannot listen on a..b"),
        (["--quantize", "3bit"], "invalid choice: '3bit'"),
        (["--nonsense"], "unrecognized arguments: --nonsense; see python app.py --help"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)  # fmt: skip
def test_flags_that_make_no_sense_end_in_one_line(flags, words, taken, monkeypatch, capsys):
    flags = [str(taken) if flag == "TAKEN" else flag for flag in flags]
    monkeypatch.setattr(sys, "argv", ["app.py", *flags])
    with pytest.raises(SystemExit) as end:
        app.main()
    assert end.value.code == app.EXIT_BAD_INPUT
    said = capsys.readouterr()
    [line] = said.err.splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert len(line) < 300
    assert "Running on" not in said.out


@pytest.mark.parametrize(
    ("read", "text", "words"),
    [
        (Path.read_text, None, ": No such file or directory: restore it"),
        (read_asset, None, " (No such file or directory): restore it with git checkout"),
        (read_asset, b'[{"kind": "Sto', " (Unterminated string starting at, column 11): restore it with git"),
        (read_asset, b"\xff", " (it is no UTF-8 text): restore it with git checkout"),
    ],
)
def test_a_file_that_is_missing_or_damaged_is_named_and_no_port_blamed(
    read, text, words, monkeypatch, capsys, tmp_path
):
    file = tmp_path / "prompts.json"
    if text is not None:
        file.write_bytes(text)
    monkeypatch.setattr("ui.launch.start", lambda *flags: read(file))
    monkeypatch.setattr(sys, "argv", ["app.py"])
    with pytest.raises(SystemExit) as end:
        app.main()
    assert end.value.code == app.EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert (f"{file}{words}" in said, said.count("\n")) == (True, 1)
    assert "--port" not in said


@pytest.mark.slow
def test_a_page_opened_by_gradios_variables_is_public_and_says_so():
    missing = ["--model", "/no/such/folder", "--without-model"]
    with started("--allow", "org/model", *missing, GRADIO_SERVER_NAME="0.0.0.0") as found:
        port, lines = found
        assert "Others can reach this page. Models: the model it starts with and org/model;" in lines
        assert "training: off; a run ends after 120 seconds." in lines
        parts = httpx.get(f"http://127.0.0.1:{port}/config").json()["components"]
        tabs = [part["props"]["label"] for part in parts if part["type"] == "tabitem"]
        assert "Watch" in tabs
        assert "Train" not in tabs


@pytest.mark.slow
def test_without_a_list_a_visitor_has_nothing_to_choose():
    def picks(policy):
        page = build_page(Session(LoadConfig(), policy=policy))
        return "model-picker" in {getattr(block, "elem_id", None) for block in page.blocks.values()}

    assert picks(Policy())
    assert not picks(Policy(public=True, training=False))


@pytest.mark.parametrize("public", [False, True])
def test_the_page_is_served_with_nothing_beside_it(public):
    policy = policy_of({"SPACE_ID": "me/space"} if public else {}, offers=["org/model"] if public else ())
    page = build_page(Session(LoadConfig(), policy=policy))
    parts = page.get_config_file()["components"]
    tabs = {part["props"]["label"] for part in parts if part["type"] == "tabitem"}
    assert tabs & {"Watch", "Train"} == ({"Watch"} if public else {"Watch", "Train"})
    # A visitor chooses among what is offered, and finds no field for a model's name.
    ids = {part["props"].get("elem_id") for part in parts}
    own = {f"model-{name}" for name in ("name", "heads", "dtype", "quantize", "capture", "check")}
    assert ids & {"model-menu", *own} == ({"model-menu"} if public else {"model-menu", *own})
    options = launch.launch_options(page, policy, Exposure(None, share=False, hosted=public))
    for closed in ("show_error", "enable_monitoring", "mcp_server", "ssr_mode", "run_history", "share"):
        assert options[closed] is False
    assert not {"allowed_paths", "auth", "strict_cors"} & options.keys()  # gradio's defaults, the safe ones
    assert options["footer_links"] == ["api"]
    assert options["max_file_size"] == (launch.TREE_FILE if public else launch.TRAINING_FILE)
    assert not page.api_open
    assert page.delete_cache
    assert page.delete_cache[0] <= 600
    assert page._queue.max_size is not None
