"""Prints what the app takes in an environment like the smallest Space: two cores, AVX2, no writable home.

``python tests/support/small_space.py [--no-compiler]`` from the repository root, on Linux. Seconds from the
start of the process to its first answer, to the first token of a program that asks at once (model load
included), and of one that asks again; the peak memory of the process in megabytes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx
import psutil
from gradio_client import Client
from gradio_variables import without_gradios
from launching import PATIENCE, free_port
from paths import ROOT

CORES = 2
NOWHERE = "/proc/nowhere"  # a home that not even root can make
AVX2 = {"MEDUSA_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
PROMPT = "Once upon a time, there was a small owl"
LOOK = 0.05  # seconds between checks whether the page is up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-compiler", action="store_true", help="hide every compiler from the app")
    print(json.dumps(measured(compiler=not parser.parse_args().no_compiler), indent=2))


def measured(*, compiler: bool = True) -> dict[str, object]:
    """The figures of one start, with the machine they were taken on."""
    with tempfile.TemporaryDirectory() as empty, started(Path(empty), compiler) as (process, address):
        begun = time.perf_counter()
        wait_for(process, address)
        answered = time.perf_counter() - begun
        client = Client(address, verbose=False)
        asked = [seconds_of_token(client) for _ in range(2)]
        inside = psutil.Process(process.pid)
        memory = sum(one.memory_info().rss for one in (inside, *inside.children(recursive=True)))
    return {
        "first answer s": round(answered, 1),
        "first token s, at once": round(asked[0], 2),
        "first token s, later": round(asked[1], 2),
        "resident MB": round(memory / 1e6),
        "compiler": compiler,
        "machine": f"{platform.machine()}, {CORES} cores, {AVX2['MEDUSA_ISA']}",
        "date": time.strftime("%Y-%m-%d"),
    }


@contextmanager
def started(empty: Path, compiler: bool) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The app in such an environment; ``empty`` is a folder for its PATH if it is to find no compiler."""
    port = free_port()
    path = os.environ["PATH"] if compiler else str(empty)
    environment = without_gradios(HOME=NOWHERE, PATH=path, SPACE_ID="me/small", **AVX2)
    for name in ("CC", "XDG_CACHE_HOME", "MEDUSA_CACHE", "MEDUSA_MEASURE"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "app.py", "--port", str(port)], cwd=ROOT, text=True, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    inside = psutil.Process(process.pid)
    inside.cpu_affinity(sorted(inside.cpu_affinity())[:CORES])  # before it creates its threads
    try:
        yield process, f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(PATIENCE)


def wait_for(process: subprocess.Popen[str], address: str) -> None:
    """Return when the page answers. Raises RuntimeError if the app ends first."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(process.stderr.read())
        try:
            if httpx.get(address, timeout=PATIENCE).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(LOOK)
    raise RuntimeError(f"no answer from {address} within {PATIENCE} seconds")


def seconds_of_token(client: Client) -> float:
    """Seconds from asking for a token to having it."""
    begun = time.perf_counter()
    answer = client.predict(PROMPT, max_new_tokens=1, api_name="/decode")
    assert answer["new_tokens"] >= 1, answer
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
