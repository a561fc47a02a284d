"""The structures of ``model.h``, field by field; compiling fails where they differ."""

from __future__ import annotations

import ctypes
from typing import ClassVar

_NUMBER, _FLOAT, _ADDRESS = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
_Fields = list[tuple[str, type]]


def _numbers(*names: str) -> _Fields:
    return [(name, _NUMBER) for name in names]


def _addresses(*names: str) -> _Fields:
    return [(name, _ADDRESS) for name in names]


class Linear(ctypes.Structure):
    """A weight and its bias, which may be absent."""

    _fields_: ClassVar[_Fields] = _addresses("weight", "bias")


class Layer(ctypes.Structure):
    """One decoder layer."""

    _fields_: ClassVar[_Fields] = [
        *_addresses("before_attention", "query_norm", "key_norm", "before_mlp", "of_embedding"),
        *[(name, Linear) for name in ("qkv", "out", "gate_up", "down")],
        *_numbers("rotates"),
    ]


class Model(ctypes.Structure):
    """Sizes and weights of a model."""

    _fields_: ClassVar[_Fields] = [
        *_numbers("hidden", "inner", "query_heads", "key_heads", "head_size", "rotated"),
        *_numbers("layers", "vocabulary", "outputs", "tiles", "tiled"),
        *[(name, _FLOAT) for name in ("scale", "floor", "head_floor")],
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

    held: tuple[object, ...] = ()  # what must live as long as the addresses

    _fields_: ClassVar[_Fields] = [
        *_numbers("rows", "parts", "threads", "rows_at_once"),
        *_addresses("tokens", "positions", "place", "cos", "sin"),
        ("part", ctypes.POINTER(Part)),
        *_addresses("features", "work", "scores", "logits", "hidden"),
        *[(name, ctypes.POINTER(_ADDRESS)) for name in ("states", "queries")],
    ]


class Heads(ctypes.Structure):
    """The weights of Medusa heads."""

    _fields_: ClassVar[_Fields] = [
        *_numbers("heads", "blocks", "hidden", "vocabulary", "tiles"),
        *_addresses("weight", "bias"),
        *[(name, ctypes.POINTER(_ADDRESS)) for name in ("last", "scale")],
    ]


class Greedy(ctypes.Structure):
    """A whole greedy step of one text."""

    _fields_: ClassVar[_Fields] = [
        ("model", ctypes.POINTER(Model)),
        ("batch", ctypes.POINTER(Batch)),
        ("heads", ctypes.POINTER(Heads)),
        *_numbers("nodes", "levels", "ranks", "position"),
        *_addresses("parents", "depths", "places"),
        *_addresses("tokens", "positions", "choices", "next", "path"),
        *_addresses("logp", "next_logp", "guesses", "guesses_logp", "work"),
        *[(name, ctypes.c_double) for name in ("verify", "propose")],
    ]


class Answers(ctypes.Structure):
    """What a trace holds of the logits of some rows."""

    _fields_: ClassVar[_Fields] = [
        *_numbers("rows", "vocabulary", "count", "heats", "threads"),
        ("guard", _FLOAT),
        *_addresses("logits", "heat", "halves", "tokens", "gaps", "largest", "log_z", "entropy", "work"),
    ]


STRUCTURES = Linear, Layer, Model, Part, Batch, Heads, Greedy, Answers
