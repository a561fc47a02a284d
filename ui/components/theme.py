"""The gradio theme: a built-in one in the palette's blue, with the machine's own fonts.

No remote font or stylesheet.
"""

from __future__ import annotations

import gradio as gr

from medusa_core.trace.replay.colours import DARK, LIGHT, MONO, SANS


def gradio_theme() -> gr.themes.Base:
    """The built-in default theme in the palette's blue, with the machine's own fonts."""
    return gr.themes.Default(
        primary_hue=gr.themes.colors.blue,
        secondary_hue=gr.themes.colors.blue,
        neutral_hue=gr.themes.colors.zinc,
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
        body_text_color_subdued=LIGHT.muted,
        body_text_color_subdued_dark=DARK.muted,
        block_info_text_color=LIGHT.muted,
        block_info_text_color_dark=DARK.muted,
        slider_color=LIGHT.accepted,
        slider_color_dark=DARK.accepted,
        block_shadow="none",
        block_shadow_dark="none",
    )
