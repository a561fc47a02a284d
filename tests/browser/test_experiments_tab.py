"""The Experiments tab in a browser, around a record that the command made on a tiny model."""

from __future__ import annotations

import json

import gradio as gr
import pytest
from places import says

from medusa_core.cli.main import main
from medusa_core.experiments import experiment_names
from medusa_core.experiments.record import read_record
from medusa_core.trace.replay.colours import DARK, LIGHT
from ui.tabs import experiments
from ui.tabs.layout import gradio_theme, page_css

pytestmark = pytest.mark.browser

CHARTS = "#experiment-charts .js-plotly-plot .main-svg"
DRAWN = f"document.querySelectorAll('{CHARTS}').length >= 4"  # two layers a chart


@pytest.fixture(scope="module")
def assets(engine_folder, tmp_path_factory):
    """One stored result, of figure 4; the other experiments have none."""
    path = tmp_path_factory.mktemp("assets")
    prompts = path / "letters.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("abc", "fgh")), "utf-8")
    flags = ["--quick", "--limit", "2", "--dtype", "float32", "--model", str(engine_folder)]
    files = ["--prompts", f"Letters={prompts}", "--out", str(path / "measured" / "tiny" / "figure4.json")]
    assert main(["reproduce", "figure4", *flags, *files]) == 0
    return path


@pytest.fixture(scope="module")
def address(assets, serve):
    """The tab as it stands in the app: not the first one, so that it is not mounted at the start."""
    with gr.Blocks(fill_width=True, analytics_enabled=False) as page, gr.Tabs():
        with gr.Tab("First"):
            gr.HTML(f"<p>{'something wide ' * 30}</p>")
        with gr.Tab("Experiments"):
            experiments.build(assets)
    return serve(page, theme=gradio_theme(), css=page_css(), footer_links=[], run_history=False)


def open_tab(open_page, address, **options):
    page = open_page(address, **options)
    page.get_by_role("tab", name="Experiments").click()
    page.wait_for_selector("#experiment-choice")
    return page


@pytest.fixture(scope="module")
def tab(address, open_warm_page):
    """One page for the tests that choose in it."""
    return open_tab(open_warm_page, address)


def choose(page, label):
    page.locator("#experiment-choice input").click()
    page.get_by_role("option", name=label).click()


def test_a_stored_result_is_drawn_with_its_numbers_and_its_origin(tab, assets):
    page = tab
    choose(page, "figure 4")
    page.wait_for_function(DRAWN)
    record = read_record(assets / "measured" / "tiny" / "figure4.json")
    details = page.locator("#experiment-details")
    assert details.locator("tbody tr").count() == len(record.rows)
    shown = details.inner_text()
    assert record.command in shown
    assert record.date in shown
    assert f"{record.rows[1].tokens_per_step.mean:.2f}" in shown
    assert "64 nodes" in shown  # the paper's claim
    assert page.locator("#experiment-chart-0").inner_text().startswith("Tokens per step")


def test_a_missing_result_names_the_command_and_hides_the_charts(tab):
    page = tab
    choose(page, "figure 4")
    page.wait_for_function(DRAWN)
    choose(page, "table 3")
    says(page, "#experiment-text", "reproduce table3")
    page.wait_for_function(f"document.querySelectorAll('{CHARTS}').length === 0")
    assert "2.8" in page.locator("#experiment-details").inner_text()  # the paper's own figures are there


def test_every_experiment_can_be_chosen(tab):
    """What each one then says, tests/ui/test_languages.py reads."""
    tab.locator("#experiment-choice input").click()
    titles = [experiments.SECTIONS[name][0] for name in experiment_names()]
    shown = tab.get_by_role("option").all_inner_texts()
    assert sorted(text.strip("✓\n ") for text in shown) == sorted(titles)
    tab.get_by_role("option").first.click()


def test_a_chart_that_is_drawn_already_follows_the_page_s_theme(tab):
    choose(tab, "figure 4")
    tab.wait_for_function(DRAWN)
    for change, palette in (("add", DARK), ("remove", LIGHT)):
        tab.evaluate(f"document.body.classList.{change}('dark')")  # as gradio does when the system's changes
        text = tab.locator("#experiment-chart-0 .xtick text").first.evaluate("e => getComputedStyle(e).fill")
        assert text == "rgb({}, {}, {})".format(*bytes.fromhex(palette.text[1:]))


@pytest.mark.slow
def test_charts_follow_the_dark_theme(address, tab, open_page):
    colours = []
    for page in (tab, open_tab(open_page, f"{address}?__theme=dark")):
        choose(page, "figure 4")
        page.wait_for_function(DRAWN)
        text = page.locator("#experiment-chart-0 .xtick text").first
        colours.append(text.evaluate("e => getComputedStyle(e).fill"))
    assert colours == ["rgb(39, 39, 42)", "rgb(244, 244, 245)"]
