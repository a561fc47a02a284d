"""Map the public names of heads' tensors to one record and back; strict, as gaps would be filled at random.

i = head, j = layer, L = number of layers. v1: ``{i}.{j}.linear.weight/bias`` and ``{i}.{L}.weight``; v2
leaves the last one out and uses the base's LM head. vLLM: ``blocks.{i}.layers.{j}.weight/bias``,
``lm_heads.{i}.weight`` or one shared ``lm_head.weight``, and perhaps a ``token_map`` of the tokens that the
heads know. Number and depth come from the tensors, never from a config.

K heads · L layers · V vocabulary · d hidden size
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from medusa_core.checkpoints.files import State
from medusa_core.errors import MedusaError

_BLOCK = re.compile(r"(\d+)\.(\d+)\.linear\.(weight|bias)")
_LAST = re.compile(r"(\d+)\.(\d+)\.weight")
_VLLM_BLOCK = re.compile(r"blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)")
_VLLM_LAST = re.compile(r"lm_heads\.(\d+)\.weight")
TOKEN_MAP = "token_map"
SHARED_LAST = "lm_head.weight"
_AGAIN = "fetch or convert the heads again"

_Blocks = dict[tuple[int, int, str], torch.Tensor]
_Last = dict[tuple[int, int | None], torch.Tensor]


@dataclass(frozen=True)
class HeadTensors:
    """Heads as they lie in a file, in its dtype.

    ``block_weight`` [K, L, d, d], ``block_bias`` [K, L, d], ``lm_weight``: [K, V, d], or [V, d] when the file
    has one for all heads, or None when it is the base's. With a ``token_map`` [V'] last layers have V' rows.
    """

    block_weight: torch.Tensor
    block_bias: torch.Tensor
    lm_weight: torch.Tensor | None
    token_map: torch.Tensor | None = None
    notes: tuple[str, ...] = ()  # where the file's config contradicts its tensors

    @property
    def count(self) -> int:
        return self.block_weight.shape[0]

    @property
    def layers(self) -> int:
        return self.block_weight.shape[1]

    @property
    def width(self) -> int:
        return self.block_weight.shape[-1]


@dataclass(frozen=True)
class _Found:
    """Tensors of a file by number, and the names that the file has for them."""

    source: str
    blocks: _Blocks
    last: _Last  # keys are (head, L); for vLLM's files, which do not name L, (head, None)
    block_name: Callable[[int, int, str], str]
    last_name: Callable[[int, int | None], str]


def from_public(state: State, source: str) -> HeadTensors:
    """Tensors under the names of v1 or v2. Raises MedusaError that names the first fault."""
    blocks: _Blocks = {}
    last: _Last = {}
    for name, tensor in state.items():
        if match := _BLOCK.fullmatch(str(name)):
            blocks[int(match[1]), int(match[2]), match[3]] = tensor
        elif match := _LAST.fullmatch(str(name)):
            last[int(match[1]), int(match[2])] = tensor
        else:
            raise _stranger(source, name)
    return _assemble(_Found(source, blocks, last, "{}.{}.linear.{}".format, "{}.{}.weight".format))


def from_vllm(state: State, source: str) -> HeadTensors:
    """Tensors under vLLM's names. Raises MedusaError that names the first fault."""
    blocks: _Blocks = {}
    last: _Last = {}
    shared: torch.Tensor | None = None
    token_map: torch.Tensor | None = None
    for given, tensor in state.items():
        name = str(given).removeprefix("medusa_heads.")
        if match := _VLLM_BLOCK.fullmatch(name):
            blocks[int(match[1]), int(match[2]), match[3]] = tensor
        elif match := _VLLM_LAST.fullmatch(name):
            last[int(match[1]), None] = tensor
        elif name == SHARED_LAST:
            shared = tensor
        elif name == TOKEN_MAP:
            token_map = tensor
        else:
            raise _stranger(source, given)
    if not any(kind == "bias" for *_, kind in blocks):
        # Blocks without biases are blocks whose biases are zero.
        blocks |= {(i, j, "bias"): w.new_zeros(w.shape[:1]) for (i, j, _), w in blocks.items()}
    if shared is None and list(last) == [(0, None)] and max((i for i, *_ in blocks), default=0) > 0:
        shared = last.pop((0, None))  # of `original_lm_head`, where the first stands for all
    if shared is not None and last:
        raise MedusaError(f"{source} has both {SHARED_LAST} and lm_heads, it must be one of them: {_AGAIN}")
    if shared is not None and (shared.ndim != 2 or not shared.is_floating_point()):
        is_now = f"{source}: {SHARED_LAST} has shape {list(shared.shape)}"
        raise MedusaError(f"{is_now}, it must be a matrix [V, d]: {_AGAIN}")
    found = _Found(source, blocks, last, "blocks.{}.layers.{}.{}".format, lambda i, _: f"lm_heads.{i}.weight")
    return _assemble(found, shared, token_map)


def to_public(tensors: HeadTensors) -> State:
    """Names of v1, or of v2 where the LM head is the base's.

    Raises MedusaError for heads of a shortened vocabulary, which neither can hold.
    """
    if tensors.token_map is not None:
        raise MedusaError(
            f"these heads know only {len(tensors.token_map)} tokens of their base, which only vLLM's format "
            "can say: convert them to vllm"
        )
    state = _named(tensors, "{}.{}.linear.{}")
    if tensors.lm_weight is not None:
        for i in range(tensors.count):
            last = tensors.lm_weight[i] if tensors.lm_weight.ndim == 3 else tensors.lm_weight
            state[f"{i}.{tensors.layers}.weight"] = last.clone()
    return state


def to_vllm(tensors: HeadTensors) -> State:
    """Names of vLLM; the heads need an LM head of their own, or one for all, in ``tensors``."""
    if tensors.lm_weight is None:
        raise ValueError("vLLM's format holds the LM head: put the base's into the tensors")
    state = _named(tensors, "blocks.{}.layers.{}.{}")
    if tensors.lm_weight.ndim == 2:
        state[SHARED_LAST] = tensors.lm_weight.clone()
    else:
        state |= {f"lm_heads.{i}.weight": last.clone() for i, last in enumerate(tensors.lm_weight)}
    if tensors.token_map is not None:
        state[TOKEN_MAP] = tensors.token_map.clone()
    return state


def _named(tensors: HeadTensors, name: str) -> State:
    state: State = {}
    for i in range(tensors.count):
        for j in range(tensors.layers):
            # Copied, since the writers refuse views into the stacked tensors.
            state[name.format(i, j, "weight")] = tensors.block_weight[i, j].clone()
            state[name.format(i, j, "bias")] = tensors.block_bias[i, j].clone()
    return state


def _stranger(source: str, name: object) -> MedusaError:
    return MedusaError(f"{source} holds a tensor {name!r} that belongs to no Medusa head: {_AGAIN}")


def _assemble(
    found: _Found, shared: torch.Tensor | None = None, token_map: torch.Tensor | None = None
) -> HeadTensors:
    source, blocks, last = found.source, found.blocks, found.last
    if not blocks:
        raise MedusaError(
            f"{source} holds no Medusa heads, no tensor is called {found.block_name(0, 0, 'weight')}: "
            "name another folder"
        )
    # Counted, not the largest number: a stray name cannot ask for a billion heads.
    count, layers = len({head for head, *_ in blocks}), len({layer for _, layer, _ in blocks})
    numbered = {(i, layers if j is None else j): tensor for (i, j), tensor in last.items()}
    wanted = [(i, j, kind) for i in range(count) for j in range(layers) for kind in ("weight", "bias")]
    missing = [found.block_name(*key) for key in wanted if key not in blocks]
    if numbered:
        missing += [found.last_name(i, layers) for i in range(count) if (i, layers) not in numbered]
    has = f"{source} has {count} heads of {layers} layers"
    if missing:
        raise MedusaError(f"{has} but lacks {', '.join(missing[:4])}: {_AGAIN}")
    if extra := [found.last_name(i, j) for i, j in numbered if i >= count or j != layers]:
        raise MedusaError(f"{has}, to which {extra[0]!r} does not belong: {_AGAIN}")
    stacked = _stack(source, [numbered[i, layers] for i in range(count)], count) if numbered else None
    if stacked is not None and stacked.ndim != 4:
        shape = list(stacked.shape[2:])
        raise MedusaError(f"the last layers in {source} have shape {shape}, not [V, d]: {_AGAIN}")
    tensors = HeadTensors(
        block_weight=_stack(source, [blocks[key] for key in wanted if key[2] == "weight"], count),
        block_bias=_stack(source, [blocks[key] for key in wanted if key[2] == "bias"], count),
        lm_weight=stacked[:, 0] if stacked is not None else shared,
        token_map=token_map,
    )
    _check_widths(source, tensors)
    return tensors if token_map is None else _with_token_map(source, tensors, token_map)


def _stack(source: str, tensors: list[torch.Tensor], count: int) -> torch.Tensor:
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) != 1:
        raise MedusaError(f"the heads in {source} differ in shape, {sorted(shapes)}: {_AGAIN}")
    kinds = {tensor.dtype for tensor in tensors}
    if len(kinds) != 1 or not tensors[0].is_floating_point():
        fault = f"the heads in {source} are {', '.join(sorted(map(str, kinds)))}".replace("torch.", "")
        raise MedusaError(f"{fault}: they must be of one floating-point kind, {_AGAIN}")
    return torch.stack(tensors).unflatten(0, (count, -1))


def _check_widths(source: str, tensors: HeadTensors) -> None:
    width, weight = tensors.block_bias.shape[-1], tensors.block_weight.shape[2:]
    last = None if tensors.lm_weight is None else tensors.lm_weight.shape[-2:]
    if weight != (width, width) or (last is not None and last[1] != width):
        raise MedusaError(
            f"the heads in {source} do not fit together: biases are {width} wide, blocks {list(weight)}"
            + (f", last layers {list(last)}" if last is not None else "")
            + f"; {_AGAIN}"
        )


def _with_token_map(source: str, tensors: HeadTensors, tokens: torch.Tensor) -> HeadTensors:
    """The heads of a shortened vocabulary checked; whole ones without the map, whose rows they all have."""
    rows = 0 if tensors.lm_weight is None else tensors.lm_weight.shape[-2]
    whole = tokens.ndim == 1 and not tokens.is_floating_point() and tokens.dtype != torch.bool
    if not whole or rows < len(tokens) or len(tokens.unique()) != len(tokens) or int(tokens.min()) < 0:
        raise MedusaError(
            f"the {TOKEN_MAP} in {source} has shape {list(tokens.shape)}, the last layers {rows} rows: "
            f"it must name one token, each once, for every row; {_AGAIN}"
        )
    if rows == len(tokens):
        return tensors
    note = f"the {TOKEN_MAP} of {len(tokens)} tokens is left out: the last layers have all {rows} rows"
    return replace(tensors, token_map=None, notes=(note,))
