"""Load a base model from its folder with transformers; errors name the file and what to do.

transformers checks little of a config, and its errors speak to developers. So the files are checked first,
of which only headers are read, and what transformers still raises becomes an error of one line.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers  # lazy: parts are imported when they are named
from safetensors import safe_open

from medusa_core.checkpoints.files import (
    AGAIN,
    file_fault,
    load_pickled,
    pickle_fault,
    read_config,
    read_json,
    require_rope_factors,
    shards,
)
from medusa_core.checkpoints.names import CONFIG_NAME, GENERATION_NAME, PICKLED_NAME, WEIGHTS_NAME
from medusa_core.checkpoints.plain_llama import MOST_LAYERS, plain_llama_config
from medusa_core.errors import MedusaError, is_out_of_memory, reason_of, shortened

if TYPE_CHECKING:
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForMultimodalLM,
        PreTrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
    )

# While transformers makes a model, it switches the tying of weights off in its classes, and the model's dtype
# is torch's default: two threads at once could leave either so for the whole process. Other threads compute
# meanwhile, so none of our tensors of floats may take the default. Reentrant, as a thread's calls nest.
ONE_MODEL_AT_A_TIME = threading.RLock()
# A process forked during a load would keep the load's changes, and a lock that nobody releases.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=ONE_MODEL_AT_A_TIME.acquire,
        after_in_parent=ONE_MODEL_AT_A_TIME.release,
        after_in_child=ONE_MODEL_AT_A_TIME.release,
    )

# With these, from_pretrained reports missing and misshapen tensors, where it would otherwise fill them at
# random or fail without saying why; require_all_tensors reads the report.
# Pickles are read by the loader that runs nothing in them.
# A config may ask for plain tuples as results, for which transformers' own models raise errors.
STRICT = dict.fromkeys(
    ("weights_only", "output_loading_info", "ignore_mismatched_sizes", "return_dict"), True
)

_USE = "use a decoder such as Llama, Mistral, Qwen or Gemma"
# Upper limits of numbers from which transformers builds a list or a dictionary when it reads a config.
_MOST = {"num_hidden_layers": MOST_LAYERS, "n_layer": MOST_LAYERS, "num_labels": 10_000}
_LABELS = ("id2label", "label2id")
_NAMES = (WEIGHTS_NAME, PICKLED_NAME)
_FLOATS = ("F", "BF", "float", "bfloat")  # prefixes of floating dtypes' names, in headers and in torch
_PICKLES = ("*.bin", "*.pt", "*.pth")
_TOKENIZER_JSON = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_GENERAL = ("TokenizersBackend", "PreTrainedTokenizerFast")  # one class, by its name and by its old one


def read_base_config(folder: Path, *, trust_remote_code: bool = False) -> PreTrainedConfig:
    """The config of a causal language model. Raises MedusaError when it is damaged or of another kind."""
    settings = read_config(folder)
    if (value := next(_impossible(settings), None)) is not None:
        raise _cannot_load(folder, f"its {CONFIG_NAME} names {value}: {AGAIN}")
    with _named(folder):
        _check_end_tokens(folder)
        require_rope_factors(settings, f"{CONFIG_NAME}: ")
    try:
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except Exception as error:  # a wrong value in the file can raise anything
        raise _cannot_load(folder, _config_fault(settings, error)) from error
    _require_language_model(config, trust_remote_code)
    text = config.get_text_config(decoder=True)
    layers = getattr(text, "num_hidden_layers", 1)
    if not 1 <= layers <= MOST_LAYERS:  # each would be built, only to be counted
        fault = f"its {CONFIG_NAME} names {layers} layers, models have 1 to {MOST_LAYERS}"
        raise _cannot_load(folder, f"{fault}: {AGAIN}")
    for name in ("hidden_size", "max_position_embeddings"):
        size = getattr(text, name, None)
        if isinstance(size, int) and size < 1:
            raise _cannot_load(folder, f"its {CONFIG_NAME} names a {name} of {size}: {AGAIN}")
    return config


def _impossible(config: Any) -> Iterator[str]:
    """A phrase for each value in a config, or in a part of it, that no model has."""
    if not isinstance(config, dict):
        return
    for key, value in config.items():
        if isinstance(value, int) and value > _MOST.get(key, value):
            what = key.removeprefix("num_").removeprefix("n_").replace("hidden_", "").rstrip("s") + "s"
            yield f"{shortened(str(value), 20)} {what}, models have 1 to {_MOST[key]}"
        if key in _LABELS and isinstance(value, dict) and len(value) > _MOST["num_labels"]:
            yield f"{len(value)} labels, models have 1 to {_MOST['num_labels']}"
        if isinstance(value, float) and math.isnan(value):
            yield f"NaN as {key}"
        yield from _impossible(value)


def _check_end_tokens(folder: Path) -> None:
    """Raise MedusaError unless the tokens that end a text are numbers, which transformers does not check."""
    file = folder / GENERATION_NAME
    ends = read_json(file).get("eos_token_id") if file.is_file() else None
    if ends is not None and not all(type(end) is int for end in (ends if isinstance(ends, list) else [ends])):
        raise MedusaError(
            f"eos_token_id in its {GENERATION_NAME} is {shortened(repr(ends), 60)}: "
            "write the number of a token or a list of numbers"
        )


def check_weights(folder: Path) -> None:
    """Raise MedusaError when the weights are missing, cut off, damaged or of a kind that weights never have.

    Reads their headers alone.
    """
    with _named(folder):
        files = next(filter(None, (shards(folder, name, lambda _: True) for name in _NAMES)), [])
        if not files:
            raise MedusaError(_no_weights(folder))
        packed = "quantization_config" in read_config(folder)  # quantized weights are integers
        for file in files:
            pickled = file.suffix == ".bin"
            try:
                kinds = _kinds(file, pickled)
            except MedusaError:
                raise
            except Exception as error:  # safetensors' own, the system's, or a header that Python cannot read
                raise MedusaError((pickle_fault if pickled else file_fault)(file, error)) from error
            if not packed:
                _require_floats(file, kinds)


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Turn errors of its files into errors of the model in ``folder``."""
    try:
        yield
    except MedusaError as error:
        raise _cannot_load(folder, str(error)) from error


def _kinds(file: Path, pickled: bool) -> dict[str, str]:
    """What kind of numbers each tensor of a file holds, in the words of its format."""
    if not pickled:
        with safe_open(file, framework="pt") as opened:
            return {name: opened.get_slice(name).get_dtype() for name in opened.keys()}  # noqa: SIM118
    state = load_pickled(file, "meta", mapped=True)
    if not isinstance(state, dict) or not all(isinstance(t, torch.Tensor) for t in state.values()):
        raise MedusaError(f"{file.name} is not a dictionary of tensors: {AGAIN}")
    return {str(name): str(tensor.dtype).removeprefix("torch.") for name, tensor in state.items()}


def _require_floats(file: Path, kinds: dict[str, str]) -> None:
    """Raise MedusaError for weights of whole numbers or truth values, which transformers would convert."""
    for name, kind in sorted(kinds.items()):
        if name.endswith(".weight") and not kind.startswith(_FLOATS):
            fault = f"{name} in {file.name} is of kind {kind}, weights are floating-point numbers"
            raise MedusaError(f"{fault}: {AGAIN}")


@contextmanager
def reading_base(folder: Path) -> Iterator[None]:
    """Let one thread load at a time, and turn an exception of transformers into a MedusaError.

    Running out of memory is passed on as it is, since it is no fault of the files.
    """
    try:
        with ONE_MODEL_AT_A_TIME:
            yield
    except MedusaError:
        raise
    except Exception as error:  # as in read_base_config: a config's values go through all of a model's code
        if is_out_of_memory(error):
            raise
        why = f"{reason_of(error)}; check its {CONFIG_NAME}, or fetch the model again"
        raise _cannot_load(folder, why) from error


def require_all_tensors(folder: Path, report: dict[str, Any]) -> None:
    """Raise MedusaError when a load with ``STRICT`` reports tensors that are missing or of another shape."""
    if missing := sorted(report["missing_keys"]):
        lacks = f"the weights in {folder} lack {', '.join(missing[:4])}"
        raise MedusaError(f"{lacks}: fetch or save the model again")
    if wrong := sorted(report["mismatched_keys"]):
        name, has, wanted = wrong[0]
        sizes = f"{name} is {list(has)} in the weights, {list(wanted)} by {CONFIG_NAME}"
        raise _cannot_load(folder, f"{sizes}: fetch both from one source")


def load_base(folder: Path, **options: Any) -> PreTrainedModel:
    """The causal language model in a folder, ``options`` as for ``from_pretrained``. Raises MedusaError."""
    kind = model_class(read_base_config(folder))
    check_weights(folder)
    with reading_base(folder):
        loaded: Any = kind.from_pretrained(folder, **STRICT, **options)  # a pair, as STRICT asks for
    model, report = loaded
    require_all_tensors(folder, report)
    return model


def empty_base(folder: Path, *, trust_remote_code: bool = False) -> PreTrainedModel:
    """The model on the meta device: its shapes without its weights. Raises MedusaError."""
    config = read_base_config(folder, trust_remote_code=trust_remote_code)
    with reading_base(folder), torch.device("meta"):
        return model_class(config).from_config(config, trust_remote_code=trust_remote_code)


def model_class(config: PreTrainedConfig) -> type[AutoModelForCausalLM | AutoModelForMultimodalLM]:
    """The class whose ``from_pretrained`` loads it: another for models that also read pictures or sound."""
    if _reads_text_alone(config) or type(config) not in transformers.MODEL_FOR_MULTIMODAL_LM_MAPPING:
        return transformers.AutoModelForCausalLM
    return transformers.AutoModelForMultimodalLM


def load_tokenizer(folder: Path, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase | None:
    """The tokenizer beside a model, None where there is none. Raises MedusaError when it cannot be read."""
    if not any((folder / name).is_file() for name in _TOKENIZER_JSON[:2]):
        return None
    try:
        for name in _TOKENIZER_JSON:
            if (folder / name).is_file():
                read_json(folder / name)
        if _is_plain_tokenizer(folder):
            tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
        else:
            load = transformers.AutoTokenizer.from_pretrained
            tokenizer = load(folder, trust_remote_code=trust_remote_code)
        tokenizer.decode(tokenizer("a", verbose=False)["input_ids"])  # some settings show their faults here
        if tokenizer.vocab_size == 0:
            raise MedusaError(f"its vocabulary is empty: {AGAIN}")
        return tokenizer
    except Exception as error:  # as in read_base_config, and the tokenizers library raises Exception itself
        why = str(error) if isinstance(error, MedusaError) else _tokenizer_fault(folder, error)
        raise MedusaError(f"cannot load the tokenizer in {folder}: {why}") from error


def _is_plain_tokenizer(folder: Path) -> bool:
    """Whether AutoTokenizer would take the general class, which it finds out only by importing models."""
    vocabulary, settings = (folder / name for name in _TOKENIZER_JSON[:2])
    if not vocabulary.is_file() or not settings.is_file() or plain_llama_config(folder) is None:
        return False
    config = read_json(settings)
    return config.get("tokenizer_class") in _GENERAL and "auto_map" not in config


def _cannot_load(folder: Path, why: str) -> MedusaError:
    return MedusaError(f"cannot load a causal language model from {folder}: {why}")


def is_known_kind(kind: object) -> bool:
    """Whether transformers itself has the ``model_type`` that a config names."""
    return isinstance(kind, str) and kind in transformers.CONFIG_MAPPING


def _config_fault(config: dict[str, Any], error: Exception) -> str:
    kind = config.get("model_type")
    if kind is None:
        return f"its {CONFIG_NAME} names no model_type: {AGAIN}"
    if is_known_kind(kind):
        return f"its {CONFIG_NAME} makes no sense ({reason_of(error)}): {AGAIN}"
    if "auto_map" in config:
        return (
            f"it brings Python code of its own for {kind!r}, which is not run unless you trust its authors: "
            "use --trust-remote-code, or a model that transformers knows"
        )
    return (
        f"its {CONFIG_NAME} has model_type {kind!r}, which transformers {transformers.__version__} does not "
        f"know: upgrade transformers, or {_USE}"
    )


def _require_language_model(config: PreTrainedConfig, trust_remote_code: bool) -> None:
    brought = trust_remote_code and "AutoModelForCausalLM" in getattr(config, "auto_map", {})
    if brought or _reads_text_alone(config):
        return
    kind = config.model_type
    if config.is_encoder_decoder:
        raise MedusaError(f"{kind} is an encoder–decoder: use a decoder-only language model, such as Llama")
    if type(config) not in transformers.MODEL_FOR_MULTIMODAL_LM_MAPPING:
        raise MedusaError(f"{kind} is not a causal language model, so it cannot continue a text: {_USE}")


def _reads_text_alone(config: PreTrainedConfig) -> bool:
    return type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING


def _tokenizer_fault(folder: Path, error: Exception) -> str:
    vocabulary = _TOKENIZER_JSON[0]
    if "trust_remote_code" in str(error):
        return "it needs Python code of its own: use --trust-remote-code if you trust its author"
    if (folder / vocabulary).is_file():
        return f"{reason_of(error)}; fetch or save the tokenizer's files again"
    if (pieces := sorted(file.name for file in folder.glob("*.model"))) and not find_spec("sentencepiece"):
        return f"{pieces[0]} cannot be read: pip install sentencepiece, or fetch a {vocabulary}"
    return f"{vocabulary}, its vocabulary, is missing: fetch or save the tokenizer's files again"


def _no_weights(folder: Path) -> str:
    if pickles := sorted(file.name for pattern in _PICKLES for file in folder.glob(pattern)):
        return (
            f"its weights are in {pickles[0]}, and of pickles only {PICKLED_NAME} or shards with their index "
            "are read: save the model as safetensors, or fetch a revision that has them"
        )
    if other := sorted(file.name for file in folder.glob("*.gguf")):
        return f"its weights are in {other[0]}, which is for llama.cpp: fetch the model's safetensors"
    return f"it has no {WEIGHTS_NAME}: {AGAIN}"
