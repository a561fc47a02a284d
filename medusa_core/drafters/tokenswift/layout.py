"""Map the public names of TokenSwift's tensors to heads and back; strict, as gaps would be filled at random.

i = head: ``model.medusa_layers.{i}.linear.weight`` [d, d], ``.input_layernorm.weight`` [d] in front of it and
``.post_layernorm.weight`` [d] in front of the LM head. In the public code they lie in the checkpoint of the
target, whose config says ``medusa_heads``; a folder may as well hold them alone.

K heads · V vocabulary · d hidden size
"""

from __future__ import annotations

import re
from typing import Any

import torch

from medusa_core.checkpoints.files import State, require_finite, require_tensors
from medusa_core.checkpoints.heads import require_width
from medusa_core.drafters.tokenswift.heads import TokenSwiftHeads
from medusa_core.errors import MedusaError

COUNT_KEY = "medusa_heads"  # in the config
PREFIX = "model.medusa_layers."
_MOST = 64  # heads
_NUMBER = re.compile(re.escape(PREFIX) + r"(\d+)\.")
_PARTS = ("linear", "input_layernorm", "post_layernorm")
_AGAIN = "fetch or save them again"


def count_of(config: dict[str, Any], source: str) -> int:
    """K, as the config says. Raises MedusaError for an impossible one."""
    count = config.get(COUNT_KEY)
    if type(count) is not int or not 1 <= count <= _MOST:
        raise MedusaError(
            f"the config.json of the heads in {source} says {COUNT_KEY} {count}: it must be a whole number "
            f"from 1 to {_MOST}, {_AGAIN}"
        )
    return count


def from_public(state: State, count: int, lm_head: torch.Tensor, base: Any, source: str) -> TokenSwiftHeads:
    """Heads out of the tensors of a file, on the device of the base's LM head and in its dtype.

    ``base`` is the base's config for text. Raises MedusaError that names the first fault: a wrong number of
    heads, a missing or unknown tensor, a shape, NaN.
    """
    epsilon = epsilon_of(base)
    _check_count(state, count, source)
    width, first = lm_head.shape[1], state.get(_name(0, "linear"))
    if first is not None:
        require_width(source, next(iter(first.shape), 0), width)
    shapes = {
        _name(head, part): [width, width] if part == "linear" else [width]
        for head in range(count)
        for part in _PARTS
    }
    require_tensors(f"the file in {source}", state, shapes, _AGAIN)
    require_finite(f"the heads in {source}", state, lm_head.dtype)
    linear, before, after = (_stacked(state, count, part).to(lm_head) for part in _PARTS)
    return TokenSwiftHeads(linear, before, after, lm_head.detach(), epsilon)


def epsilon_of(base: Any) -> float:
    """The ε of the heads' norms, which is their base's. Raises MedusaError for a base without one."""
    epsilon = getattr(base, "rms_norm_eps", None)
    if epsilon is None:
        raise MedusaError(
            f"TokenSwift's heads end in an RMS norm as their base does, and {base.model_type} has none: use "
            "a base such as Llama or Qwen"
        )
    return float(epsilon)


def to_public(heads: TokenSwiftHeads) -> State:
    """All tensors under the public names."""
    stacks = zip(_PARTS, (heads.linear, heads.before, heads.after), strict=True)
    return {
        _name(head, part): stack[head].detach().clone()
        for part, stack in stacks
        for head in range(len(stack))
    }


def numbers(count: int, width: int) -> int:
    """Numbers in K heads."""
    return count * (width * width + 2 * width)


def _name(head: int, part: str) -> str:
    return f"{PREFIX}{head}.{part}.weight"


def _stacked(state: State, count: int, part: str) -> torch.Tensor:
    return torch.stack([state[_name(head, part)] for head in range(count)])


def _check_count(state: State, count: int, source: str) -> None:
    held = len({match[1] for name in state if (match := _NUMBER.match(str(name)))})
    if held == 0:
        raise MedusaError(
            f"{source} holds no heads, no tensor is called {PREFIX}0.linear.weight: name another folder"
        )
    if held != count:
        raise MedusaError(
            f"the file in {source} holds {held} heads, its config.json says {COUNT_KEY} {count}: {_AGAIN}"
        )
