"""What an event of the page may be: one of its functions, with values its components can have, and its files.

gradio fetches a file whose path is an address on the web, for every input of every event, and answers values
of a wrong type with a traceback on the owner's terminal. So a body is read and checked here, and gradio gets
it rewritten, so it reads exactly what was checked. Knows gradio's components, but no tab.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

import gradio as gr
from gradio.blocks import BlockFunction
from gradio.utils import get_upload_folder
from starlette.datastructures import Headers

from ui.serving.request_body import RELOAD, RequestRefusedError, read_json

MOST_DEPTH = 32  # levels of nested lists; the page sends five at most
LARGEST_NUMBER = 2**63
MOST_DIGITS = 24  # digits of a refused number in its message
_PAGE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FILE = {"_type": "gradio.FileData"}
_FILE_KEYS = ("path", "url")  # some part of gradio takes a dictionary with either for a file
_NO_UPLOAD = "The request names a file that was not uploaded to this page: upload it first."


@dataclass(frozen=True)
class Event:
    """A checked event: the function, the open page that asks for it, and the body for gradio."""

    function: BlockFunction
    page: str
    body: bytes

    @property
    def brings_file(self) -> bool:
        """Whether it opens a visitor's file, whose text it may carry."""
        return any(name == "upload" for _, name in self.function.targets)


def read_event(blocks: gr.Blocks, headers: Headers, body: bytes, *, queued: bool) -> Event:
    """The event in a body; `queued`: whether it was sent to gradio's queue. Raises RequestRefusedError."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestRefusedError(415, f"An event is sent as application/json: {RELOAD}.")
    content = read_json(body)
    if not isinstance(content, dict):
        _refuse("The request is not an event of this page")
    page = content.get("session_hash")
    if not isinstance(page, str) or not _PAGE.fullmatch(page):
        _refuse("The request names no open page")
    function = _function(blocks, content.get("fn_index"), queued)
    trigger = content.get("trigger_id")
    parts = {*blocks.blocks, blocks._id}  # the page itself triggers its load events
    if trigger is not None and not (type(trigger) is int and trigger in parts):
        _refuse("The request names a control that this page does not have")
    data, inputs = content.get("data"), function.inputs
    if not isinstance(data, list) or len(data) != len(inputs):
        _refuse(f"This event takes {len(inputs)} values")
    event = {
        "data": [_value(blocks, page, block, value) for block, value in zip(inputs, data, strict=True)],
        "event_data": _checked(content.get("event_data"), MOST_DEPTH),
        "fn_index": function._id,
        "trigger_id": trigger,
        "session_hash": page,
    }
    return Event(function, page, json.dumps(event).encode())


def _function(blocks: gr.Blocks, number: Any, queued: bool) -> BlockFunction:
    function = blocks.fns.get(number) if type(number) is int else None
    if function is None or function.fn is None:
        _refuse("This page has no such event")
    if bool(function.queue) != queued:
        raise RequestRefusedError(404, f"This event cannot be called at this address: {RELOAD}.")
    return function


def _value(blocks: gr.Blocks, page: str, block: Any, value: Any) -> Any:
    """A checked value of a component, as this open page has it: a menu's choices may have changed."""
    states = blocks.state_holder
    own = states[page].get(block._id, block) if page in states and not block.stateful else block
    _require_within_limits(own, value)  # first, as a number may be too large for any field
    value = _checked(value, MOST_DEPTH)
    if block.stateful:
        return None  # gradio keeps the value itself, whatever the page sends
    if value is None and _needs_value(block):
        _refuse(f"“{_label(block)}” needs a value")
    if not _can_be(own, value):
        _refuse(f"“{_label(block)}” cannot have the value that was sent")
    return value


def _require_within_limits(block: Any, value: Any) -> None:
    """Refuse a number outside the limits of its field, and name them."""
    if not isinstance(block, gr.Number | gr.Slider) or type(value) not in (int, float):
        return
    low, high = block.minimum, block.maximum
    if (low is not None and value < low) or (high is not None and value > high):
        digits = str(value) if len(str(value)) <= MOST_DIGITS else f"{str(value)[:MOST_DIGITS]}…"
        limits = f"of at least {low}" if high is None else f"of at most {high}"
        if low is not None and high is not None:
            limits = f"from {low} to {high}"
        raise RequestRefusedError(400, f"“{_label(block)}” is {digits}: choose a number {limits}.")


def _checked(value: Any, depth: int) -> Any:
    """The value with its files checked, at any depth. Raises RequestRefusedError."""
    if depth == 0:
        _refuse("The request is nested too deeply")
    if isinstance(value, list):
        return [_checked(item, depth - 1) for item in value]
    if isinstance(value, dict):
        if value.get("meta") == _FILE or any(key in value for key in _FILE_KEYS):
            return _upload(value)
        return {key: _checked(item, depth - 1) for key, item in value.items()}
    # Compared before anything is converted: an integer of 400 digits does not fit a float.
    if isinstance(value, int | float) and not abs(value) <= LARGEST_NUMBER:
        _refuse("The request has a number that is too large")
    return value


def _upload(file: dict[str, Any]) -> dict[str, Any]:
    """The record of a file in the folder of uploads, without its address."""
    path, url = file.get("path"), file.get("url")
    if not isinstance(path, str) or not _is_upload(path):
        raise RequestRefusedError(400, _NO_UPLOAD)
    # The page's own code sends the address under which this server shows the file; no other is useful.
    own = f"/gradio_api/file={path}"
    if url is not None and not (
        isinstance(url, str) and own in (url[-len(own) :], unquote(url)[-len(own) :])
    ):
        raise RequestRefusedError(400, _NO_UPLOAD)
    name, size, kind = file.get("orig_name"), file.get("size"), file.get("mime_type")
    if file.get("meta", _FILE) != _FILE or file.get("is_stream"):
        raise RequestRefusedError(400, _NO_UPLOAD)
    return {
        "path": path,
        "orig_name": name if isinstance(name, str) else None,
        "size": size if type(size) is int else None,
        "mime_type": kind if isinstance(kind, str) else None,
        "meta": dict(_FILE),
    }


def _is_upload(path: str) -> bool:
    folder = Path(get_upload_folder()).resolve()
    try:
        real = Path(path).resolve(strict=True)
        return Path(path).is_absolute() and real.is_relative_to(folder) and real.is_file()
    except (OSError, ValueError):  # no such file, too long a name, a null character
        return False


def _can_be(block: Any, value: Any) -> bool:
    """Whether a component can have this value; one without a known rule can have any."""
    if isinstance(block, gr.File | gr.UploadButton):
        files = value if isinstance(value, list) and block.file_count != "single" else [value]
        return value is None or all(isinstance(file, dict) and file.get("meta") == _FILE for file in files)
    if not any(isinstance(block, kind) and type(value) in types for kind, types in _TYPES.items()):
        return not isinstance(block, tuple(_TYPES))
    try:
        block.preprocess(value)
    except (gr.Error, ValueError, TypeError):  # out of its range, or not among its choices
        return False
    return True


def _needs_value(block: Any) -> bool:
    """Whether the page always sends a value: a button that uploads starts no event without its file."""
    cleared = isinstance(block, gr.Number)  # a field of numbers can be emptied
    return isinstance(block, gr.UploadButton) or (block.value is not None and not cleared)


def _label(block: Any) -> str:
    return getattr(block, "label", None) or type(block).__name__


_TYPES: dict[type, tuple[type, ...]] = {  # exact types: True is not a number
    gr.Textbox: (str, type(None)),
    gr.Checkbox: (bool, type(None)),
    gr.Slider: (int, float),
    gr.Number: (int, float, type(None)),  # None: an empty field
    gr.Radio: (str, type(None)),
    gr.Dropdown: (str, type(None)),
}


def _refuse(words: str) -> NoReturn:
    raise RequestRefusedError(400, f"{words}: {RELOAD}.")
