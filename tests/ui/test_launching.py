"""The page of a test is served also where a port is lost or the first answer comes late."""

from __future__ import annotations

import socket
from urllib.request import urlopen

import gradio as gr
import pytest
from gradio import http_server, networking
from launching import launch


@pytest.fixture
def demo():
    with gr.Blocks(analytics_enabled=False) as page:
        gr.HTML("here")
    yield page
    page.close(verbose=False)


def answers(address):
    with urlopen(address) as answer:
        return answer.status == 200


def test_a_first_answer_that_comes_late_is_tried_again(demo, monkeypatch):
    asked, real = [], networking.url_ok
    monkeypatch.setattr(
        networking, "url_ok", lambda url: bool(asked.append(url) or len(asked) > 1) and real(url)
    )
    assert answers(launch(demo))
    assert len(asked) == 2


def test_a_port_that_is_taken_in_between_is_tried_again(demo, monkeypatch):
    taken, real = [], http_server.start_server

    def start(*, server_port, **others):
        if not taken:
            taken.append(socket.create_server(("127.0.0.1", server_port)))
        return real(server_port=server_port, **others)

    monkeypatch.setattr(http_server, "start_server", start)
    assert answers(launch(demo))
    taken[0].close()


def test_other_faults_of_a_launch_are_not_hidden(demo):
    with pytest.raises(ValueError, match="both `auth`"):
        launch(demo, auth=("a", "b"), auth_dependency=lambda request: None)
