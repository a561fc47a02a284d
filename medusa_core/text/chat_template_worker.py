"""The process that renders chat templates: a line of JSON in, a line of JSON out, until standard input ends.

transformers' own sandbox renders; nothing of the project is imported. What a template may take is bounded:
time by a timer that ends the process from C, also in the middle of one long operation, and memory by the
system where it can.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any

import psutil
from transformers.utils.chat_template_utils import render_jinja_template

if sys.platform != "win32":
    import resource

_MEMORY = 10**9  # bytes of address space, beside what the libraries take


def answer(line: bytes) -> bytes:
    """The reply to one request: the text, or why there is none."""
    try:
        request = json.loads(line)
        messages, variables = request.pop("messages"), request.pop("variables")
        rendered: Any = render_jinja_template([messages], chat_template=request["template"], **variables)
        return json.dumps({"text": rendered[0][0]}).encode()
    except MemoryError:
        fault = f"it takes more than {_MEMORY // 10**9} GB of memory"
    except RecursionError:
        fault = "it calls itself without end"
    except Exception as error:  # a template can raise whatever Python does
        fault = str(error) or type(error).__name__
    return json.dumps({"fault": fault[:1000]}).encode()


def main(seconds: float) -> None:
    """Answer until standard input ends; ends itself where one answer takes longer than ``seconds``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the process that asks
    if sys.platform != "win32":
        most = psutil.Process().memory_info().vms + _MEMORY
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        for line in sys.stdin.buffer:
            faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
            reply = answer(line)
            faulthandler.cancel_dump_traceback_later()
            sys.stdout.buffer.write(reply + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]))
