"""The Train tab: choose recipe, text and time, watch the heads learn, stop, and use them elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, get_type_hints

import gradio as gr

from medusa_core.errors import counted
from medusa_core.training.config import Medusa1Config
from ui.components.events import AT_ONCE, DRAWS, QUIET, TO_TOP, turned_to
from ui.components.views import TextLine
from ui.figures.training import Curves, all_curves
from ui.records.settings import Selection
from ui.records.updates import StopFlag
from ui.records.words import Words, sentences
from ui.runs.session import Session
from ui.tabs.openings import RecordedTraining, recorded
from ui.tabs.run_bar import SIDE_WIDTH, connect_run, or_skip, run_buttons, say_when_too_long, shown
from ui.tabs.train.download import connect_download
from ui.tabs.train.plan import (
    EXAMPLES,
    FILE,
    FILE_KINDS,
    HELP,
    MOST_BYTES,
    MOST_CHARACTERS,
    MOST_HEADS,
    MOST_MINUTES,
    MOST_STEPS,
    NAMES,
    OWN,
    PASTE,
    SOURCES,
    Plan,
    weight_for,
)
from ui.tabs.train.run import Trained, train_heads

if TYPE_CHECKING:
    from medusa_core.evaluation.speedup import Gain

INTRO = """
<p class="note">Fresh heads are copies of the model’s own last layer: they guess the next token where they
should guess those after it, so hardly any guess is kept. Training teaches head 1 to guess the second token
ahead, head 2 the third, and so on. Five minutes are enough to see the difference.</p>
"""
RECIPE_WORDS = {"medusa1": "the heads alone", "medusa2": "heads and model", "direct": "both, without care"}
RECIPE_NOTES = {
    "medusa1": "The model stays as it is, so what it writes stays exactly the same. Fastest to train.",
    "medusa2": (
        "First only the heads; then an adapter lets the model meet them half-way, while a small learning "
        "rate keeps what it writes close to what it was. Better guesses, but slower steps."
    ),
    "direct": (
        "Heads and model at once with large steps, as the paper warns: fresh heads pull the model away from "
        "what it knew. Watch “the model itself” in the first chart."
    ),
}
SOURCE_NAMES = {
    OWN: "written by the model",
    EXAMPLES: "the examples, continued by the model",
    PASTE: "pasted text",
    FILE: "a file",
}
SOURCE_NOTES = {
    OWN: (
        "The model makes up texts and the heads learn to predict them. Needs no text of yours, and fits what "
        "heads are for: guessing what this model would write. A third of the time goes into writing."
    ),
    EXAMPLES: (
        "The model continues the example prompts of this page again and again. Learned quickly, but narrow: "
        "the figures below come from the same prompts."
    ),
    PASTE: (
        "Heads that know your kind of text. A page or two is too little: the heads learn it by heart and "
        "predict nothing else. Plain text, or JSON lines."
    ),
    FILE: (
        f"Plain text, or JSON lines with “text”, “prompt” and “response”, or “messages”. At most "
        f"{MOST_BYTES // 1_000_000} MB. The file is deleted when the run ends."
    ),
}
NOW_CHOSEN = Words(
    "Your heads are now chosen in the menu “Heads”, among the settings of Watch and of Side by side: the "
    "next run with Medusa’s heads uses them."
)
AROUND_SECONDS = 60  # time around a training, for loading before it and measuring after it
NO_GAIN = "<p class='note'>How many tokens the heads keep is measured when training ends.</p>"
BUSY_NOTE = (
    "<p class='note'>A tree's step cannot take less time than a plain one: the machine was busy while these "
    "times were taken. Only the tokens per step can be relied on.</p>"
)


def build(session: Session, selection: gr.State, places: list[gr.Tabs], opened: list[Any]) -> None:
    """Lay the tab out and connect it. `selection` holds a `Selection`; using the heads opens their tab."""
    before = recorded(RecordedTraining, session.assets)
    with gr.Row(elem_classes="desk"):
        with gr.Column(scale=0, min_width=SIDE_WIDTH, elem_classes="side"):
            form = _form(_most_minutes(session))
            bar = run_buttons("train", "Train")
            use = [
                gr.Button("Use these heads in Watch", interactive=False, elem_id="train-use-decode"),
                gr.Button("Use them in Compare", interactive=False, elem_id="train-use-race"),
            ]
            take = gr.Button("Download heads", interactive=False, elem_id="train-download")
        with gr.Column(elem_classes="stage"):
            gr.HTML(INTRO, apply_default_css=False)
            origin = TextLine(_recorded_words(before), elem_id="train-recorded", elem_classes="badge")
            shown_first = gain_table(before.gain, now=False) if before and before.gain else NO_GAIN
            gain = gr.HTML(shown_first, apply_default_css=False, elem_id="train-gain")
            plots = _plots()
    curves, trained, dark = (
        gr.State(before.curves if before else Curves()),
        gr.State(),
        gr.Checkbox(visible=False),
    )

    def work(flag: StopFlag, own: Selection, *values: Any) -> Iterator[tuple[Any, ...]]:
        begun = False
        for update in train_heads(session, plan_of(values), flag, own):
            done = update.trained
            if not begun and update.curves is not None and update.curves.losses:
                begun = True  # a training that is refused leaves the charts before it
                yield gr.skip(), gr.skip(), Curves(), None, NO_GAIN, "", *_buttons(None)
            yield (
                *shown(update),
                or_skip(update.curves),
                or_skip(done),
                gain_table(done.gain) if done else gr.skip(),
                gr.skip(),
                *(_buttons(done) if done else [gr.skip()] * 3),
            )

    # The charts follow the record: gradio touches every output of a stream each time.
    connect_run(
        session, bar, work, [selection, *form], [curves, trained, gain, origin, *use, take],
        selection, queue="training",
    )  # fmt: skip
    connect_download(session, take, trained, bar.status)
    gr.on([*opened, curves.change], all_curves, [curves, dark], plots, **DRAWS)
    for button, place in zip(use, ("watch", "compare"), strict=True):
        used = button.click(partial(_use, place), trained, [selection, *places], **QUIET)
        used.then(None, None, None, js=TO_TOP, **QUIET)


def plan_of(values: tuple[Any, ...]) -> Plan:
    """The plan in an event's values of the form."""
    # An emptied number field is None: zero steps; for other fields, a value that their check names.
    given = zip(get_type_hints(Plan).items(), values, strict=True)
    return Plan(**{name: kind(value or kind()) for (name, kind), value in given})


def _most_minutes(session: Session) -> float:
    """A training's limit: on a shared page, what loading and measuring leave of a run's time."""
    seconds = session.policy.run_seconds
    return MOST_MINUTES if seconds is None else max(0.5, (seconds - AROUND_SECONDS) / 60)


def _recorded_words(before: RecordedTraining | None) -> str:
    """What the charts show before anything was trained here."""
    if before is None:
        return ""
    minutes = Words("{0} minutes", f"{before.minutes:g}")
    said = Words("A recorded training: {0}, {1}, {2}.", NAMES[before.recipe], minutes, SOURCES[before.source])
    return sentences(said, before.origin.words)


def gain_table(gain: Gain | None, *, now: bool = True) -> str:
    """What the heads gained, as markup made only of numbers. ``now``: measured by this visitor's run."""
    if gain is None:
        return "<p class='note'>Measuring was stopped; the heads can be used anyway.</p>"
    before, after = gain.fresh_tokens_per_step / gain.fresh_speedup, gain.tokens_per_step / gain.speedup
    busy = "" if min(before, after) >= 1 else BUSY_NOTE
    measured, machine = ("Measured here and now", "this") if now else ("Measured", "that")
    return (
        "<table class='train-gain'><thead><tr><th></th><th>fresh heads</th><th>these heads</th></tr></thead>"
        "<tbody>"
        f"<tr><th>tokens per step</th><td>{gain.fresh_tokens_per_step:.2f}</td>"
        f"<td><strong>{gain.tokens_per_step:.2f}</strong></td></tr>"
        f"<tr><th>time of a step, a plain one is 1</th><td>{before:.2f}</td><td>{after:.2f}</td></tr>"
        f"<tr><th>speed, plain decoding is 1</th><td>{gain.fresh_speedup:.2f}</td>"
        f"<td><strong>{gain.speedup:.2f}</strong></td></tr></tbody></table>"
        f"<p class='note'>{measured} on {counted(gain.prompts, 'example prompt')} "
        f"at temperature 0, with a tree of {counted(gain.nodes, 'node')}: the size "
        f"that promised most on {machine} machine. The time of reading the prompts is left out.</p>" + busy
    )


def _form(most_minutes: float) -> list[Any]:
    """The controls, in the order of the fields of `Plan`."""
    recipe = gr.Radio(
        [(f"{name}: {RECIPE_WORDS[key]}", key) for key, name in NAMES.items()],
        value="medusa1", label="Recipe", elem_id="train-recipe",
    )  # fmt: skip
    recipe_note = TextLine(RECIPE_NOTES["medusa1"], elem_classes="badge", elem_id="train-recipe-note")
    source = gr.Radio(
        [(label, key) for key, label in SOURCE_NAMES.items()], value=OWN, label="Text to learn from",
        elem_id="train-source",
    )  # fmt: skip
    source_note = TextLine(SOURCE_NOTES[OWN], elem_classes="badge", elem_id="train-source-note")
    text = gr.Textbox(
        label="Your text",
        lines=6,
        max_lines=6,  # a growing box is laid out again at each change, which takes seconds for a long text
        visible=False,
        elem_id="train-text",
    )
    say_when_too_long(text, MOST_CHARACTERS)
    upload = gr.File(
        label="Your file", file_types=list(FILE_KINDS), type="filepath", height=120, visible=False,
        elem_id="train-file",
    )  # fmt: skip
    minutes = gr.Slider(
        0.5, most_minutes, value=min(5, most_minutes), step=0.5, label="Minutes", elem_id="train-minutes",
        info="counted from the first step, without loading; some seconds of measuring follow",
    )  # fmt: skip
    with gr.Accordion("Settings", open=False, elem_id="train-settings"):
        steps, heads, rate, decay, weight, teacher = _settings()
    source.input(
        lambda kind: (SOURCE_NOTES[kind], gr.Textbox(visible=kind == PASTE), gr.File(visible=kind == FILE)),
        source, [source_note, text, upload], **AT_ONCE,
    )  # fmt: skip
    recipe.input(
        lambda kind, learns: (
            RECIPE_NOTES[kind],
            gr.Number(weight_for(kind, learns), visible=kind != "medusa1"),
            gr.Radio(visible=kind == "medusa2"),
        ),
        [recipe, teacher], [recipe_note, weight, teacher], **AT_ONCE,
    )  # fmt: skip
    teacher.input(weight_for, [recipe, teacher], weight, **AT_ONCE)
    return [recipe, source, text, upload, minutes, steps, heads, rate, decay, weight, teacher]


def _settings() -> tuple[Any, ...]:
    steps = gr.Number(
        0, label="Steps", precision=0, minimum=0, maximum=MOST_STEPS, elem_id="train-steps",
        info="of each stage; 0: as many as fit into the minutes, measured before it starts",
    )  # fmt: skip
    heads = gr.Slider(
        1, MOST_HEADS, value=Medusa1Config.heads, step=1, label="Heads", info=HELP["heads"],
        elem_id="train-heads",
    )  # fmt: skip
    rate = gr.Number(
        Medusa1Config.learning_rate, label="Learning rate", info=HELP["learning_rate"], minimum=0, maximum=1,
        elem_id="train-rate",
    )  # fmt: skip
    decay = gr.Slider(0, 1, value=Medusa1Config.head_decay, step=0.05, label="λ", info=HELP["head_decay"])
    weight = gr.Number(
        weight_for("medusa2", "self"), label="λ0", info=HELP["head_weight"], minimum=0, maximum=10,
        visible=False,
    )  # fmt: skip
    teacher = gr.Radio(
        ["self", "text"], value="self", label="The model learns from", info=HELP["teacher"], visible=False
    )
    return steps, heads, rate, decay, weight, teacher


def _plots() -> list[gr.Plot]:
    def plot(name: str, label: str) -> gr.Plot:
        return gr.Plot(label=label, min_width=320, elem_id=f"train-{name}", elem_classes="train-plot")

    loss = plot("loss", "Loss of each head while training: 0 is sure of the right token")
    with gr.Row():
        first = plot("top1", "First guess right, on held-out text")
        return [loss, first, plot("top5", "One of the first five guesses right")]


def _buttons(trained: Trained | None) -> tuple[gr.Button, gr.Button, gr.Button]:
    ready = trained is not None
    return (
        gr.Button(interactive=ready, variant="primary" if ready else "secondary"),
        gr.Button(interactive=ready),
        gr.Button(interactive=ready),
    )


def _use(place: str, trained: Trained | None) -> tuple[Any, ...]:
    if trained is None:
        return gr.skip(), gr.skip(), gr.skip()
    gr.Info(NOW_CHOSEN, title="")
    return trained.selection, *turned_to(place)  # with the heads' own model, whichever is chosen now
