"""Figures as a table with sentences around it, as markup built here with every text in it escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

import gradio as gr

TEMPLATE = "${value}"  # constant, since gradio evaluates templates as code
STYLE = """
.figure-table { font-size: 14px; line-height: 1.5; color: var(--body-text-color); }
.figure-table p, .figure-table ul { margin: 0 0 8px; max-width: 90ch; text-wrap: pretty; }
.figure-table .facts { max-width: none; }
.figure-table .facts span { display: inline-block; }
.figure-table ul { padding-left: 20px; }
.figure-table * + ul { margin-top: 8px; }
.figure-table h3 { margin: 12px 0 4px; font-size: 15px; font-weight: 650; }
.figure-table details { margin-top: 8px; }
.figure-table summary { cursor: pointer; }
.figure-table .quiet { color: var(--body-text-color-subdued); }
.figure-table code { font-size: 12.5px; overflow-wrap: anywhere; }
.figure-table .scroll { overflow-x: auto; contain: inline-size; }
.figure-table table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
.figure-table th, .figure-table td { padding: 3px 8px; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--border-color-primary); }
@media (min-width: 641px) { .figure-table td:last-child { white-space: normal; min-width: 9em; } }
.figure-table th:first-child { text-align: left; white-space: nowrap; }
.figure-table thead th { font-weight: 600; vertical-align: bottom;
  white-space: normal; word-break: keep-all; }
.figure-table tbody th { font-weight: 450; }
"""


def spans(texts: Iterable[str], between: str = " ") -> str:
    """Texts as markup in which each is translated by itself."""
    return between.join(f"<span>{html.escape(text)}</span>" for text in texts)


def grid(caption: str | Sequence[str], rows: Sequence[dict[str, str]]) -> str:
    """A table with a caption, its first column naming the rows; columns without any content are left out.

    The parts of a caption are translated one by one.
    """
    names, *columns = (name for name in rows[0] if any(row[name] for row in rows))
    head = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in (names, *columns))
    body = "".join(
        f"<tr><th scope='row'>{html.escape(row[names])}</th>"
        + "".join(f"<td>{html.escape(row[name])}</td>" for name in columns)
        + "</tr>"
        for row in rows
    )
    words = (
        f"<p class='quiet'>{spans([caption] if isinstance(caption, str) else caption)}</p>" if caption else ""
    )
    return (
        f"{words}<div class='scroll' tabindex='0'><table>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def wrap(markup: str) -> str:
    """The markup in the element that is styled."""
    return f"<div class='figure-table'>{markup}</div>"


def html_part(value: str, elem_id: str) -> gr.HTML:
    """A part of the page that shows such markup."""
    return gr.HTML(
        value, html_template=TEMPLATE, css_template=STYLE, apply_default_css=False, elem_id=elem_id
    )
