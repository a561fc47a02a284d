"""What the tests of experiments measure: the tiny model, variants of it, and a file of prompts."""

from __future__ import annotations

import pytest
from tiny_experiments import build_setup, write_prompts, write_variants


@pytest.fixture(scope="module")
def setup(engine_folder):
    return build_setup(engine_folder)


@pytest.fixture(scope="module")
def trained(engine_folder, tmp_path_factory):
    return write_variants(engine_folder, tmp_path_factory.mktemp("variants"))


@pytest.fixture(scope="module")
def prompt_file(tmp_path_factory):
    return write_prompts(tmp_path_factory.mktemp("prompts"))
