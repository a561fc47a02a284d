"""The tour by itself in a browser's page, without a server."""

from __future__ import annotations

from typing import Any

from shipped_runs import recordings

from ui.components.views import learn_content, learn_script
from ui.records.figures import stored_page
from ui.tabs.learn import lesson_records, lesson_runs, lesson_texts
from ui.tabs.learn_computed import computed_records

TAKE = "trace => document.querySelector('.learn-host').learn.takeRun({ trace })"
RUNS = {
    recording.name: recording.trace
    for recording in recordings()
    if recording.trace["config"]["drafter"]["name"] == "medusa"
}
FIRST = next(iter(RUNS.values()))


def tour_content(trace: dict[str, Any]) -> str:
    """The tour with ``trace`` as the page's recorded run, along with the recorded runs of other drafters."""
    records = lesson_records(stored_page()) | computed_records(stored_page())
    return learn_content(lesson_texts(), records, trace, lesson_runs(recordings()))


def mount_tour(page: Any, trace: dict[str, Any]) -> None:
    """Lay the tour out in an empty page."""
    content = tour_content(trace)
    page.evaluate("document.body.innerHTML = '<div class=learn-host></div>'")
    mount = f"const tour = document.querySelector('.learn-host'); tour.learn = mountLearn(tour, {content});"
    page.add_script_tag(content=learn_script() + mount)
    page.wait_for_selector(".learn-choice")
