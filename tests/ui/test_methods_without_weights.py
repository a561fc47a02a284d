"""Methods that the visitor's model has no weights for: named, and said of each lane of a comparison."""

from __future__ import annotations

import pytest
from page_runs import SETTINGS

from ui.records.lanes import SecondLane
from ui.records.selection import Selection
from ui.records.settings import RunSettings
from ui.records.updates import StopFlag
from ui.runs.compare import CompareRequest
from ui.session import Session


@pytest.fixture(scope="module")
def session(load):
    return Session(load)


def compared(session, method, second):
    settings = RunSettings.of(**SETTINGS | {"max_new_tokens": 8, "method": method})
    return list(session.run(CompareRequest("abcabc", settings, 1, SecondLane(method=second)), StopFlag()))


def test_nothing_is_known_before_the_model_is_loaded_and_then_what_it_lacks(load):
    fresh = Session(load)
    assert fresh.methods_without_weights(Selection()) == frozenset()
    fresh.load()
    lacking = fresh.methods_without_weights(Selection())
    assert {"hydra", "eagle3", "draft_model", "hydra+ngram"} <= lacking
    assert not lacking & {"medusa", "medusa+ngram", "ngram", "none"}


def test_heads_of_the_visitors_own_count(session):
    session.load()
    engine = session.model_at_hand(Selection())
    bare = session.add_engine("bare", engine)
    assert "medusa" not in session.methods_without_weights(Selection().with_engine(bare, "bare"))
    gone = Selection().with_engine("gone", "gone")
    assert "hydra" in session.methods_without_weights(gone)


@pytest.mark.parametrize(("first", "second"), [("medusa", "hydra"), ("hydra", "ngram")])
def test_a_lane_that_decodes_plainly_for_lack_of_weights_says_so_until_the_end(session, first, second):
    updates = compared(session, first, second)
    assert not updates[-1].problem, updates[-1].status
    badges = [update.badge for update in updates if update.badge is not None]
    assert badges[-1].startswith("Hydra heads: this model has no weights for it")


def test_two_lanes_that_both_come_to_plain_decoding_name_what_is_missing(session):
    problem = compared(session, "hydra", "none")[-1]
    assert problem.problem
    assert "has no weights for Hydra heads, so there is nothing to compare" in problem.status
