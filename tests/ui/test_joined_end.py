"""The end of a run and what is said behind it reach the page as one change, and nothing of it is lost."""

from __future__ import annotations

from dataclasses import dataclass
from time import sleep

from page_runs import SETTINGS

from medusa_core.config import LoadConfig
from ui.records.settings import RunSettings
from ui.records.updates import StopFlag, Update
from ui.runs.decode import DecodeRequest
from ui.serving.policy import Policy
from ui.serving.update_stream import Acks
from ui.session import Session


@dataclass(frozen=True)
class UntilStopped(DecodeRequest):
    """A run that ends with its trace once the flag is raised."""

    def run(self, engines, flag):
        yield Update('{"kind": "begin"}', "Reading the prompt…")
        while not flag.stopped:
            sleep(0.005)
            yield Update('{"kind": "step"}', "Step")
        yield Update('{"kind": "end"}', "stopped.", trace={"steps": [1]})


def test_a_run_that_its_time_limit_ended_keeps_its_trace(engine_folder):
    session = Session(LoadConfig(str(engine_folder)), policy=Policy(run_seconds=0.05))
    request = UntilStopped("abc", RunSettings.of(**SETTINGS))
    updates = list(session.run(request, StopFlag(), Acks()))
    assert [update.trace for update in updates if update.trace is not None] == [{"steps": [1]}]
    assert "broken" not in "".join(update.message or "" for update in updates)
    assert updates[-1].status == "stopped. Ended after 0.05 s, the longest that a run may take here."
