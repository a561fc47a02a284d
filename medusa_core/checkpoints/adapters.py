"""Low-rank adapters that heads bring along: the base of Medusa-2 heads is the model with its adapter.

peft reads and merges them. Only safetensors are read, since other adapter files are pickles. Paper §2.2.2.

peft matches the patterns of an adapter's config against the name of every module, and an untrusted regular
expression may need exponential time. So each is first run on the same names in a process of its own with a
time limit of some seconds; what ends there in time also ends here, since it is the same work.

Finding out whether a model has its adapter needs no peft: its layers carry ``lora_A`` by adapters' names.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from medusa_core.checkpoints.files import AGAIN, read_json, read_tensors, tensor_headers
from medusa_core.checkpoints.names import ADAPTER_CONFIG, ADAPTER_NAME
from medusa_core.errors import MedusaError, is_out_of_memory, missing_package, reason_of, shortened
from medusa_core.library_messages import quiet_bitsandbytes

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PreTrainedModel


_OTHER = "give --model the base these heads were trained with"
SECONDS = 10.0  # for all patterns; those of real adapters take milliseconds
_FIX = "write the names of modules instead, or use another adapter"

# Prints the place and the fault of the first pattern that is not a regular expression.
_TRIAL = """
import json, re, sys
patterns, names = json.load(sys.stdin)
for place, pattern in patterns:
    try:
        expression = re.compile(pattern)
    except Exception as error:
        print(json.dumps([place, str(error)]))
        break
    for name in names:
        expression.match(name)
"""


def apply_adapter(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """The model with the adapter in ``folder`` merged into its weights.

    Raises MedusaError when the adapter cannot be read or belongs to another model, or peft is not installed.
    """
    file = folder / ADAPTER_NAME
    if not file.is_file():
        raise MedusaError(f"{folder} has an adapter's config but no {ADAPTER_NAME}: fetch or save it again")
    quiet_bitsandbytes()
    try:
        from peft import PeftModel, get_peft_model_state_dict  # noqa: PLC0415 - it takes seconds
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    config = _read_config(folder, [name for name, _ in model.named_modules()])
    brought = {header.name for header in tensor_headers(file)}
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
    try:  # transformers passes over an import in it, so that exported code runs without peft
        from peft import LoraConfig  # noqa: PLC0415 - as above

        check_patterns(read_json(folder / ADAPTER_CONFIG), modules, str(folder / ADAPTER_CONFIG))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # settings of a newer peft that this one leaves out
            return LoraConfig.from_pretrained(str(folder))
    except MedusaError:
        raise
    except Exception as error:  # peft checks little of what the file says
        raise MedusaError(
            f"{folder / ADAPTER_CONFIG} is not the config of a LoRA ({reason_of(error)}): {AGAIN}"
        ) from error


def _require_all(wanted: set[str], brought: set[str], folder: Path) -> None:
    """Raise MedusaError for missing and unexpected keys; peft zero-fills the first and ignores the second."""
    for names, fault in ((wanted - brought, "lacks"), (brought - wanted, "has no place in the base for")):
        if names:
            raise MedusaError(
                f"the adapter in {folder} does not fit the base model, it {fault} {min(names)}: {_OTHER}"
            )


def untie(model: Any) -> None:
    """Give the LM head weights of its own where it shares the embedding's: the embedding must not change."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    weight = cast("torch.Tensor", head.weight)
    if weight is embedding.weight:
        head.weight = torch.nn.Parameter(weight.detach().clone(), requires_grad=False)
        model.config.tie_word_embeddings = False


@contextmanager
def without_deprecations() -> Iterator[None]:
    """Silence peft's constructors, which read an attribute by its old name and have no setting for it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        yield


def check_patterns(config: dict[str, Any], names: Sequence[str], source: str) -> None:
    """Raise MedusaError for a pattern that is not a regular expression or does not end on ``names``."""
    patterns = list(_patterns(config))
    if not patterns:
        return
    try:
        # Isolated, so that nothing that lies in the working folder runs.
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _TRIAL],
            input=json.dumps([patterns, list(names)]),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MedusaError(
            f"{source}: its {_keys(patterns)} takes more than {SECONDS:.0f} s to compare with the model's "
            f"modules: {_FIX}"
        ) from error
    if done.stdout:
        place, fault = json.loads(done.stdout)
        raise MedusaError(f"{source}: {place} is not a pattern ({shortened(fault, 80)}): {_FIX}")
    if done.returncode:
        raise MedusaError(f"{source}: its {_keys(patterns)} cannot be compared with the modules: {_FIX}")


def _keys(patterns: Sequence[tuple[str, str]]) -> str:
    return " or ".join(dict.fromkeys(place for place, _ in patterns))


def _patterns(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each pattern's place in a config and the expression that peft makes of it; plain names are left out."""
    for key in ("target_modules", "exclude_modules"):
        if isinstance(value := config.get(key), str) and value != "all-linear":
            yield key, rf"(?:{value})\Z"
    for key, form in (
        ("modules_to_save", r"(^|.*\.){}($|\..*)"),
        ("layers_pattern", r"(?:^|.*?\.){}\.(?P<idx>\d+)\."),
        ("rank_pattern", r"(.*\.)?({})$"),
        ("alpha_pattern", r"(.*\.)?({})$"),
    ):
        value = config.get(key) or ()
        for one in [value] if isinstance(value, str) else value if isinstance(value, list | dict) else ():
            if isinstance(one, str) and not one.replace("_", "").isalnum():
                yield key, form.replace("{}", one)


_PREFIX = "base_model.model."  # prefix of the names in peft's files


def has_loaded(model: torch.nn.Module, folder: Path) -> bool:
    """Whether the adapter beside the heads in ``folder`` is in the model, and switched on.

    Raises MedusaError when the adapter's file cannot be read.
    """
    wanted = read_tensors(folder, ADAPTER_NAME, lambda _: True, "adapter")
    own = dict(model.named_parameters())

    def is_in_model(adapter: str, name: str, tensor: torch.Tensor) -> bool:
        # In the model each tensor's name contains the name of its adapter.
        found = own.get(name.removeprefix(_PREFIX).removesuffix("weight") + f"{adapter}.weight")
        if found is None or found.shape != tensor.shape:
            return False
        return torch.equal(found.detach().cpu(), tensor.to(found.dtype))

    layers: list[Any] = [module for module in model.modules() if hasattr(module, "lora_A")]
    adapters = {name for layer in layers if not layer.disable_adapters for name in layer.active_adapters}
    return bool(wanted) and any(all(is_in_model(name, *item) for item in wanted.items()) for name in adapters)
