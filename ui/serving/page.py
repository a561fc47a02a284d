"""gradio's Blocks with what this page needs of its server: the channel, and no memory of what is over.

The one place that reaches into gradio's own records of its visitors.
"""

from __future__ import annotations

from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from ui.serving.page_channel import PageChannel, PageChannelRoutes

MOST_EVENTS_NOTED = 100  # gradio makes a table of them after each event, which is not shown anywhere


class Page(gr.Blocks):
    """Blocks whose server also answers the channel between browser and runs, however it is launched."""

    def __init__(self, channel: PageChannel, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._channel = channel

    def queue(self, *args: Any, **kwargs: Any) -> Page:
        """As gradio's own, with fewer of the events that are over kept in its records."""
        super().queue(*args, **kwargs)
        self._queue.ANALYTICS_MAX_EVENTS = MOST_EVENTS_NOTED
        return self

    def launch(self, *args: Any, app_kwargs: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        """As gradio's own; the channel stands behind the middleware that is asked for."""
        asked = app_kwargs or {}
        layers = [*asked.get("middleware", ()), Middleware(PageChannelRoutes, channel=self._channel)]
        return super().launch(*args, app_kwargs={**asked, "middleware": layers}, **kwargs)

    async def postprocess_data(self, block_fn: Any, predictions: Any, state: Any) -> list[Any]:
        """As gradio's own, which leaves a component behind for each one that an event changes or skips.

        It makes such a component anew, under a new number, and with the next value files it under that one
        as well, with its script and its value, for as long as the visitor's page is open.
        """
        try:
            return await super().postprocess_data(block_fn, predictions, state)
        finally:
            if state is not None:
                for number in state.blocks_config.blocks.keys() - self.default_config.blocks.keys():
                    del state.blocks_config.blocks[number]
                    state.config_values.pop(number, None)
