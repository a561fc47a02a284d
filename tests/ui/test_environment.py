"""How the page is started: flags, variables, packages, and what its owner lets visitors do."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys

import pytest
from gradio_variables import without_gradios
from launching import launch
from paths import ROOT
from small_space import measured

import app
from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from ui.launch import launch_options
from ui.runs.session import Session
from ui.serving.environment import check_environment
from ui.serving.policy import AllowedModel, Exposure, Policy, announcement, policy_of
from ui.serving.request_body import RequestRefusedError
from ui.serving.routes import MCP, check_route
from ui.tabs.layout import build_page


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


def test_a_variable_that_ends_the_import_of_gradio_is_one_line_as_well():
    ended = subprocess.run(
        [sys.executable, "app.py"], cwd=ROOT, text=True, capture_output=True, timeout=120, check=False,
        env=without_gradios(GRADIO_SERVER_PORT="abc"),
    )  # fmt: skip
    assert ended.returncode == app.EXIT_BAD_INPUT
    assert ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert line.startswith("error: the environment variable GRADIO_SERVER_PORT is 'abc'")


# --- ``--mcp``: one line where the package is missing, and services that answer only where it is asked for.


def test_a_missing_package_ends_in_one_line(monkeypatch, capsys):
    find = importlib.util.find_spec
    missing = lambda name, *rest: None if name == "mcp" else find(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", missing)
    monkeypatch.setattr(sys, "argv", ["app.py", "--mcp"])
    with pytest.raises(SystemExit) as end:
        app.main()
    assert end.value.code == app.EXIT_BAD_INPUT
    said = capsys.readouterr().err
    assert said == (
        "error: --mcp needs the package mcp, which is not installed: "
        "pip install 'gradio[mcp]', or start without --mcp\n"
    )


@pytest.mark.parametrize("service", MCP)
def test_its_services_are_there_only_where_it_is_asked_for(service):
    scope = {"path": service, "method": "POST", "query_string": b""}
    assert check_route(scope, mcp=True) == service
    with pytest.raises(RequestRefusedError):
        check_route(scope)


def test_a_client_finds_the_endpoints_as_tools_with_the_same_limits(engine_folder):
    pytest.importorskip("mcp", reason="gradio[mcp] is not installed")
    policy = policy_of({"SPACE_ID": "me/space"})
    session = Session(LoadConfig(str(engine_folder), dtype="float32", device="cpu"), policy=policy)
    page = build_page(session)
    options = launch_options(page, policy, Exposure("127.0.0.1", share=False, hosted=True), mcp=True)
    launch(
        page, **{name: value for name, value in options.items() if name not in ("server_port", "ssr_mode")}
    )
    try:
        tools, good, bad = asyncio.run(_talk(f"{page.local_url}gradio_api/mcp/"))
    finally:
        page.close(verbose=False)
    assert tools == ["decode", "trace", "compare"]
    assert "'new_tokens': 4" in str(good.content)
    assert bad.isError
    assert "the page allows 512" in str(bad.content)


async def _talk(address):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    async with streamablehttp_client(address) as (reader, writer, _), ClientSession(reader, writer) as client:
        await client.initialize()
        tools = [tool.name for tool in (await client.list_tools()).tools]
        good = await client.call_tool("decode", {"prompt": "abca", "max_new_tokens": 4})
        return tools, good, await client.call_tool("decode", {"prompt": "abca", "max_new_tokens": 600})


# --- Who can reach the page, and what its owner then lets visitors do.


@pytest.mark.parametrize("host", [None, "", "localhost", "127.0.0.1", "127.0.0.2", "::1", "[::1]"])
def test_on_ones_own_machine_everything_goes(host):
    policy = policy_of({}, Exposure.of({}, host=host))
    assert policy == Policy(public=False, offers=(), training=True, run_seconds=None)
    assert policy.free_choice
    policy.require(AllowedModel("/any/folder"))


@pytest.mark.parametrize(
    ("environment", "flags"),
    [
        ({"SPACE_ID": "me/space"}, {}),
        ({}, {"share": True}),
        ({"GRADIO_SHARE": "True"}, {}),
        ({}, {"host": "0.0.0.0"}),
        ({}, {"host": "::"}),
        ({}, {"host": "192.168.1.7"}),
        ({}, {"host": "my-computer"}),
        ({"GRADIO_SERVER_NAME": "0.0.0.0"}, {}),
        ({"GRADIO_ROOT_PATH": "/medusa"}, {}),
        ({"SPACE_ID": "me/space"}, {"host": "127.0.0.1"}),
    ],
)
def test_where_others_can_come_the_owner_decides(environment, flags):
    policy = policy_of(environment, Exposure.of(environment, **flags))
    assert policy.public
    assert not policy.training
    assert policy.run_seconds == 120
    assert not policy.free_choice
    with pytest.raises(MedusaError, match="secret is not offered here"):
        policy.require(AllowedModel("/home/me/secret"))
    assert "Others can reach this page. Models: the model it starts with; training: off" in announcement(
        policy
    )


def test_a_flag_goes_before_gradios_variables():
    environment = {"GRADIO_SERVER_NAME": "0.0.0.0", "GRADIO_SHARE": "false"}
    assert Exposure.of(environment, host="127.0.0.1") == Exposure("127.0.0.1", share=False, hosted=False)
    assert Exposure.of(environment) == Exposure("0.0.0.0", share=False, hosted=False)
    assert not policy_of(environment, Exposure.of(environment, host="127.0.0.1")).public


def test_the_owners_list_is_what_visitors_may_load():
    environment = {"SPACE_ID": "me/space", "MEDUSA_MODELS": "org/base, org/other + org/heads\n\norg/base"}
    policy = policy_of(environment, offers=["org/flag@v1"])
    assert policy.offers == (
        AllowedModel("org/flag@v1"),
        AllowedModel("org/base"),
        AllowedModel("org/other", "org/heads"),
    )
    for offer in policy.offers:
        policy.require(offer)
    with pytest.raises(MedusaError, match=r"org/base\+org/heads is not offered"):
        policy.require(AllowedModel("org/base", "org/heads"))
    assert "org/flag@v1, org/base, org/other+org/heads" in announcement(policy)


@pytest.mark.parametrize("text", ["+heads", "model+", " + "])
def test_an_offer_without_a_name_is_refused(text):
    with pytest.raises(MedusaError, match=r"write MODEL or MODEL\+HEADS"):
        policy_of({}, offers=[text])


def test_training_in_public_is_the_owners_word_but_not_on_a_borrowed_gpu():
    space = {"SPACE_ID": "me/space"}
    assert policy_of(space | {"MEDUSA_TRAINING": "1"}).training
    assert not policy_of(space | {"MEDUSA_TRAINING": "yes"}).training
    assert not policy_of(space | {"SPACES_ZERO_GPU": "true"}).training
    with pytest.raises(MedusaError, match="lends a GPU for less than two minutes"):
        policy_of(space | {"SPACES_ZERO_GPU": "true", "MEDUSA_TRAINING": "1"})


# --- Where a small Space runs: two cores, AVX2, no home to write to, and in a second try no compiler.


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="cores are given and taken as on Linux")
@pytest.mark.parametrize("compiler", [True, False])
def test_the_page_answers_and_writes(compiler):
    """Its times are for docs/sharing.md; that there are any is what counts here."""
    found = measured(compiler=compiler)
    assert found["first token s, at once"] > 0
    assert found["resident MB"] < 16_000
