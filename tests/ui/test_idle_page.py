"""An idle page's queue looks for events about a hundred times a second, not a thousand as gradio's own."""

from __future__ import annotations

import asyncio
import threading
import time

from served import PRIVATE, launched


def test_an_idle_page_hardly_wakes(engine_folder, monkeypatch):
    waking, sleep = [], asyncio.sleep

    def noted(seconds, *result):
        waking.append((threading.get_ident(), seconds))
        return sleep(seconds, *result)

    with launched(engine_folder, PRIVATE) as site:
        site.idle()
        monkeypatch.setattr(asyncio, "sleep", noted)
        time.sleep(0.5)
        server = site.page.server.thread.ident  # pages of other tests may be served meanwhile
    own = [seconds for thread, seconds in waking if thread == server]
    assert 0 < len(own) < 100  # gradio itself would look at an empty queue five hundred times
