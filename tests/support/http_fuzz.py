"""Wrong requests by schema: every service, every event with every input of a wrong type, odd bodies."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

import httpx
from served import DONE, terminal, words_of

ELSEWHERE = "ELSEWHERE"  # replaced by the address of a server that must not be asked
META = {"_type": "gradio.FileData"}
WRONG = [
    None, True, False, 0, -1, 3.7, 10**18, 10**40, -1e300, "", "x", "7", "yours", "\ud800", "\0", "a" * 3000,
    "<img src=x onerror=alert(1)>", "{{constructor}}", "__import__('os')", "/etc/passwd", ELSEWHERE, "%s%n",
    [], [[]], [None] * 50, ["x", 1], {}, {"value": 1}, {"__type__": "update", "value": "x"},
    {"path": "/etc/passwd", "meta": META}, {"path": ELSEWHERE, "url": ELSEWHERE, "meta": META},
    {"path": "/etc/passwd"}, {"url": ELSEWHERE}, [{"image": {"path": ELSEWHERE, "meta": META}}],
    {"meta": META}, {"meta": None, "path": None}, {"a": {"b": {"c": [[[[{}]]]]}}},
    json.dumps({"path": ELSEWHERE, "meta": META}), '[{"model": 1}]', [{"model": 1}], [["/etc", "", "", ""]],
]  # fmt: skip
HEADERS = [
    {"host": "evil.example"}, {"origin": "null"}, {"content-type": "text/plain"},
    {"x-forwarded-for": "nonsense, ::1, 999.1.1.1"}, {"x-forwarded-host": "a,b"}, {"x-forwarded-proto": "x"},
    {"range": "bytes=9999-1"}, {"cookie": "a=" + "b" * 2000}, {"expect": "100-continue"}, {"accept": ""},
    {"x-gradio-user": "app"}, {"x-gradio-server": "http://evil.example"},
]  # fmt: skip


@dataclass
class Findings:
    """The faults that fuzzing found."""

    asked: int = 0
    faults: list[str] = field(default_factory=list)

    def judge(self, what: str, answer: httpx.Response) -> None:
        """Note an answer that is a server error without a sentence from the page."""
        self.asked += 1
        if answer.status_code >= 500 and not sentence_in(answer):
            self.faults.append(f"{what}: {answer.status_code} {answer.text[:200]}")


def sentence_in(answer: httpx.Response) -> str:
    """The page's words in an answer; nothing where gradio or the server answered."""
    try:
        words = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        return ""
    return words if isinstance(words, str) and words.endswith(".") else ""


def fuzz(site, elsewhere: str, rng: random.Random, share: float = 1.0) -> Findings:
    """Send a share of all wrong requests; then a good run has to work, with nothing on the terminal."""
    found = Findings()
    with terminal() as printed:
        for what, method, path, options in requests_for(site, elsewhere, rng):
            if rng.random() >= share:
                continue
            try:
                found.judge(what, site.client.request(method, site.url + path, **options))
            except httpx.TransportError as error:
                found.faults.append(f"{what}: {type(error).__name__} {error}")
        finish(site)
        good = site.values(site.event("work", "Textbox"), Prompt="abc", **{"New tokens at most": 4})
        if DONE not in words_of(site.outcome("good", site.event("work", "Textbox"), good)):
            found.faults.append("a good run does not work any more")
    text = printed.getvalue()
    if "Traceback" in text or "Exception" in text:
        found.faults.append(f"printed: {text[-3000:]}")
    return found


def finish(site) -> None:
    """End what the wrong requests began: close their pages, as a browser does."""
    for session in list(site.page._queue.pending_messages_per_session):
        with site.client.stream("GET", f"{site.url}/gradio_api/queue/data", params={"session_hash": session}):
            pass
    site.idle()


def requests_for(site, elsewhere, rng):
    """(what it is, method, path, options) of every wrong request."""
    yield from to_services(site, rng)
    yield from to_events(site, elsewhere, rng)
    yield from as_bodies(site, elsewhere, rng)
    yield from as_uploads(rng)


def to_services(site, rng):
    """Every route of gradio's application, by every method, with odd parameters."""
    paths = {getattr(route, "path", "/") for route in site.page.app.routes}
    for path in sorted(paths | {"/gradio_api/nothing", "/gradio_api/file=a%00b", "/%ff%fe", "/gradio_api"}):
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "NONSENSE"):
            streams = "heartbeat" in path and method in ("GET", "HEAD")  # it would stay open
            if streams:
                continue
            filled = path.replace("{", "x").replace("}", "").replace(":path", "")
            yield f"{method} {path}", method, f"{filled}?session_hash=x&upload_id=y&page=z", {}
    for headers in HEADERS:
        for path in ("/", "/config", "/gradio_api/info", "/gradio_api/queue/join"):
            yield f"{path} with {headers}", "GET", path, {"headers": headers}


def to_events(site, elsewhere, rng):
    """Every event of the page, each of its inputs with each wrong value."""
    for number, function in site.page.fns.items():
        door = "queue/join" if function.queue else "run/predict"
        values = site.values(number) if function.fn else []
        for place, block in enumerate(function.inputs if function.fn else ()):
            for value in WRONG:
                data = [*values[:place], filled_in(value, elsewhere), *values[place + 1 :]]
                # Each from its own page: one page has at most two runs, and a third is not checked.
                body = {"fn_index": number, "session_hash": f"f{rng.randrange(10**9)}", "data": data}
                what = f"event {number} {function.name}, {type(block).__name__} = {str(value)[:40]}"
                yield what, "POST", f"/gradio_api/{door}", as_json(body)


def as_bodies(site, elsewhere, rng):
    """Bodies with fields of wrong types, or none at all."""
    events = [number for number, function in site.page.fns.items() if function.fn]
    for door in ("queue/join", "run/predict", "cancel", "reset"):
        for name in ("fn_index", "session_hash", "data", "event_data", "trigger_id", "event_id"):
            for value in WRONG:
                number = rng.choice(events)
                body = {"fn_index": number, "session_hash": "b", "data": site.values(number), "event_id": "e"}
                body[name] = filled_in(value, elsewhere)
                yield f"{door} {name} = {str(value)[:40]}", "POST", f"/gradio_api/{door}", as_json(body)
        for content in (b"", b"{", b"[" * 5000, b"\xff", b"null", b"1" * 5000, b'"' + b"a" * 5000):
            options = {"content": content, "headers": {"content-type": "application/json"}}
            yield f"{door} {content[:20]!r}", "POST", f"/gradio_api/{door}", options


def as_uploads(rng):
    """Forms that are cut or changed somewhere, and files with odd names."""
    whole = (
        b'--bb\r\nContent-Disposition: form-data; name="files"; filename="a.json"\r\n'
        b"Content-Type: application/json\r\n\r\n[[0]]\r\n--bb--\r\n"
    )
    headers = {"content-type": "multipart/form-data; boundary=bb"}
    for _ in range(60):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        content = bytes(content[: rng.randint(0, len(content))] if rng.random() < 0.3 else content)
        options = {"content": content, "headers": headers}
        yield f"upload {content!r}", "POST", "/gradio_api/upload?upload_id=u", options
    for name in ("a" * 300, "../../x", "a\0b", "\n", ".", "😀", "a/b\\c"):
        yield f"upload named {name!r}", "POST", "/gradio_api/upload", {"files": {"files": (name, b"x")}}


def as_json(body):
    """Options of a request with this body; httpx itself refuses half a surrogate pair."""
    return {"content": json.dumps(body).encode(), "headers": {"content-type": "application/json"}}


def filled_in(value, elsewhere):
    """The value with the address of the server that must not be asked."""
    if isinstance(value, str):
        return value.replace(ELSEWHERE, f"{elsewhere}/fuzz")
    if isinstance(value, list):
        return [filled_in(item, elsewhere) for item in value]
    if isinstance(value, dict):
        return {key: filled_in(item, elsewhere) for key, item in value.items()}
    return value
