"""Flags and variables that gradio would answer with a traceback end in one line and exit code 2."""

from __future__ import annotations

import subprocess
import sys

import pytest
from gradio_variables import without_gradios
from paths import ROOT

import app
from medusa_core.errors import MedusaError
from ui.serving.environment import check_environment


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("GRADIO_SERVER_PORT", ["abc", "", "0", "65536", "-1", "7860.0", "٣", "9" * 400]),
        ("GRADIO_NUM_PORTS", ["x", "0", "1e3"]),
        ("GRADIO_NODE_SERVER_PORT", ["x", "70000"]),
        ("GRADIO_NODE_NUM_PORTS", ["x"]),
        ("GRADIO_NUM_WORKERS", ["x", "2", "-1"]),
        ("GRADIO_ANALYTICS_MAX_EVENTS", ["x"]),
        ("GRADIO_ANALYTICS_CACHE_FREQUENCY", ["x", "0"]),
        ("GRADIO_DEFAULT_CONCURRENCY_LIMIT", ["x", "0"]),
        ("GRADIO_DEBUG", ["yes", "1"]),
        ("GRADIO_ROOT_PATH", ["medusa", "ftp://x/y", "/a b", "http://", "/a?b", "/a\nb"]),
        ("GRADIO_TEMP_DIR", ["/proc/no/folder", "/dev/null", "a\0b"]),
        ("GRADIO_ALLOWED_PATHS", ["/", "relative"]),
        ("GRADIO_WATCH_DIRS", ["."]),
        ("GRADIO_VIBE_MODE", ["1"]),
        ("GRADIO_SHARE_SERVER_ADDRESS", ["nowhere", "a:b", ""]),
    ],
)
def test_a_wrong_variable_is_named_with_a_way_out(name, values):
    for value in values:
        with pytest.raises(MedusaError) as refused:
            check_environment({name: value})
        assert name in str(refused.value)
        assert "set it to" in str(refused.value) or "unset it" in str(refused.value)


def test_variables_that_make_sense_pass(tmp_path):
    check_environment({})
    check_environment({
        "GRADIO_SERVER_PORT": "7861", "GRADIO_NUM_PORTS": "1", "GRADIO_NUM_WORKERS": "0",
        "GRADIO_ROOT_PATH": "/medusa", "GRADIO_TEMP_DIR": str(tmp_path / "new"), "GRADIO_DEBUG": "0",
        "GRADIO_ALLOWED_PATHS": "", "GRADIO_SHARE_SERVER_ADDRESS": "example.com:7000",
        "GRADIO_DEFAULT_CONCURRENCY_LIMIT": "none",
    })  # fmt: skip
    check_environment({"GRADIO_ROOT_PATH": "https://example.com:8443/medusa"})


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--port", "0"], "argument --port: '0' is no port: choose one from 1 to 65535"),
        (["--port", "65536"], "'65536' is no port"),
        (["--port", "-1"], "'-1' is no port"),
        (["--port", "x"], "'x' is no port"),
        (["--port", "9" * 400], "is no port"),
        (["--port", "٣"], "is no port"),
        (["--host", "a" * 300], "cannot listen on aaaa"),
        (["--host", "a..b"], "cannot listen on a..b"),
        (["--quantize", "3bit"], "invalid choice: '3bit'"),
        (["--nonsense"], "unrecognized arguments: --nonsense; see python app.py --help"),
    ],
)
def test_flags_end_in_one_line(flags, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["app.py", *flags])
    with pytest.raises(SystemExit) as end:
        app.main()
    assert end.value.code == app.EXIT_BAD_INPUT
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert len(line) < 300


def test_a_variable_that_ends_the_import_of_gradio_is_one_line_as_well():
    ended = subprocess.run(
        [sys.executable, "app.py"], cwd=ROOT, text=True, capture_output=True, timeout=120, check=False,
        env=without_gradios(GRADIO_SERVER_PORT="abc"),
    )  # fmt: skip
    assert ended.returncode == app.EXIT_BAD_INPUT
    assert ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert line.startswith("error: the environment variable GRADIO_SERVER_PORT is 'abc'")
