"""The contextual penalty as the public TokenSwift code was recorded (tests/golden).

Where that code goes astray, in batches of rows, it is not followed: the greedy text is compared with the one
recorded one token at a time.
"""

from __future__ import annotations

import pytest
import tiny
import torch
from golden import golden_rows

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.loading.load import load_engine
from medusa_core.logits.penalty import ContextualPenalty

both = pytest.mark.parametrize("golden", golden_rows("tokenswift"))


@both
def test_logits_are_the_recorded_ones(golden):
    cases = [case for case in golden.recorded()["unit"]["penalty"] if case["window"]]
    assert cases
    for case in cases:
        penalty = ContextualPenalty(case["theta"], case["window"])
        logits = torch.tensor(case["logits_in"])
        *text, last = case["context"]
        penalty.begin(case["context"], logits.device)
        wanted = torch.tensor(case["logits_out"])
        torch.testing.assert_close(penalty.after_text(logits), wanted, rtol=0, atol=2e-6)
        # The same place as the root of a tree after the rest of the text.
        penalty.begin(text, logits.device)
        found = penalty.after_nodes(logits[None], tiny.token_tree([-1], [last]))[0]
        torch.testing.assert_close(found, wanted, rtol=0, atol=2e-6)


@both
def test_the_public_codes_window_0_is_every_token_of_the_text(golden):
    """Its list[-0:] is the whole list; here 0 is off, and a window of the text's length says the same."""
    (case,) = [case for case in golden.recorded()["unit"]["penalty"] if not case["window"]]
    penalty = ContextualPenalty(case["theta"], len(case["context"]))
    penalty.begin(case["context"], torch.device("cpu"))
    found = penalty.after_text(torch.tensor(case["logits_in"]))
    torch.testing.assert_close(found, torch.tensor(case["logits_out"]), rtol=0, atol=2e-6)


@both
def test_greedy_text_is_the_recorded_one_of_one_token_at_a_time(golden):
    engine = load_engine(LoadConfig(str(golden.models() / "model"), dtype="float32", device="cpu"))
    runs = [run for run in golden.recorded()["runs"] if run["mode"] == "penalty" and run["one_token_greedy"]]
    assert len(runs) == (6 if golden.full else 2)
    for run in runs:
        prompt, wanted = golden.recorded()["prompts"][run["prompt"]], run["one_token_greedy"]
        for method in ("none", "lookup", "ngram"):
            config = GenerationConfig.of(
                method=method, penalty=run["penalty"], penalty_window=run["penalty_length"],
                max_new_tokens=len(wanted), ignore_eos=True,
            )  # fmt: skip
            assert tiny.emitted(engine.stream(prompt, config)) == wanted
