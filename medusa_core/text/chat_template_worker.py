"""The process that renders chat templates: a line of JSON in, a line of JSON out, until standard input ends.

It imports jinja2 and nothing of the project. What a template may take is bounded: time by a timer that ends
the process from C, also in the middle of one long operation, and memory by the system where it can. Templates
see what transformers gives them: the same sandbox, filters and globals.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2.ext
from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

if sys.platform != "win32":
    import resource

_MEMORY = 2**30  # bytes of address space, of which Python and jinja2 take some 50 MB


class _Generation(jinja2.ext.Extension):
    """The block that marks what the assistant says: a scope of its own, written as it stands."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own way

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_written"), [], [], body).set_lineno(line)

    def _written(self, caller: Callable[[], str]) -> str:
        return caller()


class _Dictionary:
    """``dict`` for templates, without the methods of the type."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """``namespace`` for templates; names with an underscore in front stay Python's."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # so that a template may set "self"
        own, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _refuse_private(name)
        Namespace.__init__(own, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a template may not set {name!r} on a namespace")


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


@lru_cache(maxsize=8)
def compiled(template: str) -> Template:
    """The template, ready to be rendered. Raises jinja2's errors for one that is none."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _raise,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "dict": _Dictionary(),
        "namespace": _Namespace,
    }
    return environment.from_string(template)


def answer(line: bytes) -> bytes:
    """The reply to one request: the text, or why there is none."""
    try:
        request = json.loads(line)
        text = compiled(request["template"]).render(**request["variables"])
        return json.dumps({"text": text}).encode()
    except MemoryError:
        fault = f"it takes more than {_MEMORY >> 30} GB of memory"
    except RecursionError:
        fault = "it calls itself without end"
    except Exception as error:  # a template can raise whatever Python does
        fault = str(error) or type(error).__name__
    return json.dumps({"fault": fault[:1000]}).encode()


def main(seconds: float) -> None:
    """Answer until standard input ends; ends itself where one answer takes longer than ``seconds``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for who asks
    if sys.platform != "win32":
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        for line in sys.stdin.buffer:
            faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
            reply = answer(line)
            faulthandler.cancel_dump_traceback_later()
            sys.stdout.buffer.write(reply + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]))
