"""The page: a header, the model's bar and the contents of its five places. Knows names, not what they do."""

from __future__ import annotations

from typing import Any

import gradio as gr

from medusa_core.trace.replay.colours import DARK, LIGHT, MONO, SANS, css_variables
from medusa_core.trace.replay.page import languages_script
from medusa_core.trace.replay.view import read_web
from ui.components.events import QUIET, page_under_way
from ui.components.views import LanguageMenu, TextLine, race_css
from ui.figures.palette import theme_rules
from ui.records.examples import ASSETS, recordings
from ui.records.figures import PageFigures, time_words
from ui.records.settings import Selection
from ui.records.words import Words
from ui.runs.session import Session
from ui.serving.admission import WAITING_EVENTS
from ui.serving.page import Page
from ui.tabs import api, decode, experiments, hardware, learn, model_bar, side_by_side, speed, train, trees
from ui.tabs import methods as methods_tab
from ui.tabs.model_bar import mark_methods

TITLE = "Medusa decoding, step by step"
HEADER = f"""
<header class="page-head">
  <h1>{TITLE}</h1>
  <p>A language model normally writes one token per forward pass. Medusa’s heads guess several tokens ahead;
  the model checks a whole tree of guesses in one pass and keeps the longest part it agrees with.</p>
</header>
"""
OLD_SECONDS = 600  # age at which an uploaded file is deleted: it has been read
TABS: dict[str, Any] = {"overflow_behavior": "wrap"}  # an overflow menu would hide some of them on phones


def build_page(session: Session) -> Page:
    """The Blocks page with its queue: one run at a time; `ui.serving.admission` says who may wait for one."""
    recorded = recordings(session.assets)
    cleaning = (OLD_SECONDS, OLD_SECONDS)
    with Page(
        session.channel, session.kept_runs, title=TITLE, analytics_enabled=False, fill_width=True,
        delete_cache=cleaning,
    ) as page:  # fmt: skip
        with gr.Row(elem_classes="page-top"):
            gr.HTML(HEADER, apply_default_css=False)
            LanguageMenu(elem_id="language")
            learn.link()
        # One visitor's model, and heads and tree made in one tab, used in others.
        selection = gr.State(Selection())
        loaded = model_bar.build(session, selection)
        figures = figures_bar(session, selection)
        with gr.Tabs(**TABS, elem_id="places") as tabs:
            with gr.Tab("Watch", id="watch"):
                desk, watched = decode.build(session, selection, figures, recorded)
            with gr.Tab("Learn", id="learn", elem_id=learn.TAB):
                # The tour explains ε and δ, so its run is one that they judged.
                learn.build(session, figures, sorted(recorded, key=lambda one: one.rule != "typical"))
            with gr.Tab("Compare", id="compare"), gr.Tabs(**TABS) as compare:
                with gr.Tab("Side by side", id="side-by-side"):
                    race, second = side_by_side.build(session, selection, figures, watched)
                with gr.Tab("Methods", id="methods"):
                    methods_tab.build(session, selection, figures, watched)
            with gr.Tab("Measure", id="measure") as place, gr.Tabs(**TABS):
                with gr.Tab("Speed", id="speed") as tab:
                    timed = speed.build(session, selection, figures, [place.select, tab.select])
                with gr.Tab("Hardware", id="hardware") as tab:
                    hardware.build(session, selection, [tab.select])
            places = [tabs, compare]
            with gr.Tab("Lab", id="lab") as place, gr.Tabs(**TABS):
                with gr.Tab("Trees", id="trees") as tab:
                    trees.build(session, selection, places, [place.select, tab.select])
                if session.policy.training:
                    with gr.Tab("Train", id="train") as tab:
                        train.build(session, selection, places, [tab.select])
                with gr.Tab("Experiments", id="experiments"):
                    experiments.build(session.assets)
        api.build(session)
        menus = [desk.named["method"], race.named["method"], second, timed]
        mark_methods(session, selection, loaded, menus, [desk, race])
        page.load(None, None, None, js=(ASSETS / "web" / "channel.js").read_text(encoding="utf-8"))
    return page.queue(max_size=WAITING_EVENTS, default_concurrency_limit=4, api_open=False)


def page_css() -> str:
    colours = css_variables(":root") + css_variables(".dark", dark=True)
    own = "".join((ASSETS / name).read_text(encoding="utf-8") for name in ("style.css", "stage.css"))
    return colours + own + race_css() + theme_rules()


def figures_bar(session: Session, selection: gr.State) -> gr.State:
    """The line below the tabs once this machine has been measured: whose speeds they show, and the way back.

    Returns the page's `PageFigures`, which the tabs show and add to.
    """
    figures = gr.State(session.figures.begin())
    with gr.Row(visible=False, elem_id="figures-bar") as bar:
        words = TextLine(elem_id="figures-words", elem_classes="badge")
        back = gr.Button(
            "Back to the recorded speeds", size="sm", scale=0, min_width=240, elem_id="figures-back"
        )
    inputs = [figures, selection]
    page_under_way().load(session.figures.choose, inputs, figures, **QUIET)
    selection.change(session.figures.choose, inputs, figures, **QUIET)
    back.click(session.figures.forget, figures, figures, **QUIET)
    figures.change(_said, figures, [bar, words], **QUIET)
    return figures


def _said(page: PageFigures) -> tuple[Any, Any]:
    own = page.own
    if own is None:
        return gr.Row(visible=False), gr.skip()
    said = Words(
        "Speeds measured on this machine, {0}, replace the recorded ones that they cover.", time_words(own)
    )
    return gr.Row(visible=True), said


def page_head() -> str:
    """What stands in the page's head, for `launch(head=...)`: the languages, before any part is drawn."""
    scripts = [read_web("language.js", "page_language.js"), languages_script(), "dressPage();"]
    return f"<script>(() => {{\n{''.join(scripts)}\n}})();</script>"


def gradio_theme() -> gr.themes.Base:
    """The built-in default theme in the palette's blue, with the machine's own fonts and no remote file."""
    neutral = gr.themes.Color(  # zinc in the light theme; in the dark one the linked view's navy
        c50="#fafafa", c100="#f4f4f5", c200="#e4e4e7", c300="#d4d4d8", c400="#a1a1aa", c500="#71717a",
        c600="#343c4b", c700="#2a313e", c800="#141923", c900="#10141d", c950="#0b0e14", name="navy",
    )  # fmt: skip
    return gr.themes.Default(
        primary_hue=gr.themes.colors.blue,
        secondary_hue=gr.themes.colors.blue,
        neutral_hue=neutral,
        radius_size=gr.themes.sizes.radius_md,
        spacing_size=gr.themes.sizes.spacing_sm,
        font=SANS,
        font_mono=MONO,
    ).set(
        button_primary_background_fill=LIGHT.accepted,
        button_primary_background_fill_hover="#005F96",
        button_primary_background_fill_dark=LIGHT.accepted,
        button_primary_background_fill_hover_dark="#1483C4",
        button_primary_text_color="#FFFFFF",
        button_primary_text_color_dark="#FFFFFF",
        **dict.fromkeys(
            ("button_secondary_background_fill", "button_secondary_background_fill_dark"),
            "*background_fill_primary",
        ),
        button_secondary_border_color="*border_color_primary",
        button_secondary_border_color_dark="*border_color_primary",
        button_large_text_weight="500",
        input_padding="4px 10px",
        block_radius="10px",
        input_radius="8px",
        button_border_width="1px",
        button_border_width_dark="1px",
        body_text_color_subdued=LIGHT.muted,
        body_text_color_subdued_dark=DARK.muted,
        block_info_text_color=LIGHT.muted,
        block_info_text_color_dark=DARK.muted,
        color_accent=LIGHT.accepted,
        checkbox_border_color="*neutral_500",  # an empty box must stand out from its background
        checkbox_border_color_dark="*neutral_500",
        checkbox_background_color_selected=LIGHT.accepted,
        checkbox_background_color_selected_dark=LIGHT.accepted,
        checkbox_border_color_selected=LIGHT.accepted,
        checkbox_border_color_selected_dark=LIGHT.accepted,
        slider_color=LIGHT.accepted,
        slider_color_dark=DARK.accepted,
        block_shadow="none",
        block_shadow_dark="none",
    )
