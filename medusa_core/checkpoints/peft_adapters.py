"""Low-rank adapters of every kind, read and merged by peft. Imported only where one is not plain.

Only safetensors are read, since other adapter files are pickles. Paper §2.2.2.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from peft import LoraConfig, PeftModel, get_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel

from medusa_core.checkpoints.adapter_patterns import check_patterns
from medusa_core.checkpoints.files import AGAIN, file_fault, read_json
from medusa_core.checkpoints.lora import untie
from medusa_core.checkpoints.names import ADAPTER_CONFIG, ADAPTER_NAME
from medusa_core.errors import MedusaError, is_out_of_memory, reason_of

_OTHER = "give --model the base these heads were trained with"


def apply_with_peft(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """The model with the adapter in ``folder`` merged into its weights.

    Raises MedusaError when the adapter cannot be read or belongs to another model.
    """
    file = folder / ADAPTER_NAME
    config = _read_config(folder, [name for name, _ in model.named_modules()])
    try:
        with safe_open(file, framework="pt") as opened:
            brought = set(opened.keys())
    except (SafetensorError, OSError) as error:
        raise MedusaError(f"cannot read the adapter in {folder}: {file_fault(file, error)}") from error
    try:
        targets, head = config.target_modules or (), model.get_output_embeddings()
        if any(module is head and name in targets for name, module in model.named_modules()):
            untie(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # between peft and transformers, not for our users
            adapted = PeftModel.from_pretrained(
                model, folder, config=config, is_trainable=False, torch_device="cpu"
            )
            _require_all(
                set(get_peft_model_state_dict(adapted, save_embedding_layers=False)), brought, folder
            )
            return cast("PreTrainedModel", adapted.merge_and_unload(safe_merge=True))
    except (OSError, ValueError, LookupError, RuntimeError, TypeError, AttributeError, ImportError) as error:
        if isinstance(error, MedusaError) or is_out_of_memory(error):
            raise
        raise MedusaError(
            f"the adapter in {folder} does not fit the base model ({reason_of(error)}): {_OTHER}"
        ) from error


def _read_config(folder: Path, modules: Sequence[str]) -> LoraConfig:
    try:
        check_patterns(read_json(folder / ADAPTER_CONFIG), modules, str(folder / ADAPTER_CONFIG))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # settings of a newer peft that this one leaves out
            return LoraConfig.from_pretrained(str(folder))
    except MedusaError:
        raise
    except Exception as error:  # peft checks little of what the file says
        raise MedusaError(
            f"{folder / ADAPTER_CONFIG} is no config of a LoRA ({reason_of(error)}): {AGAIN}"
        ) from error


def _require_all(wanted: set[str], brought: set[str], folder: Path) -> None:
    """Raise MedusaError for missing and unexpected keys; peft zero-fills the first and ignores the second."""
    for names, fault in ((wanted - brought, "lacks"), (brought - wanted, "has no place in the base for")):
        if names:
            raise MedusaError(
                f"the adapter in {folder} does not fit the base model, it {fault} {min(names)}: {_OTHER}"
            )


@contextmanager
def without_deprecations() -> Iterator[None]:
    """Around peft's constructors, which read an attribute by its old name: no setting stops them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        yield
