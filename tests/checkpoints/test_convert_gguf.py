"""``convert --to gguf``: the base as one file, from which llama.cpp writes the same greedy tokens."""

from __future__ import annotations

import json

import pytest

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.loading.load import load_engine

gguf = pytest.importorskip("gguf")
PLAIN = GenerationConfig(method="none", max_new_tokens=48, ignore_eos=True)


@pytest.mark.parametrize(("flags", "kind"), [([], "BF16"), (["--weights", "q8_0"], "Q8_0")])
def test_the_embedded_base_is_one_file(command, tmp_path, flags, kind):
    file = tmp_path / "new" / "base.gguf"
    code, out, err = command(["convert", "embedded", file, "--to", "gguf", *flags])
    assert code == 0, err
    assert out.startswith(f"{file}: embedded in {kind.lower()}, ")
    reader = gguf.GGUFReader(file)
    matrices = {tensor.tensor_type.name for tensor in reader.tensors if len(tensor.shape) > 1}
    assert matrices == {kind}
    assert [path.name for path in file.parent.iterdir()] == ["base.gguf"]


@pytest.mark.parametrize("kind", ["bf16", "f32"])
def test_llama_cpp_writes_the_tokens_of_plain_decoding(command, tmp_path, kind):
    llama_cpp = pytest.importorskip("llama_cpp")
    file = tmp_path / "base.gguf"
    assert command(["convert", "embedded", file, "--to", "gguf", "--weights", kind])[0] == 0
    engine = load_engine(LoadConfig(dtype="float32", heads="none"))
    prompt = engine.encode("Once upon a time, there was a small owl")
    ours = [token for step in engine.stream(prompt, PLAIN) for token in step.emitted]
    llama = llama_cpp.Llama(str(file), n_ctx=256, type_k=0, type_v=0, verbose=False)  # float32
    theirs = []
    for token in llama.generate(prompt, temp=0.0, repeat_penalty=1.0):
        theirs.append(token)
        if len(theirs) == len(ours):
            break
    assert engine.decode_text(theirs) == engine.decode_text(ours)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["embedded", "NEW", "--to", "gguf"], "is no name of a GGUF file: let it end in .gguf"),
        (["embedded", "THERE.gguf", "--to", "gguf"], "is there already: name another file, or use --force"),
        (["embedded", "NEW", "--to", "v1", "--weights", "bf16"], "--weights is for gguf, --to is v1"),
    ],
)
def test_what_makes_no_file_is_refused(command, tmp_path, arguments, words):
    (tmp_path / "THERE.gguf").write_text("mine", encoding="utf-8")
    source, target, *flags = arguments
    code, _, err = command(["convert", source, tmp_path / target, *flags])
    assert (code, err.count("\n")) == (2, 1)
    assert words in err
    assert (tmp_path / "THERE.gguf").read_text("utf-8") == "mine"


def test_force_replaces_the_file(command, tmp_path):
    file = tmp_path / "base.gguf"
    file.write_text("old", encoding="utf-8")
    code, out, _ = command(["convert", "embedded", file, "--to", "gguf", "--force", "--json"])
    assert code == 0
    assert json.loads(out)["bytes"] == file.stat().st_size > 1e6
