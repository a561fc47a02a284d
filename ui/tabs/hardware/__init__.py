"""The Hardware tab: why decoding is fast, and when Medusa is not. Paper Appendix G."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ui.runs.session import Session
from ui.tabs.hardware import gain, live, memory, roofline
from ui.tabs.hardware.choice import build_choice

INTRO = """
<p class="note">Decoding reads all weights for each token, while the arithmetic units wait. A step
that checks 64 candidates reads the same weights once, so it hardly takes longer. Formulas say when
that holds on a device; the last part measures it on this machine.</p>
"""


def build(session: Session, selection: gr.State, opened: list[Any]) -> None:
    """Lay the tab out and connect it. `selection` holds a `Selection`."""
    gr.HTML(INTRO, apply_default_css=False)
    choice = build_choice(selection)
    parts = (
        ("Roofline", "roofline", roofline.build), ("Gain", "gain", gain.build),
        ("Memory wall", "memory", memory.build), ("Measured here", "measured", live.build),
    )  # fmt: skip
    with gr.Tabs(overflow_behavior="wrap", elem_id="hardware-parts"):
        for place, (title, name, build_part) in enumerate(parts):
            with gr.Tab(title, id=f"hardware-{name}") as part:
                # Drawn when it is opened, in the theme the browser shows then.
                build_part(session, choice, [part.select, *(opened if place == 0 else [])])
