"""The chat mode of Watch: the conversation, a message box, and the wiring of a reply."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gradio as gr

from ui.components.controls import Controls, example_buttons
from ui.components.events import AT_ONCE, QUIET
from ui.components.views import DecodeView, TextLine, Transcript
from ui.records.conversation import ChatHolder, ChatState
from ui.records.examples import example_prompts
from ui.records.messages import message_rest, message_show
from ui.records.settings import Selection
from ui.records.updates import StopFlag
from ui.runs.chat import ChatRequest, ChatUpdate
from ui.runs.session import Session
from ui.serving.kept import RunSlot
from ui.tabs.run_bar import RunBar, connect_run, drawn_run, or_skip, run_buttons, say_when_too_long, shown

CHAT = "chat"  # the mode's value
# How the example prompts write one message: those of bookings and sums, and those of chats about stories.
FORM = re.compile(r"(?:User: (.*)\nAssistant:|A: (.*)\nB:)")


@dataclass(frozen=True)
class ChatPanel:
    """The chat's parts, and the holder of a visitor's conversation."""

    bar: RunBar
    sent: gr.Textbox  # hidden: the message that is being answered
    system: gr.Textbox
    transcript: Transcript
    notice: TextLine
    anew: gr.Button
    holder: gr.State

    @classmethod
    def build(cls, session: Session) -> ChatPanel:
        """Lay it out for a narrow column."""
        with gr.Row(elem_classes="chat-head"):
            gr.HTML("<h2>Conversation</h2>", apply_default_css=False)
            anew = gr.Button("New conversation", size="sm", min_width=0, scale=0, elem_id="chat-new")
        notice = TextLine(elem_id="chat-notice", elem_classes="status")
        transcript = Transcript(elem_id="chat-transcript")
        box = gr.Textbox(
            label="Message", lines=1, max_lines=6, elem_id="chat-message",
            placeholder="Enter sends, Shift+Enter: new line",
        )  # fmt: skip
        say_when_too_long(box)
        buttons = example_buttons(openers(example_prompts(session.assets)))
        bar = replace(run_buttons("chat", "Send"), prompt=box, examples=buttons)
        with gr.Accordion("System prompt", open=False, elem_id="chat-system"):
            system = gr.Textbox(
                show_label=False, lines=2, max_lines=6, container=False, elem_id="chat-system-words",
                placeholder="How the model should behave. Not every chat template has a place for it.",
            )  # fmt: skip
            say_when_too_long(system)
        sent = gr.Textbox(visible=False)
        return cls(bar, sent, system, transcript, notice, anew, gr.State(ChatHolder()))

    def connect(
        self, session: Session, controls: Controls, view: DecodeView, slot: gr.State
    ) -> gr.events.Dependency:
        """Send, Stop and New conversation. Returns the reply's event; its trace is kept under `slot`."""
        self.anew.click(
            _start_anew, [self.holder, self.bar.flag], [self.transcript, self.bar.status], **AT_ONCE
        )
        # The box is free for the next message at once. A message that cannot be answered goes back into it.
        box = self.bar.prompt
        gr.on(self.bar.triggers(), None, box, [self.sent, box], js="(text) => [text, '']")
        run = connect_run(
            session, self.bar, partial(_replies, session, controls),
            [slot, self.sent, self.system, self.holder, *controls.inputs()],
            [self.transcript, self.sent, view], controls.selection,
        )  # fmt: skip
        run.then(None, [self.sent, box], [self.sent, box], js="(sent, text) => ['', text || sent]")
        return run

    def connect_notice(self, session: Session, mode: gr.Radio, selection: gr.State) -> None:
        """Say what to know about a model when the visitor turns to the chat or chooses another model."""

        def look(name: str, own: Selection) -> Any:
            return session.chat_notice(own) if name == CHAT else gr.skip()

        gr.on(
            [mode.input, selection.change], look, [mode, selection], self.notice,
            trigger_mode="always_last", **QUIET,
        )  # fmt: skip


def openers(kinds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The example prompts that are a first message, without the frame that makes them a text to continue."""
    found = []
    for kind in kinds:
        prompts = [
            prompt | {"text": said[1] or said[2]}
            for prompt in kind["prompts"]
            if (said := FORM.fullmatch(prompt["text"]))
        ]
        if prompts:
            found.append(kind | {"prompts": prompts})
    return found


def _replies(
    session: Session,
    controls: Controls,
    flag: StopFlag,
    slot: RunSlot,
    text: str,
    system: str,
    holder: ChatHolder,
    *values: Any,
) -> Iterator[tuple[Any, ...]]:
    """Values for status, badge, transcript, the message that was sent and view while one reply is made."""
    state, answered = holder.state, False
    request = ChatRequest(text, replace(state, system=system or ""), controls.settings(values))
    with drawn_run(session, request, flag, slot) as updates:
        for update in updates:
            status, badge = shown(update)
            words = sent = gr.skip()
            # A conversation that was replaced meanwhile gets no more words; its run ends in the view.
            here = holder.state is state
            if isinstance(update, ChatUpdate) and here:
                words, answered = update.transcript, update.state is not None
                holder.state = state = update.state or state
            if answered or not here:
                sent = ""
            status = status if here else gr.skip()
            yield status, badge, words, sent, or_skip(update.message)
    yield gr.skip(), gr.skip(), gr.skip(), gr.skip(), message_rest()
    if not answered and holder.state is state:  # as before the message was sent
        yield gr.skip(), gr.skip(), message_show(uuid.uuid4().hex, state.turns), gr.skip(), gr.skip()


def _start_anew(holder: ChatHolder, flag: StopFlag) -> tuple[str, str]:
    flag.stopped = True
    holder.state = ChatState(holder.state.id)
    return message_show(uuid.uuid4().hex, ()), ""
