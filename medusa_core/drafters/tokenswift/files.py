"""Recognises, reads and writes a folder with TokenSwift heads, alone or in their target's checkpoint.

i = head: ``model.medusa_layers.{i}.linear.weight`` [d, d], ``.input_layernorm.weight`` [d] in front of it and
``.post_layernorm.weight`` [d] in front of the LM head. In the public code they lie in the checkpoint of the
target, whose config says ``medusa_heads``; a folder may as well hold them alone. Reading is strict, as gaps
would be filled at random.

K heads · V vocabulary · d hidden size
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from medusa_core.checkpoints.files import (
    AGAIN,
    State,
    headers,
    read_config,
    read_pickled,
    read_tensors,
    require_finite,
    require_tensors,
    whole_number,
)
from medusa_core.checkpoints.heads import require_width, write_config, write_file
from medusa_core.checkpoints.names import BASE_KEY, PICKLED_NAME, WEIGHTS_NAME
from medusa_core.drafters import DraftSize
from medusa_core.drafters.tokenswift.heads import TokenSwiftHeads
from medusa_core.errors import MedusaError

if TYPE_CHECKING:
    from medusa_core.loading.model_size import ModelSize

_COUNT_KEY = "medusa_heads"  # in the config
_PREFIX = "model.medusa_layers."
_MOST = 64  # heads
_PARTS = ("linear", "input_layernorm", "post_layernorm")


def owns(folder: Path) -> bool:
    """Whether the config has a number of such heads, as no other drafter's has.

    Raises MedusaError for a damaged config.
    """
    return _COUNT_KEY in read_config(folder)


def size(folder: Path, base: ModelSize) -> DraftSize:
    """The memory that heads take beside ``base``, by the files' headers or else by the config.

    The cache that they draft over has a fixed size, whatever the text's length. Raises MedusaError.
    """
    count, width = _count_of(folder), base.width
    held = headers(folder, WEIGHTS_NAME, lambda name: name.startswith(_PREFIX))
    return DraftSize(sum(header.count for header in held) or count * (width * width + 2 * width))


def read_heads(folder: Path, lm_head: torch.Tensor, base: Any) -> TokenSwiftHeads:
    """The heads in a folder, on the device of the base's LM head [V, d] and in its dtype.

    ``base`` is the base's config for text. Raises MedusaError that names the first fault: a damaged file, a
    missing or unknown tensor, a shape, NaN.
    """
    count, state, epsilon = _count_of(folder), _read_state(folder), epsilon_of(base)
    width, first = lm_head.shape[1], state.get(_name(0, "linear"))
    if first is not None:
        require_width(folder, next(iter(first.shape), 0), width)
    shapes = {
        _name(head, part): [width, width] if part == "linear" else [width]
        for head in range(count)
        for part in _PARTS
    }
    fix = f"its config.json says {_COUNT_KEY} {count}; fetch or save both again"
    require_tensors(f"the file in {folder}", state, shapes, fix)
    require_finite(f"the heads in {folder}", state, lm_head.dtype)
    linear, before, after = (
        torch.stack([state[_name(head, part)] for head in range(count)]).to(lm_head) for part in _PARTS
    )
    return TokenSwiftHeads(linear, before, after, lm_head.detach(), epsilon)


def save_heads(
    heads: TokenSwiftHeads, folder: Path, base: str, dtype: torch.dtype | None = torch.bfloat16
) -> None:
    """Write heads alone, under the public names; ``base`` is the name of the model they were made for."""
    write_config(folder, {BASE_KEY: base, _COUNT_KEY: heads.count})
    stacks = zip(_PARTS, (heads.linear, heads.before, heads.after), strict=True)
    state = {
        _name(head, part): one.detach().clone().to("cpu", dtype)
        for part, stack in stacks
        for head, one in enumerate(stack)
    }
    write_file(state, folder / WEIGHTS_NAME)


def epsilon_of(base: Any) -> float:
    """The ε of the heads' norms, which is their base's. Raises MedusaError for a base without one."""
    epsilon = getattr(base, "rms_norm_eps", None)
    if epsilon is None:
        raise MedusaError(
            f"TokenSwift's heads end in an RMS norm as their base does, and {base.model_type} has none: use "
            "a base such as Llama or Qwen"
        )
    return float(epsilon)


def _count_of(folder: Path) -> int:
    """K, as the config says. Raises MedusaError for an impossible one."""
    try:
        return whole_number(read_config(folder), _COUNT_KEY, most=_MOST)
    except MedusaError as error:
        raise MedusaError(f"the config.json of the heads in {folder}: {error}; {AGAIN}") from error


def _read_state(folder: Path) -> State:
    """The heads' tensors and no others, under their public names. Raises MedusaError for damaged files."""
    state = read_tensors(folder, WEIGHTS_NAME, lambda name: name.startswith(_PREFIX))
    if not state and (pickled := folder / PICKLED_NAME).is_file():
        held = read_pickled(pickled)
        state = {name: tensor for name, tensor in held.items() if str(name).startswith(_PREFIX)}
    if not state and not any(folder.glob("*.safetensors")):
        raise MedusaError(f"{folder} has no {WEIGHTS_NAME}: fetch or save the heads again")
    return state


def _name(head: int, part: str) -> str:
    return f"{_PREFIX}{head}.{part}.weight"
