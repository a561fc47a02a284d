"""Updates at the pace of a page: joined where it lags, in order, and without holding the run up."""

from __future__ import annotations

import json
import threading
import time

import pytest

from medusa_core.text.streamed_text import TextSpan
from ui.records.messages import message_grow
from ui.records.updates import Update, several
from ui.runs.chat import ChatUpdate
from ui.serving.update_stream import MOST_UNDRAWN, Acks, UpdateStream, feed

STEPS = 200
PATIENCE = 30


def run(steps=STEPS, done=None):
    """What a quick run says: a beginning, its steps, and its end with the trace."""
    yield Update(json.dumps({"kind": "begin"}), "Reading the prompt…")
    for number in range(steps):
        yield Update(json.dumps({"kind": "step", "step": number}), f"Step {number}")
    if done:
        done.set()
    yield Update(json.dumps({"kind": "end"}), "done", trace={"steps": []})


def paced(updates, acks):
    stream = UpdateStream(acks)
    feed(updates, stream)
    return stream


def opened(update):
    """The messages within an update's, and the number under which they were sent."""
    outer = json.loads(update.message)
    assert outer["kind"] == "numbered"
    inner = outer["message"]
    return inner["messages"] if inner["kind"] == "several" else [inner], outer["number"]


def drawing(acks, updates):
    """All updates of a page that draws each message at once."""
    for update in updates:
        yield update
        if update.message is not None:
            acks.drawn(opened(update)[1])


def test_steps_that_come_faster_than_they_are_drawn_are_sent_together_in_their_order():
    acks = Acks()

    def slow_enough():
        for update in run(60):
            time.sleep(0.004)
            yield update

    seen = list(drawing(acks, paced(slow_enough(), acks)))
    messages = [message for update in seen for message in opened(update)[0]]
    steps = [message["step"] for message in messages if message["kind"] == "step"]
    assert messages[0]["kind"] == "begin"
    assert messages[-1]["kind"] == "end"
    assert steps == list(range(60))
    assert len(seen) < 60 / 2
    assert seen[-1].trace is not None
    assert [opened(update)[1] for update in seen] == list(range(1, len(seen) + 1))


def test_a_page_that_confirms_nothing_is_sent_a_few_messages_and_the_end():
    acks, done = Acks(), threading.Event()
    sent = paced(run(STEPS, done), acks)
    first = next(sent)
    assert done.wait(PATIENCE)  # the run went on although nobody took its steps
    seen = [first, *sent]
    assert len(seen) <= MOST_UNDRAWN + 1
    assert seen[-1].status == "done"
    assert opened(seen[-1])[0][-1]["kind"] == "end"


def test_no_more_than_a_few_messages_are_under_way_until_one_is_drawn():
    acks, over = Acks(), threading.Event()

    def endless():
        while not over.wait(0.002):
            yield Update(json.dumps({"kind": "step", "step": 0}), "Step")

    sent = paced(endless(), acks)
    for _ in range(MOST_UNDRAWN):
        last = next(sent)
    waited = threading.Thread(target=next, args=(sent,))
    waited.start()
    waited.join(0.4)
    assert waited.is_alive()
    acks.drawn(opened(last)[1])
    waited.join(PATIENCE)
    assert not waited.is_alive()
    over.set()
    sent.close()


def test_numbers_that_were_never_sent_confirm_nothing():
    acks = Acks()
    for _ in range(MOST_UNDRAWN):
        acks.labelled("{}")
    acks.drawn(10**9)
    acks.drawn(-1)
    assert acks.wait_seconds() > 1
    acks.drawn(1)
    assert acks.wait_seconds() < 1


def test_a_page_that_leaves_closes_the_run():
    closed = threading.Event()

    def endless():
        try:
            while True:
                time.sleep(0.002)
                yield Update(status="more")
        finally:
            closed.set()

    sent = paced(endless(), Acks())
    next(sent)
    sent.close()
    assert closed.wait(PATIENCE)


def test_problems_are_shown_by_themselves_and_errors_are_raised():
    def fails():
        yield Update(status="one")
        yield Update(status="two")
        yield Update(status="wrong", problem=True)
        yield Update(status="three")
        raise ValueError("broken")

    sent, seen = paced(fails(), Acks()), []
    with pytest.raises(ValueError, match="broken"):
        seen.extend(iter(lambda: next(sent), None))
    words = [(update.status, update.problem) for update in seen]
    assert ("wrong", True) in words
    assert words[-1] == ("three", False)


def test_the_words_of_a_reply_stay_in_their_order():
    grown = [
        ChatUpdate("{}", f"Step {n}", transcript=message_grow("r", n, [TextSpan(str(n))])) for n in range(4)
    ]
    whole = grown[-1].after(grown[:-1])
    told = json.loads(whole.transcript)["messages"]
    assert [message["pieces"][0]["text"] for message in told] == list("0123")
    assert whole.status == "Step 3"


def test_a_joined_part_that_nobody_set_stays_as_it_is():
    update = Update(status=None).after([Update(badge="mine"), Update(status="first")])
    assert (update.message, update.status, update.badge) == (None, "first", "mine")
    assert several([None, "{}"]) == "{}"
