"""The weights of a base out of its folder: placed, packed as asked, with reports of the progress.

Knows nothing about Medusa, and leaves it to ``checkpoints.base`` what can be wrong with the files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from medusa_core.checkpoints.base import (
    STRICT,
    check_weights,
    model_class,
    read_base_config,
    reading_base,
    require_all_tensors,
)
from medusa_core.errors import MedusaError, reason_of
from medusa_core.library_messages import quiet_bitsandbytes
from medusa_core.loading.devices import Placement
from medusa_core.model.context import LongerContext, require_stretched, stretch
from medusa_core.model.quantization import bitsandbytes_config, packing_for, packing_of

_BAR = "Loading weights"  # as transformers calls the bar that moves with each tensor

Share = Callable[[float], None]  # is told which share of the weights is loaded


def read_model(
    folder: Path,
    placement: Placement,
    quantize: str,
    code: bool,
    progress: Share,
    longer: LongerContext | None = None,
) -> PreTrainedModel:
    """The causal language model in ``folder``, for a ``longer`` context than its own where one is given.

    ``code`` lets Python that lies there run. Raises MedusaError, and the errors of an allocation that failed.
    """
    config = read_base_config(folder, trust_remote_code=code)
    packed = packing_of(config)
    wanted = packing_for(quantize)
    if packed and wanted:
        raise MedusaError(f"the weights in {folder} are {packed.words()} already: drop --quantize {quantize}")
    check_weights(folder)
    if packed or wanted:
        quiet_bitsandbytes()  # it also logs each product that it rounds
    # Packed weights cannot be moved once they are read.
    at_once = {"": placement.device} if packed or wanted else None
    options: dict[str, Any] = STRICT | {
        "dtype": placement.dtype,
        "device_map": placement.device_map or at_once,
        "max_memory": placement.room,
        "trust_remote_code": code,
    }
    if wanted:
        options["quantization_config"] = bitsandbytes_config(quantize, placement.dtype)
    if longer is not None:
        stretch(config.get_text_config(decoder=True), longer)
        # Beside a config, other settings would go to the model itself.
        config.return_dict = options.pop("return_dict")
        options["config"] = config
    with reading_base(folder), weights_watched(progress):
        model, report = _read(model_class(config), folder, options)
    require_all_tensors(folder, report)
    if longer is not None:
        require_stretched(model, longer)
    if not options["device_map"]:
        model.to(placement.device)  # type: ignore[arg-type]  # transformers wraps `to` without its self
    return model


@contextmanager
def weights_watched(progress: Share) -> Iterator[None]:
    """Tell ``progress`` of each tensor that this thread reads with transformers; what it raises ends that."""
    thread, active = threading.get_ident(), True

    def hook(factory: Callable[..., Any], args: tuple, options: dict[str, Any]) -> Any:
        if active and options.get("desc") == _BAR and threading.get_ident() == thread:
            return _counted(args[0], progress)
        return before(factory, args, options) if before else factory(*args, **options)

    before = transformers_logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        active = False  # where two loads overlap, the end of the other one may put this hook back
        current = transformers_logging.set_tqdm_hook(before)
        if current is not hook:  # another load began later and still listens
            transformers_logging.set_tqdm_hook(current)


def _counted(tensors: Iterable[Any], progress: Share) -> Iterator[Any]:
    everything = list(tensors)
    for number, tensor in enumerate(everything):
        progress(number / len(everything))
        yield tensor
    progress(1.0)


def _read(kind: Any, folder: Path, options: dict[str, Any]) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The model and transformers' report on its tensors; sdpa where the model has it, eager elsewhere."""
    try:
        return kind.from_pretrained(folder, attn_implementation="sdpa", **options)
    except ImportError as error:
        missing = f"the model in {folder} needs a package that is not installed"
        raise MedusaError(f"{missing}: {reason_of(error)}") from error
    except ValueError as error:
        if "scaled_dot_product_attention" not in str(error):
            raise
        return kind.from_pretrained(folder, attn_implementation="eager", **options)
