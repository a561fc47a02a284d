"""A fuzz of the HTTP surface: no failure without a sentence, no traceback, no fetch, a run works after."""

from __future__ import annotations

import random

import pytest
from http_fuzz import fuzz
from recording_server import recording_server
from served import PRIVATE, PUBLIC, launched

from ui.serving.admission import Rate
from ui.serving.policy import policy_of

TRAINING = policy_of({"SPACE_ID": "me/space", "MEDUSA_TRAINING": "1"})


def surface(engine_folder, policy, share, seed=0):
    with recording_server() as (elsewhere, asked), launched(engine_folder, policy) as site:
        site.page.states._new = Rate(10**6)  # each wrong event comes from a page of its own
        found = fuzz(site, elsewhere, random.Random(seed), share)
    assert found.faults == []
    assert asked == []
    return found.asked


def test_some_wrong_requests_of_every_kind(engine_folder):
    assert surface(engine_folder, PUBLIC, share=0.02) > 40


@pytest.mark.slow
@pytest.mark.parametrize("policy", [PUBLIC, TRAINING, PRIVATE], ids=["public", "training", "private"])
def test_all_wrong_requests(engine_folder, policy):
    assert surface(engine_folder, policy, share=1.0) > 2000
