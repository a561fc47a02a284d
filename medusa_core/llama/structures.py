"""The structures of ``model.h``, field by field; compiling fails where they differ."""

from __future__ import annotations

import ctypes
from typing import ClassVar

NUMBER, _FLOAT, ADDRESS = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
_Fields = list[tuple[str, type]]

BFLOAT16, FLOAT32, INT8 = range(3)  # kinds of numbers


def _numbers(*names: str) -> _Fields:
    return [(name, NUMBER) for name in names]


def _addresses(*names: str) -> _Fields:
    return [(name, ADDRESS) for name in names]


class Linear(ctypes.Structure):
    """A weight in panels and its bias, which may be absent."""

    _fields_: ClassVar[_Fields] = [
        *_numbers("kind", "inputs", "outputs"),
        *_addresses("panels", "bias", "scales"),
    ]


class Layer(ctypes.Structure):
    """One decoder layer."""

    _fields_: ClassVar[_Fields] = [
        *_addresses("before_attention", "query_norm", "key_norm", "before_mlp", "of_embedding"),
        *[(name, Linear) for name in ("qkv", "out", "gate_up", "down")],
        *_numbers("rotates", "window"),
    ]


class Model(ctypes.Structure):
    """Sizes and weights of a model."""

    _fields_: ClassVar[_Fields] = [
        *_numbers("kind", "hidden", "inner", "query_heads", "key_heads", "head_size", "rotated"),
        *_numbers("layers", "vocabulary"),
        *[(name, _FLOAT) for name in ("scale", "epsilon", "head_epsilon")],
        ("layer", ctypes.POINTER(Layer)),
        *_addresses("embedding", "last_norm"),
        ("head", Linear),
    ]


class Part(ctypes.Structure):
    """One sequence of a forward."""

    _fields_: ClassVar[_Fields] = [
        *_numbers("rows", "length", "slots", "columns"),
        *_addresses("keys", "values", "depths", "seen"),
    ]


class Batch(ctypes.Structure):
    """The rows of a forward, and where its results go."""

    held: tuple[object, ...] = ()  # objects that must live as long as the addresses

    _fields_: ClassVar[_Fields] = [
        *_numbers("rows", "parts", "threads", "kept"),
        *_addresses("tokens", "positions", "place", "cos", "sin"),
        ("part", ctypes.POINTER(Part)),
        *_addresses("features", "work", "logits", "hidden"),
        *[(name, ctypes.POINTER(ADDRESS)) for name in ("states", "queries")],
        *_addresses("choices"),
    ]


class Heads(ctypes.Structure):
    """The weights of Medusa heads."""

    _fields_: ClassVar[_Fields] = [
        *_numbers("heads", "blocks", "hidden", "vocabulary", "kind"),
        *[(name, ctypes.POINTER(Linear)) for name in ("block", "last")],
    ]


class Greedy(ctypes.Structure):
    """A whole greedy step of one text."""

    _fields_: ClassVar[_Fields] = [
        ("model", ctypes.POINTER(Model)),
        ("batch", ctypes.POINTER(Batch)),
        ("heads", ctypes.POINTER(Heads)),
        *_numbers("nodes", "levels", "ranks", "position", "accepted"),
        *_addresses("parents", "depths", "places"),
        *_addresses("tokens", "positions", "choices", "next", "path"),
        *_addresses("logp", "next_logp", "guesses", "guesses_logp", "work"),
        *[(name, ctypes.c_double) for name in ("verify", "propose")],
    ]


ALL = Linear, Layer, Model, Part, Batch, Heads, Greedy
