"""A served page where one visitor trains and others run; their wait is asserted, since it is the point."""

from __future__ import annotations

import time

import pytest
from served import DONE, launched, wait_until, words_of
from training_corpus import SENTENCES

from ui.serving.policy import policy_of
from ui.serving.turns import SLICE_SECONDS

PAGES = 3


@pytest.mark.slow
def test_a_run_beside_a_training_waits_for_about_a_slice(trained_base):
    with launched(trained_base, policy_of({"SPACE_ID": "me/space", "MEDUSA_TRAINING": "1"})) as site:
        run, train = site.event("work", "Textbox"), site.event("work", "File")
        decode = site.values(run, Prompt="The cat saw a", **{"New tokens at most": 4})
        assert DONE in words_of(site.outcome("warm", run, decode))
        text = {"Text to learn from": "paste", "Your text": "\n\n".join(SENTENCES * 20), "Minutes": 0.5}
        plan = site.values(train, **text, Steps=20_000, Heads=2)
        assert site.join("trainer", train, plan).status_code == 200
        with site.listen("trainer") as said:
            while "Training heads alone" not in words_of(next(said)):
                pass
            waits = []
            for number in range(PAGES):
                begun = time.perf_counter()
                assert DONE in words_of(site.outcome(f"visitor{number}", run, decode))
                waits.append(time.perf_counter() - begun)
            assert site.session.busy
            end = words_of(list(said))
        assert max(waits) < SLICE_SECONDS + 2
        assert f"the rest went to {PAGES} other runs" in end
        wait_until(lambda: not site.session.busy)
