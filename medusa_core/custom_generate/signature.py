"""The tokenizer for a decoding loop of transformers' ``generate``, which stop strings need.

``generate`` (transformers 5.24) removes ``tokenizer`` from its arguments before it looks which of them the
given loop wants. So it has none left when it makes a criterion of ``stop_strings``, and fails. In between it
asks for the loop's parameters, and at that moment the tokenizer is put back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, TypeVar

from transformers import GenerationMixin

Loop = TypeVar("Loop", bound=Callable[..., Any])
_TOKENIZER = "tokenizer"


def given_tokenizer(loop: Loop) -> Loop:
    """A decorator for a decoding loop with a parameter ``tokenizer``, to which ``generate`` gives its own."""
    vars(loop)["__signature__"] = _Asked.from_callable(loop)
    return loop


class _Asked(inspect.Signature):
    """The signature of a loop, which acts when ``generate`` asks it for its parameters."""

    @property
    def parameters(self) -> MappingProxyType[str, inspect.Parameter]:
        """The parameters, as of any signature."""
        own = inspect.currentframe()
        asking = own.f_back if own else None
        if (
            asking
            and asking.f_code is inspect.unwrap(GenerationMixin._extract_generation_mode_kwargs).__code__
        ):
            taken, arguments = asking.f_locals.get("generation_mode_kwargs"), asking.f_locals.get("kwargs")
            if isinstance(taken, dict) and isinstance(arguments, dict) and _TOKENIZER in taken:
                arguments[_TOKENIZER] = taken[_TOKENIZER]
        return super().parameters
