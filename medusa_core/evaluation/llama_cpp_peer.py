"""llama.cpp measured beside ours: the engine's model as a GGUF file, decoded greedily by its own loop.

Prompts are the engine's token ids, and budget, threads and reasons to end those of the other methods. Python
asks for each token; forward and choice are llama.cpp's.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import torch

from medusa_core import config as settings
from medusa_core.checkpoints.gguf_file import Q8_0, GgufModel, type_of
from medusa_core.decoding import check_prompt
from medusa_core.engine import Engine
from medusa_core.errors import MedusaError, reason_of
from medusa_core.evaluation.peers import Peer, PeerError
from medusa_core.evaluation.turns import Measurement
from medusa_core.files import whole_file
from medusa_core.loading.devices import free_memory
from medusa_core.loading.tuning import cache_folder
from medusa_core.text.stopping import Stopper
from medusa_core.words import bytes_words

PACKAGE = "llama-cpp-python"
LLAMA_CPP_PEERS = {
    "llama-cpp": Peer("llama.cpp with these weights in the same dtype"),
    "llama-cpp-q8": Peer("llama.cpp with these weights in 8 bits (Q8_0)", {"weights": Q8_0}),
}


class LlamaCppRunner:
    """One of ``LLAMA_CPP_PEERS`` on an engine's model."""

    def __init__(self, engine: Engine, name: str, config: settings.GenerationConfig) -> None:
        self._engine, self._config = engine, config
        self._kind: str | None = LLAMA_CPP_PEERS[name].arguments.get("weights")
        self._model: _Loaded | None = None

    def prepare(self, longest: list[int]) -> None:
        """Write the file if need be, load it and run once on the longest prompt, unmeasured.

        Raises MedusaError for a bad prompt, and PeerError when the peer cannot run.
        """
        check_prompt(longest, self._engine.target)
        self._require_comparable()
        library, target = _library(), self._engine.target
        try:
            model = GgufModel.of(target.held.weights, self._kind or type_of(target.dtype))
        except MedusaError as error:
            raise PeerError(str(error)) from error
        slots = min(target.context, len(longest) + self._config.max_new_tokens)
        file = _written(model)
        if (size := file.stat().st_size) > (free := free_memory(target.device)):
            raise PeerError(f"its file takes {bytes_words(size)} of memory and {bytes_words(free)} are free")
        threads = target.threads_used
        float32 = self._kind is None and target.dtype == torch.float32
        packs = self._kind is None or _survives_packing(library, file)
        self._model = _Loaded(library, file, slots, threads, float32=float32, packs=packs)
        self(longest)

    def __call__(self, prompt: list[int]) -> Measurement:
        """Decode greedily after ``prompt``. Raises PeerError with the reason when that fails."""
        engine, config, model = self._engine, self._config, self._model
        assert model is not None  # prepared
        check_prompt(prompt, engine.target)
        ends = frozenset() if config.ignore_eos else engine.end_tokens()
        budget = min(config.max_new_tokens, engine.target.context - len(prompt))
        stopper = Stopper(ends, config.stop, budget, engine.decode_text)
        start = time.perf_counter()
        model.clear()
        model.read(prompt)
        tokens = [model.choose()]
        while stopper.cut(tokens[-1:])[1] is None:
            model.read(tokens[-1:])
            tokens.append(model.choose())
        return Measurement(tokens, time.perf_counter() - start, len(tokens))

    def _require_comparable(self) -> None:
        """Raise PeerError for a run or a model that it would not run as the engine does."""
        target, config = self._engine.target, self._config
        if config.temperature > 0 or config.penalises:
            raise PeerError(
                "it is compared greedily and without a penalty: leave out --temperature and --penalty"
            )
        if target.device.type != "cpu":
            raise PeerError(
                f"it is compared on the CPU, and this model is on {target.device}: use --device cpu"
            )
        packing = target.held.packing
        if packing is not None and not (packing.is_own and self._kind == Q8_0):
            raise PeerError(f"the weights are {packing.words()}: leave out --quantize, or name llama-cpp-q8")
        if target.longer is not None:
            raise PeerError("it takes this model with the trained context alone: leave out --context")


def _library() -> ModuleType:
    """llama.cpp, silent. Raises PeerError where it is not installed, or does not load."""
    try:
        import llama_cpp  # noqa: PLC0415 - optional
    except ImportError as error:
        raise PeerError(f"{PACKAGE} is not installed: pip install {PACKAGE} gguf") from error
    except (OSError, RuntimeError) as error:  # its shared library does not load
        raise PeerError(f"{PACKAGE} does not load, {reason_of(error)}") from error
    logging.getLogger(PACKAGE).setLevel(logging.CRITICAL)
    llama_cpp.llama_backend_init()
    return llama_cpp


def _written(model: GgufModel) -> Path:
    """The file of the model, kept for the next time. Raises PeerError."""
    file = cache_folder() / f"{model.digest()}.gguf"
    if not file.is_file():
        try:
            with whole_file(file) as new:
                model.write(new)
        except OSError as error:
            raise PeerError(f"its file cannot be written to {file.parent}, {reason_of(error)}") from error
    return file


def _survives_packing(library: ModuleType, file: Path) -> bool:
    """Whether a process survives reading some tokens with 8-bit weights packed for AMX.

    Where GCC 12 has compiled llama.cpp it dies: the compiler's _tile_loadconfig names 8 of the 64 bytes that
    it reads, so that the others are never written.
    """
    if b"AMX_INT8 = 1" not in library.llama_print_system_info():
        return True
    code = (
        f"import sys; from pathlib import Path; from {__name__} import _Loaded, _library; "
        "_Loaded(_library(), Path(sys.argv[1]), 32, 1, float32=False, packs=True).read([0] * 4)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, check=False)
    return done.returncode == 0


class _Loaded:
    """A model in llama.cpp with one text."""

    def __init__(
        self, library: ModuleType, file: Path, slots: int, threads: int, *, float32: bool, packs: bool
    ) -> None:
        """``float32`` is for keys and values, which llama.cpp else keeps in float16.

        With ``packs`` it may lay weights out anew for the processor.
        """
        self._library = library
        memory = ExitStack()
        weakref.finalize(self, memory.close)
        how = library.llama_model_default_params()
        how.n_gpu_layers = 0
        how.use_extra_bufts = packs
        model = library.llama_model_load_from_file(os.fsencode(file), how)
        if not model:
            raise PeerError(f"it cannot read {file}: delete it")
        memory.callback(library.llama_model_free, model)
        how = library.llama_context_default_params()
        how.n_ctx, how.n_threads, how.n_threads_batch = slots, threads, threads
        if float32:
            how.type_k = how.type_v = library.GGML_TYPE_F32
        self._context = library.llama_init_from_model(model, how)
        if not self._context:
            raise PeerError(f"it has no memory for a text of {slots} tokens")
        memory.callback(library.llama_free, self._context)
        self._sampler = library.llama_sampler_init_greedy()
        memory.callback(library.llama_sampler_free, self._sampler)
        self._most: int = library.llama_n_batch(self._context)

    def clear(self) -> None:
        """Begin a new text."""
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), False)

    def read(self, tokens: Sequence[int]) -> None:
        """Read tokens behind the text. Raises PeerError."""
        for start in range(0, len(tokens), self._most):
            part = tokens[start : start + self._most]
            array = (self._library.llama_token * len(part))(*part)  # the batch points to it
            batch = self._library.llama_batch_get_one(array, len(part))
            if code := self._library.llama_decode(self._context, batch):
                raise PeerError(f"llama_decode returns {code}")

    def choose(self) -> int:
        """The likeliest token behind the text."""
        token: int = self._library.llama_sampler_sample(self._sampler, self._context, -1)
        return token
