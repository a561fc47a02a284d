"""The replay file without network, and the film of its Share menu: frames, colours, Cancel, odd texts."""

from __future__ import annotations

import base64
import io
import itertools
import json

import pytest
from PIL import Image, ImageChops
from playwright.sync_api import expect
from view_trace import HOSTILE, make_trace

from medusa_core.trace.format import RunTrace
from medusa_core.trace.replay.colours import LIGHT
from medusa_core.trace.replay.page import replay_frame, write_replay

pytestmark = pytest.mark.browser

TRACE = make_trace()
OWN = ("file:", "data:", "blob:", "about:")
MADE = """async ([trace, first, last, most]) => {
  trace = JSON.parse(JSON.stringify(trace).replaceAll("HALF", "\\ud800"));
  const { signal } = new AbortController();
  const film = await makeFilm(replay.root, trace, first, last, () => {}, signal, most);
  const bytes = new Uint8Array(await film.blob.arrayBuffer());
  return [btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")), film.frames, film.last];
}"""
CANCELLED = """async () => {
  document.querySelector("[data-share=film]").click();
  await new Promise((done) => setTimeout(done));
  document.querySelector("[data-share=film-cancel]").click();
}"""
ENCODED = """(frames) => {
  const gif = makeGif(16, 16);
  for (const rgba of frames) gif.add(Uint8ClampedArray.from(rgba), 50);
  return gif.finished().arrayBuffer().then((bytes) => [...new Uint8Array(bytes)]);
}"""


@pytest.fixture(scope="module")
def open_offline(chromium):
    """Call it with a file: a page of it without network; fails on any complaint, as of its own policy."""
    context = chromium.new_context(offline=True, viewport={"width": 1280, "height": 900})
    said: list[str] = []

    def open_file(path, color_scheme="light"):
        page = context.new_page()
        page.emulate_media(color_scheme=color_scheme)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: request.url.startswith(OWN) or said.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_file
    context.close()
    assert said == []


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("film") / "run.html"
    write_replay(RunTrace.model_validate(TRACE), path)
    return path


@pytest.fixture(scope="module")
def shared(open_offline, file):
    return open_offline(file)


@pytest.fixture
def page(shared):
    """The replay file with the Share menu open."""
    shared.bring_to_front()
    if not shared.locator(".mdv-share").is_visible():
        shared.click(".mdv-shareopen")
    return shared


def frames_of(data: bytes) -> list[Image.Image]:
    """Each frame as it is shown, with its time in ``info``."""
    film = Image.open(io.BytesIO(data))
    shown = []
    for place in range(film.n_frames):
        film.seek(place)
        shown.append(film.convert("RGB"))
        shown[-1].info["duration"] = film.info["duration"]
    return shown


def made(page, trace: dict, first: int, last: int, most: int = 4_000_000) -> tuple[list[Image.Image], int]:
    encoded, count, ended = page.evaluate(MADE, [trace, first, last, most])
    frames = frames_of(base64.b64decode(encoded))
    assert len(frames) == count
    return frames, ended


def near(colour: tuple[int, ...], wanted: str) -> bool:
    return all(abs(a - b) < 12 for a, b in zip(colour, bytes.fromhex(wanted[1:]), strict=True))


def test_a_film_of_three_steps_is_saved_and_each_frame_shows_something_else(page):
    last = page.locator("[aria-label='Last step of the film']")
    expect(last).to_have_value("8")  # set when the page's script has drawn the trace
    page.evaluate(CANCELLED)
    page.wait_for_selector("text=The film was cancelled.")
    assert page.locator(".mdv-filmstage, .mdv-filmwork:visible").count() == 0
    last.fill("3")
    with page.expect_download() as download:
        page.click("[data-share=film]")
    assert download.value.suggested_filename == "medusa-steps-1-3.gif"
    with open(download.value.path(), "rb") as file:
        frames = frames_of(file.read())
    page.wait_for_selector("text=9 frames,")
    assert page.locator(".mdv-filmstage, .mdv-filmwork:visible").count() == 0
    assert len(frames) == 9
    assert {frame.size for frame in frames} == {frames[0].size}
    assert 800 <= frames[0].width <= 1080
    assert all(frame.info["duration"] >= 1000 for frame in frames)
    for before, after in itertools.pairwise(frames):
        assert ImageChops.difference(before, after).getbbox() is not None
    # The ground is exactly white again under what has gone.
    counts = [{colour: n for n, colour in frame.getcolors(1 << 24)} for frame in frames]
    assert all(max(count, key=count.get) == (255, 255, 255) for count in counts)
    proposed, judged = (
        sum(n for colour, n in count.items() if near(colour, LIGHT.rejected)) for count in counts[:2]
    )
    assert judged > 5 * proposed > 0  # the rejected guesses; before, only what the signs mean


def test_rows_centre_parents_on_their_children(page):
    assert page.evaluate("treeRows([-1])") == [0]
    assert page.evaluate("treeRows([-1, 0, 0, 1, 1])") == [1.25, 0.5, 2, 0, 1]


def test_hostile_text_is_text_in_the_frame(page):
    trace = json.loads(json.dumps(TRACE))
    tags, words = page.evaluate(
        """(trace) => {
          const scene = filmScene(trace, 2, "accept");
          const drawn = filmFrame(scene, filmSize([scene]));
          return [[...drawn.querySelectorAll("*")].map((node) => node.tagName), drawn.textContent];
        }""",
        trace,
    )
    assert set(tags) <= {"g", "rect", "path", "text", "tspan", "title"}
    assert "Once <b>upon</b> a time ${1+1}" in words
    for step in trace["steps"][:2]:
        for node in (step["nodes"][i] for i in step["path"]):
            assert node["text"] not in HOSTILE[:5] or node["text"].split()[0] in words
    trace["steps"][1]["nodes"][0]["text"] = "HALF\x00\x1b\uffff\u202e"  # characters that XML forbids
    frames, _ = made(page, trace, 1, 2)
    assert len(frames) == 6


def test_plain_decoding_the_dark_theme_and_the_largest_film(page):
    trace = json.loads(json.dumps(TRACE))
    for step in trace["steps"]:
        step["nodes"], step["path"], step["emitted"] = step["nodes"][:1], [0], step["emitted"][:1]
    page.evaluate("document.body.classList.add('dark')")
    frames, last = made(page, trace, 0, 1)
    assert (len(frames), last) == (4, 1)  # nothing was guessed, so nothing is proposed or judged
    assert near(frames[0].getpixel((2, 2)), "#141923")
    frames, last = made(page, trace, 2, 6, most=1)
    assert (len(frames), last) == (2, 2)  # whole steps, and at least one
    page.evaluate("document.body.classList.remove('dark')")


def test_lines_break_before_words_at_line_breaks_and_inside_long_words(page):
    pieces = [{"text": "one two"}, {"text": " three\nfour"}, {"text": "abcdefghijkl"}, {"text": ""}]
    lines = page.evaluate("(pieces) => wrapPieces(pieces, 9, (text) => [...text].length)", pieces)
    texts = ["".join(run["text"] for run in line) for line in lines]
    assert texts == ["one two", "three⏎", "four", "abcdefghi", "jkl"]
    assert all(run["x"] + run["width"] <= 9 for line in lines for run in line)


def test_the_encoder_keeps_common_colours_exactly_and_all_others_nearly(page):
    ground = [250, 251, 252, 255] * 256
    noisy = [value for i in range(256) for value in (i, 255 - i, (i * 37) % 256, 255)]
    single = [*ground[:40], 9, 8, 7, 255, *ground[44:]]
    data = bytes(page.evaluate(ENCODED, [ground, single, ground, ground, noisy]))
    first, second, third, fourth, last = frames_of(data)
    assert first.getcolors() == third.getcolors() == fourth.getcolors() == [(256, (250, 251, 252))]
    assert second.getpixel((10, 0)) == (9, 8, 7)
    wanted = Image.frombytes("RGBA", (16, 16), bytes(noisy)).convert("RGB")
    worst = max(high for _, high in ImageChops.difference(last, wanted).getextrema())
    assert worst < 48


# --- The replay file opened from the disk with the network blocked: it draws, steps and asks for nothing.


def test_the_file_replays_the_run_by_keys_and_clicks(open_offline, file):
    page = open_offline(file, color_scheme="dark")
    page.wait_for_selector(".mdv-node")
    assert page.locator(".mdv-node").count() == len(TRACE["steps"][0]["nodes"])
    for step in (1, 2, 3):  # without a click first
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(f'.mdv[data-step="{step}"]')
    page.locator(".mdv-node").nth(1).click()
    page.wait_for_selector(".mdv-node.pinned")
    assert page.locator(".mdv-area-why").inner_text()
    assert page.locator(".mdv-maskpic").bounding_box()["width"] > 100
    assert page.locator("h1").count() == 1
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(11, 15, 25)"  # dark
    assert page.title() == "Medusa decoding: a recorded run"
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")


def test_a_frame_of_it_draws_in_its_sandbox(open_offline, tmp_path):
    (tmp_path / "notebook.html").write_text(replay_frame(RunTrace.model_validate(TRACE)), "utf-8")
    frame = open_offline(tmp_path / "notebook.html").frame_locator("iframe")
    frame.locator(".mdv-node").first.wait_for()
    frame.locator("[data-act=next]").click()
    frame.locator('.mdv[data-step="1"]').wait_for()
