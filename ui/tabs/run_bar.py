"""What the tabs share: prompt and examples, the buttons, and the wiring of a run that can be stopped.

A run is one gradio generator in the queue named "engine", which lets one run through at a time. Training has
its own queue: it gives way to runs, which gradio would hold back until its end if they shared one. Stop
raises a flag that the run sees between two steps, by the page's channel rather than through gradio; closing
the page closes the generator.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from medusa_core.errors import MedusaError
from ui.components.controls import example_buttons, mark
from ui.components.events import AT_ONCE, QUIET
from ui.components.views import TextLine
from ui.records.examples import example_prompts
from ui.records.settings import MAX_PROMPT_CHARACTERS
from ui.records.updates import StopFlag, Update, with_flag_of_run
from ui.runs.session import Session
from ui.serving.kept import RunSlot
from ui.serving.runner import Request

SIDE_WIDTH = 320  # pixels of the column with the prompt and the settings
STARTING = "Starting…"
WAITING = "Waiting for the engine: it does one run at a time…"
WAITING_FOR_TRAINING = (
    "Waiting for the engine: a training run has it and gives way after its step. "
    "While it loads, that takes longer."
)
TOO_LONG = """(text) => {
  const box = document.getElementById(ID);
  const count = (text || "").length > MOST ? [...text].length : 0; // characters, not halves of them
  const [written, most] = [count, MOST].map((number) => number.toLocaleString("en"));
  const words = `${written} characters: the page takes ${most}, shorten it`;
  if (box && count > MOST) box.dataset.tooLong = words;
  else if (box) delete box.dataset.tooLong;
}"""
REFUSED = "Not run: the notice says why."  # by the queue or by the check of a value, so there was no run


@dataclass(frozen=True)
class RunBar:
    """Buttons and lines of text of one tab, and its prompt when it has one."""

    prompt: gr.Textbox | None
    run: gr.Button
    stop: gr.Button
    badge: TextLine
    status: TextLine
    flag: gr.State
    name: str  # the ids of its parts start with it
    key: gr.Textbox  # hidden: the browser's key of the flag
    examples: tuple[tuple[gr.Button, str], ...] = ()  # with what they fill in, as JSON

    def triggers(self) -> list[Any]:
        """What starts a run: its button, and Enter in the prompt where there is one."""
        return [self.run.click] if self.prompt is None else [self.run.click, self.prompt.submit]

    def connect_examples(self, penalty: gr.Slider, window: gr.Slider) -> None:
        """The examples fill the prompt and these two, without asking the server."""
        if self.prompt is not None:
            for button, values in self.examples:
                button.click(None, None, [self.prompt, penalty, window], js=f"() => {values}")


def run_bar(session: Session, name: str, verb: str, start: str | None = None) -> RunBar:
    """Prompt box, examples, Run and Stop, badge and status line; `name` starts the ids on the page.

    The box begins with `start`, or else with the first example. The examples wait for `connect_examples`.
    """
    examples = example_prompts(session.assets)
    prompt = gr.Textbox(
        examples[0]["prompts"][0]["text"] if start is None else start,
        label="Prompt", lines=4, max_lines=8, elem_id=f"{name}-prompt", elem_classes=mark("prompt"),
        placeholder="Write the beginning of a text, or choose an example below",
    )  # fmt: skip
    say_when_too_long(prompt)
    buttons = example_buttons(examples)
    return replace(run_buttons(name, verb), prompt=prompt, examples=buttons)


def follow(watched: gr.Textbox, prompt: gr.Textbox | None) -> gr.events.Dependency:
    """Copy a prompt written or chosen in Watch to another tab's prompt."""
    return watched.change(None, watched, prompt, js="(text) => text")


def say_when_too_long(box: gr.Textbox, most: int = MAX_PROMPT_CHARACTERS) -> None:
    """Say while a text is being written that it exceeds the limit; the run refuses it.

    The browser's own limit (`max_length`) would cut a pasted text without a word.
    """
    script = TOO_LONG.replace("ID", json.dumps(box.elem_id)).replace("MOST", str(most))
    box.change(None, box, None, js=script)


def run_buttons(name: str, verb: str) -> RunBar:
    """The bar of a tab without a prompt: Run and Stop, badge and status line."""
    with gr.Row(elem_classes="run-row"):
        run = gr.Button(verb, variant="primary", elem_id=f"{name}-run", min_width=120)
        stop = gr.Button("Stop", elem_id=f"{name}-stop", min_width=80)
    # Empty unless there is more to say than the line above the tabs does, as about a visitor's own heads.
    badge = TextLine(elem_id=f"{name}-badge", elem_classes="badge")
    status = TextLine(elem_id=f"{name}-status", elem_classes="status")
    return RunBar(
        None, run, stop, badge, status, gr.State(StopFlag()), name, gr.Textbox(visible=False, max_length=64)
    )


def connect_run(
    session: Session,
    bar: RunBar,
    work: Callable[..., Iterator[tuple[Any, ...]]],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    selection: gr.State,
    queue: str = "engine",
) -> gr.events.Dependency:
    """Run starts `work(flag, *inputs)` in this queue; Stop, known by its id, raises the flag.

    `work` yields values for status, badge and `outputs`. Returns the run's event, to chain more. Another
    choice clears the badge, which describes the previous one.
    """

    # The flag is lowered before the run is queued, so that Stop also reaches a run that still waits.
    def arm(flag: StopFlag, key: str | None, request: gr.Request) -> str:
        return _arm(session, flag, key, request.session_hash or "")

    armed = gr.on(
        bar.triggers(), arm, [bar.flag, bar.key], bar.status,
        js=f"(flag) => [flag, window.medusaChannel.begin({bar.name!r})]", **AT_ONCE,
    )  # fmt: skip
    run = armed.then(
        with_flag_of_run(work), [bar.flag, *inputs], [bar.status, bar.badge, *outputs],
        concurrency_id=queue, concurrency_limit=1, **QUIET,
    )  # fmt: skip
    run.failure(lambda: REFUSED, None, bar.status, **AT_ONCE)
    run.then(None, None, None, js=f"() => window.medusaChannel.over({bar.name!r})")
    selection.change(lambda: "", None, bar.badge, **AT_ONCE)
    return run


@contextmanager
def drawn_run(
    session: Session, request: Request, flag: StopFlag, slot: RunSlot
) -> Iterator[Iterator[Update]]:
    """A context with the updates of a run, which come no faster than the linked view draws them.

    The run is kept for its page, whose browser asks for its steps by the key that it confirms messages with.
    """
    runs = session.kept_runs
    runs.drop(slot)
    with session.channel.acks() as acks, closing(session.run(request, flag, acks)) as updates:

        def kept() -> Iterator[Update]:
            for update in updates:
                if update.run_record is not None:
                    runs.keep(slot, update.run_record, acks.key)
                else:
                    runs.grown(slot)
                yield update

        yield kept()


def kept_trace(session: Session, slot: RunSlot) -> dict[str, Any] | None:
    """The finished run that a page shows; a notice says when the server has dropped it."""
    try:
        return session.kept_runs.trace(slot)
    except MedusaError as error:
        gr.Info(str(error), title="")
        return None


def shown(update: Update) -> tuple[Any, Any]:
    """Status and badge of an update."""
    return or_skip(update.status), or_skip(update.badge)


def or_skip(value: Any) -> Any:
    """The value for a part of the page, which stays as it is where there is none."""
    return gr.skip() if value is None else value


def _arm(session: Session, flag: StopFlag, key: str | None, page: str) -> str:
    session.channel.belongs(flag, page)
    session.channel.listen(key or "", flag)
    flag.stopped = False
    if session.trains:
        return WAITING_FOR_TRAINING
    return WAITING if session.busy else STARTING
