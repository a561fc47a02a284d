"""gradio's Blocks with what this page needs of its server: the channel, and no memory of what is over.

The one place that reaches into gradio's own records of its visitors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import copy
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from ui.serving.kept_runs import KeptRuns
from ui.serving.page_routes import PageChannel, page_routes
from ui.serving.page_states import Heartbeats, PageStates

SKIP = {"__type__": "update"}  # gradio's word for a value that stays as it is
MOST_EVENTS_NOTED = 100  # gradio makes a table of them after each event, which is not shown anywhere
# Between two looks of an idle queue for events. gradio's own thousand looks a second take 7 % of a core
# and, again and again, the interpreter's lock from the engine's thread.
LOOK_SECONDS = 0.01


class Page(gr.Blocks):
    """Blocks whose server also answers what browsers ask of their runs, however it is launched."""

    def __init__(self, channel: PageChannel, runs: KeptRuns, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.states = PageStates()
        self._channel = channel
        self._runs = runs

    def queue(self, *args: Any, **kwargs: Any) -> Page:
        """Set up gradio's queue to keep fewer finished events and to look for new ones less often."""
        super().queue(*args, **kwargs)
        self._queue.ANALYTICS_MAX_EVENTS = MOST_EVENTS_NOTED
        self._queue.sleep_when_free = LOOK_SECONDS
        self._queue.progress_update_sleep_when_free = 1.0  # this page has none of gradio's progress bars
        return self

    def launch(self, *args: Any, app_kwargs: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        """Launch with the page's own routes, behind the middleware that is asked for.

        `_frontend=False`: gradio else asks its own server for the page and gives up after three seconds, in
        which a busy or slow machine has not made its first one.
        """
        asked = app_kwargs or {}
        heartbeats = Middleware(Heartbeats, states=self.states, left=self._channel.page_left)
        layers = [*asked.get("middleware", ()), heartbeats]
        routes = page_routes(self._channel, self._runs)
        return super().launch(
            *args,
            _frontend=False,
            app_kwargs={**asked, "middleware": layers, "routes": routes, "lifespan": self._serving},
            **kwargs,
        )

    @asynccontextmanager
    async def _serving(self, app: Any) -> AsyncIterator[None]:
        app.state_holder = self.states  # before the first request
        self.states.set_blocks(self)
        yield

    async def postprocess_data(self, block_fn: Any, predictions: Any, state: Any) -> list[Any]:
        """Hand gradio only the outputs that an event changes.

        It makes a component anew for each, also for a skipped one, which takes milliseconds of every message.
        A changed one it files under a new number, and with the next value under that one as well, with its
        script and its value, for as long as the visitor's page is open.
        """
        several = isinstance(predictions, (list, tuple)) and len(predictions) == len(block_fn.outputs) > 1
        changed = [place for place, value in enumerate(predictions) if value != SKIP] if several else []
        if not several or len(changed) == len(predictions):
            return await self._postprocess(block_fn, predictions, state)
        values: list[Any] = [None if block.stateful else dict(SKIP) for block in block_fn.outputs]
        if changed:
            fewer = copy(block_fn)
            fewer.outputs = [block_fn.outputs[place] for place in changed]
            given = [predictions[place] for place in changed]
            found = await self._postprocess(fewer, given if len(changed) > 1 else given[0], state)
            for place, value in zip(changed, found, strict=True):
                values[place] = value
        return values

    async def _postprocess(self, block_fn: Any, predictions: Any, state: Any) -> list[Any]:
        try:
            return await super().postprocess_data(block_fn, predictions, state)
        finally:
            if state is not None:
                for number in state.blocks_config.blocks.keys() - self.default_config.blocks.keys():
                    del state.blocks_config.blocks[number]
                    state.config_values.pop(number, None)
