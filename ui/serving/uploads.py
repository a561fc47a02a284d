"""What the body of an upload may be: a whole form of a few files, each with a name.

gradio's own reader fails with a traceback over a form that breaks off or has a field beside its files, and
leaves its temporary files behind.
"""

from __future__ import annotations

import re

from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers

from ui.serving.request_body import RequestRefusedError

MOST_FILES = 10
MOST_HEADER_BYTES = 2000  # of one file: its name and its type
_NAMED = re.compile(
    rb'content-disposition:[^\r\n]*;\s*name="[^"\r\n]+";\s*filename="[^"\x00\r\n]+"', re.IGNORECASE
)


def check_upload(headers: Headers, body: bytes) -> None:
    """Raises RequestRefusedError for a body that is no form of files."""
    kind, options = parse_options_header(headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        words = "An upload is sent as multipart/form-data: reload the page and try again."
        raise RequestRefusedError(415, words)
    parts = body.split(b"--" + boundary, MOST_FILES + 2)
    files, end = parts[1:-1], parts[-1]
    if len(files) > MOST_FILES:
        raise RequestRefusedError(400, f"The upload has too many files: {MOST_FILES} at most.")
    if parts[0].strip() or not files or end.strip() != b"--":
        raise RequestRefusedError(400, "The upload is not complete: try again.")
    for file in files:
        head, blank, _ = file.partition(b"\r\n\r\n")
        if not blank or len(head) > MOST_HEADER_BYTES or not _NAMED.search(head):
            raise RequestRefusedError(400, "The upload has a part that is no file with a name.")
