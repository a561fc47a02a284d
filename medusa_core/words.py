"""Amounts in words: bytes, counts, operations and times with three digits, in decimal units."""

from __future__ import annotations

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def flops_words(flops: float) -> str:
    """Operations, as in "4.29 GFLOP"."""
    return _short(flops, "FLOP")


def bytes_words(count: float) -> str:
    """Bytes, as in "33.6 MB"."""
    return _short(count, "B")


def count_words(count: float) -> str:
    """A number, as in "6.74 B": parameters are counted in billions."""
    return _short(count, "").strip().replace("G", "B")


def rate_words(bandwidth: float) -> str:
    """Bytes a second, as in "1.94 TB/s"."""
    return f"{bytes_words(bandwidth)}/s"


def seconds_words(seconds: float) -> str:
    """A time, as in "17.3 µs"."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{three_digits(seconds / size)} {unit}"
    return f"{three_digits(seconds / 1e-9)} ns"


def _short(value: float, unit: str) -> str:
    for size, prefix in _PREFIXES:
        if value >= 0.9995 * size:  # 999.6 MB are 1.00 GB
            return f"{three_digits(value / size)} {prefix}{unit}"
    return f"{value:.0f} {unit}"


def three_digits(value: float) -> str:
    """A number with three digits, or all of those before its point."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
