"""The wheel: one name in site-packages, which brings the command, the engine, the page and the model."""

from __future__ import annotations

import email
import subprocess
import sys
import tomllib
import zlib

import httpx
import pytest
from gradio_variables import without_gradios
from hatchling.builders.wheel import WheelBuilder
from launching import PATIENCE, free_port
from paths import ROOT

MOST_BYTES = 100_000_000  # limit of the wheel
LEFT_OUT = "_project/assets/images/"  # the README's pictures
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def requirements(name):
    """The lines of a file of requirements, other files named in it left out."""
    lines = (ROOT / name).read_text("utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("-r")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patch:
        # Compressing takes longer than all else, and weights hardly become smaller by more of it.
        patch.setattr(zlib, "Z_DEFAULT_COMPRESSION", zlib.Z_BEST_SPEED)
        (file,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return file


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """A folder of packages with what the wheel brings and nothing else, its commands in "bin"."""
    folder = tmp_path_factory.mktemp("site")
    install = [
        "install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--target", str(folder), wheel,
    ]  # fmt: skip
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, timeout=300)
    return folder


@pytest.fixture
def medusa(site, tmp_path):
    """Call the installed command from a folder that holds nothing, with no network and no clone in sight."""

    def call(*arguments):
        return subprocess.Popen(
            [sys.executable, str(site / "bin" / "medusa"), *arguments], cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=without_gradios(PYTHONPATH=str(site), HF_HUB_OFFLINE="1"),
        )  # fmt: skip

    return call


def test_the_wheel_brings_one_package_and_all_of_it(wheel, site):
    names = {path.name for path in site.iterdir()}
    assert names - {"bin", "medusa_core"} == {f"medusa_decoding-{PROJECT['version']}.dist-info"}
    with open(wheel, "rb") as file:
        assert file.seek(0, 2) < MOST_BYTES
    installed = {
        path.relative_to(site / "medusa_core").as_posix() for path in site.rglob("medusa_core/**/*.*")
    }
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("these files are no clone, so nothing says which belong to the project")
    for name in tracked.stdout.splitlines():
        room, _, rest = name.partition("/")
        place = rest if room == "medusa_core" else f"_project/{name}"
        if room in ("medusa_core", "ui", "assets", "app.py") and not place.startswith(LEFT_OUT):
            assert place in installed
    assert "py.typed" in installed
    assert not [name for name in installed if name.startswith(LEFT_OUT)]


def test_the_command_runs_from_any_folder(medusa, command):
    asked = ["generate", "Once upon a time", "--max-new-tokens", "12", "--method", "none", "--marks", "none"]
    out, err = medusa(*asked).communicate(timeout=PATIENCE)
    assert out, err
    assert out == command(asked)[1]


def test_an_error_names_the_command_that_was_called(medusa):
    ended = medusa("nonsense")
    _, err = ended.communicate(timeout=PATIENCE)
    assert ended.returncode == 2
    assert err.endswith("see medusa --help\n")


def test_the_command_opens_the_page(medusa):
    port = free_port()
    page = medusa("app", "--port", str(port))
    try:
        assert any("Running on local URL" in line for line in page.stdout)
        assert "Medusa decoding, step by step" in httpx.get(f"http://127.0.0.1:{port}/").text
    finally:
        page.terminate()
        page.communicate(timeout=PATIENCE)


def test_the_files_of_requirements_are_what_the_package_asks_for():
    extras = PROJECT["optional-dependencies"]
    wanted = {*PROJECT["dependencies"], *extras["app"], *extras["train"]}
    assert requirements("requirements.txt") == wanted
    assert requirements("requirements-dev.txt") == set(extras["dev"])
    # README's line for machines without a GPU: a newer torch would be replaced by a CUDA build.
    bound = next(line for line in wanted if line.startswith("torch>")).split(",")[1]
    assert f'pip install "torch{bound}" --index-url' in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_wheel_says_what_each_extra_brings(site):
    (file,) = site.glob("*.dist-info/METADATA")
    said = email.message_from_string(file.read_text("utf-8"))
    assert set(said.get_all("Provides-Extra")) == {"app", "train", "quantize", "bench", "dev"}
    alone = [line for line in said.get_all("Requires-Dist") if "extra ==" not in line]
    assert not [line for line in alone if line.startswith(("gradio", "plotly", "accelerate", "peft"))]
