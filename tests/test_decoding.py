"""The loop: equality with plain decoding, every way a run ends, and runs that do not meet."""

from __future__ import annotations

import dataclasses

import pytest
import tiny
import torch
from transformers import MistralConfig

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.engine import load_engine
from medusa_core.errors import MedusaError
from medusa_core.stopping import Stopper, text_before_stop

TREES = ["cartesian-1x1x1", "cartesian-4x2x1", "cartesian-3x3x3", "cartesian-10"]
PROMPT = [1, 2, 0, 3]


def run(engine, prompt=PROMPT, **settings):
    return list(engine.stream(prompt, GenerationConfig(**({"tree": "cartesian-4x2x2"} | settings))))


def with_end_token(engine, token):
    """The same engine with a tokenizer whose end of text is ``token``."""
    return dataclasses.replace(engine, tokenizer=tiny.tiny_tokenizer(token))


def step_with_drafts(steps, drafts):
    """The first step but one that accepted at least ``drafts`` drafts, and the tokens emitted before it."""
    for number, step in enumerate(steps):
        if number and len(step.emitted) > drafts:
            return step, tiny.emitted(steps[:number])
    raise AssertionError("the heads never accept enough: the test could not fail")


# --- equality with plain decoding --------------------------------------------------------------------------


def transformers_greedy(model, prompt, count):
    return model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
    )[0, len(prompt) :].tolist()


@pytest.mark.parametrize("tree", TREES)
def test_greedy_medusa_equals_plain_greedy(attention_variant, tree):
    engine = tiny.build_engine(attention_variant, tiny.fitted_heads(attention_variant))
    accepted = 0
    for seed in range(4):
        prompt = tiny.random_tokens(5, seed)
        plain = run(engine, prompt, method="none", max_new_tokens=50)
        steps = run(engine, prompt, tree=tree, max_new_tokens=50)
        assert all(len(step.emitted) == 1 for step in plain)
        assert (
            tiny.emitted(steps) == tiny.emitted(plain) == transformers_greedy(attention_variant, prompt, 50)
        )
        assert 0 in tiny.emitted(steps)
        accepted += 50 - len(steps)
    assert accepted > 20  # an equality without accepted drafts would show nothing


@pytest.mark.parametrize("layers", [1, 2])
def test_greedy_equality_with_heads_that_know_nothing(model, layers):
    engine = tiny.build_engine(model, tiny.random_heads(model, count=4, layers=layers))
    for tree in [*TREES, "mc_sim_7b_63"]:
        assert tiny.emitted(run(engine, tree=tree, max_new_tokens=40)) == transformers_greedy(
            model, PROMPT, 40
        )


def test_typical_at_temperature_zero_is_greedy_too(engine):
    plain = tiny.emitted(run(engine, method="none"))
    assert tiny.emitted(run(engine, acceptance="typical")) == plain


def test_typical_accepts_more_than_matching_does(engine):
    """At the loosest bar nearly every draft is plausible, which no rule that compares tokens would say."""
    loose = run(engine, acceptance="typical", temperature=1.0, epsilon=0.01, max_new_tokens=60)
    greedy = run(engine, max_new_tokens=60)
    assert len(loose) < len(greedy)


def test_the_loaded_engine_decodes_like_the_one_in_memory(engine, engine_folder):
    loaded = load_engine(LoadConfig(model=str(engine_folder), dtype="float32", device="cpu"))
    assert [list(choice) for choice in loaded.tree("default").choices] == [[0], [1], [0, 0]]
    steps = run(loaded, tree="default", max_new_tokens=40)
    assert tiny.emitted(steps) == tiny.emitted(run(engine, method="none", max_new_tokens=40))
    assert max(len(step.emitted) for step in steps) == 3
    assert loaded.encode("abca") == [0, 1, 2, 0]
    assert loaded.decode_text([0, 0, 3]) == "aad"


# --- the records -------------------------------------------------------------------------------------------


def test_steps_add_up(engine):
    steps = run(engine, max_new_tokens=50)
    length = len(PROMPT)
    for number, step in enumerate(steps):
        assert step.index == number
        assert step.cache_length == length
        accepted = step.tree.tokens[step.verdict.path].tolist()
        length += len(accepted)
        if number + 1 < len(steps):
            assert step.emitted == accepted
            assert step.finish_reason is None
            assert int(steps[number + 1].tree.tokens[0]) == step.verdict.bonus
        assert step.logits.shape == (step.tree.size, tiny.VOCABULARY)
        phases = step.ms.propose + step.ms.verify + step.ms.accept + step.ms.commit
        assert 0 < phases <= step.ms.total
    assert steps[-1].finish_reason == "length"


def test_the_tree_holds_the_guesses_of_the_heads(engine):
    """Node (r1, …, rk) is guess rk of head k at the last accepted position, and says how likely."""
    steps = run(engine, tree="cartesian-3x2", max_new_tokens=8)
    read = list(PROMPT)
    for step in steps:
        hidden = engine.target.model(torch.tensor([read]), output_hidden_states=True).hidden_states[-1][0, -1]
        logp = engine.heads(hidden[None])[:, 0].log_softmax(-1)
        for node in range(1, step.tree.size):
            head, rank = step.tree.heads[node], step.tree.ranks[node]
            best = logp[head - 1].argsort(descending=True)
            assert int(step.tree.tokens[node]) == int(best[rank])
            assert float(step.tree.draft_logp[node]) == pytest.approx(
                float(logp[head - 1, best[rank]]), abs=1e-4
            )
        read += step.tree.tokens[step.verdict.path].tolist()


def test_the_caller_is_not_left_in_inference_mode(engine):
    stream = engine.stream(PROMPT, GenerationConfig(tree="cartesian-4"))
    next(stream)
    assert not torch.is_inference_mode_enabled()


# --- ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", range(1, 12))
def test_the_budget_is_exact(engine, budget):
    steps = run(engine, max_new_tokens=budget)
    assert tiny.emitted(steps) == transformers_greedy(engine.target.model, PROMPT, budget)
    assert steps[-1].finish_reason == "length"


def test_the_budget_cuts_inside_an_accepted_path(engine):
    step, before = step_with_drafts(run(engine, max_new_tokens=60), drafts=2)
    last = run(engine, max_new_tokens=len(before) + 2)[-1]
    assert last.verdict.path == step.verdict.path  # the whole path was accepted
    assert last.emitted == step.emitted[:2]  # and only what the budget allows was emitted
    assert last.finish_reason == "length"


def cut_token(steps):
    """A step with a token inside its accepted path that the run had not emitted before."""
    for number, step in enumerate(steps):
        before = tiny.emitted(steps[:number])
        for place in range(1, len(step.emitted) - 1):
            token = step.emitted[place]
            if token not in before + step.emitted[:place]:
                return token, before + step.emitted[: place + 1], step
    return None


@pytest.fixture(scope="module")
def cut_case(engine):
    """Prompt, a token that first occurs inside an accepted path, and the tokens up to and with it."""
    for seed in range(60):
        prompt = tiny.random_tokens(5, seed)
        if found := cut_token(run(engine, prompt, max_new_tokens=40)):
            return prompt, *found
    raise AssertionError("no prompt leads to such a path")


def test_end_of_text_cuts_inside_an_accepted_path(engine, cut_case):
    prompt, token, wanted, step = cut_case
    ending = with_end_token(engine, token)
    steps = run(ending, prompt, max_new_tokens=40)
    assert tiny.emitted(steps) == wanted
    assert steps[-1].verdict.path == step.verdict.path
    assert len(steps[-1].emitted) < len(steps[-1].verdict.path)
    assert steps[-1].finish_reason == "eos"
    assert tiny.emitted(run(ending, prompt, max_new_tokens=40, method="none")) == wanted


def test_ignored_end_of_text_does_not_cut(engine, cut_case):
    prompt, token, _, _ = cut_case
    steps = run(with_end_token(engine, token), prompt, max_new_tokens=40, ignore_eos=True)
    assert len(tiny.emitted(steps)) == 40
    assert steps[-1].finish_reason == "length"


def test_token_zero_can_be_the_end_of_text(engine):
    ending = with_end_token(engine, 0)
    steps = run(ending, max_new_tokens=60)
    plain = transformers_greedy(engine.target.model, PROMPT, 60)
    assert tiny.emitted(steps) == plain[: plain.index(0) + 1]
    assert steps[-1].finish_reason == "eos"


def test_end_tokens_come_from_model_and_tokenizer():
    model = tiny.build_model(tiny.tiny_config())
    model.generation_config.eos_token_id = [3, 5]
    engine = with_end_token(tiny.build_engine(model, None), 7)
    assert engine.end_tokens() == {3, 5, 7}
    model.generation_config.eos_token_id = None
    assert tiny.build_engine(model, None).end_tokens() == frozenset()


def test_a_stop_string_cuts_inside_an_accepted_path(engine, cut_case):
    prompt, token, wanted, step = cut_case
    steps = run(engine, prompt, max_new_tokens=40, stop=(engine.token_text(token),))
    assert tiny.emitted(steps) == wanted
    assert steps[-1].verdict.path == step.verdict.path
    assert steps[-1].finish_reason == "stop"


def test_a_stop_string_may_span_tokens_and_steps(engine, cut_case):
    """The string ends inside a path and begins in the tokens before it."""
    prompt, _, wanted, _ = cut_case
    for span in (2, 3, 4):
        stop = engine.decode_text(wanted[-span:])
        steps = run(engine, prompt, max_new_tokens=40, stop=("no such text", stop))
        assert tiny.emitted(steps) == wanted
        assert steps[-1].finish_reason == "stop"
        text = text_before_stop(engine.decode_text(tiny.emitted(steps)), (stop,))
        assert text == engine.decode_text(wanted[:-span])


def test_a_stop_string_is_not_looked_for_in_the_prompt(engine):
    steps = run(engine, max_new_tokens=5, stop=(engine.decode_text(PROMPT),))
    assert steps[-1].finish_reason == "length"


@pytest.mark.parametrize("method", ["none", "medusa"])
@pytest.mark.parametrize("prompt_length", [80, 92, 95])
def test_the_end_of_the_context_shrinks_the_tree_and_stops(engine, method, prompt_length):
    """A context of 96: every position is used, none beyond it, and the tokens are still the model's own."""
    prompt = tiny.random_tokens(prompt_length, seed=4)
    steps = run(engine, prompt, method=method, max_new_tokens=60)
    room = engine.target.context - prompt_length
    assert steps[-1].finish_reason == "context"
    assert tiny.emitted(steps) == transformers_greedy(engine.target.model, prompt, room)
    for step in steps:
        assert step.cache_length + max(step.tree.depths) < engine.target.context
    assert steps[-1].tree.size < 1 + 4 + 8 + 16


def test_the_budget_wins_when_it_ends_with_the_context(engine):
    prompt = tiny.random_tokens(90, seed=4)
    assert run(engine, prompt, max_new_tokens=6)[-1].finish_reason == "length"


def test_a_sliding_window_model_runs_to_the_end_of_its_window():
    config = MistralConfig(
        **(tiny.tiny_config(kv_heads=2).to_dict() | {"model_type": "mistral"}), sliding_window=20
    )
    model = tiny.build_model(config)
    engine = tiny.build_engine(model, tiny.fitted_heads(model))
    steps = run(engine, max_new_tokens=60)
    assert steps[-1].finish_reason == "context"
    assert tiny.emitted(steps) == transformers_greedy(model, PROMPT, 20 - len(PROMPT))


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "the prompt is empty"),
        ([1] * 96, "the prompt has 96 tokens, the context holds 96"),
        ([1, 24], "prompt ids run from 1 to 24, the vocabulary from 0 to 23"),
        ([1, -1], "prompt ids run from -1 to 1"),
    ],
)
def test_bad_prompts(engine, prompt, message):
    with pytest.raises(MedusaError, match=message):
        run(engine, prompt)


@pytest.mark.parametrize("text", ["", "  \n\t"])
def test_empty_text_is_refused(engine, text):
    with pytest.raises(MedusaError, match="the prompt is empty"):
        engine.encode(text)


def test_settings_that_do_not_fit(engine, model):
    bare = tiny.build_engine(model, None)
    with pytest.raises(MedusaError, match="method medusa needs heads"):
        run(bare)
    with pytest.raises(MedusaError, match="no method 'magic': use one of medusa, none"):
        run(engine, method="magic")
    with pytest.raises(MedusaError, match="there are 3 heads"):
        run(engine, tree="cartesian-1x1x1x1")
    with pytest.raises(MedusaError, match="uses rank 10, the heads offer ranks 0 to 9"):
        run(engine, tree="cartesian-12")
    with pytest.raises(MedusaError, match="has no tokenizer"):
        tiny.build_engine(model, None, tokenizer=False).encode("a")
    with pytest.raises(MedusaError, match=r"temperature is -0.1, the smallest is 0.0"):
        GenerationConfig(temperature=-0.1)
    with pytest.raises(MedusaError, match="temperature is nan"):
        GenerationConfig(temperature=float("nan"))


def test_a_vocabulary_smaller_than_the_ranks_is_named():
    model = tiny.build_model(tiny.tiny_config(vocab_size=6))
    engine = tiny.build_engine(model, tiny.random_heads(model))
    with pytest.raises(MedusaError, match="uses rank 6, the heads offer ranks 0 to 5"):
        run(engine, tree="cartesian-7")


# --- stopping alone ----------------------------------------------------------------------------------------


def test_the_first_reason_in_the_tokens_wins():
    def stopper():
        return Stopper(
            frozenset({9}), ["bc"], budget=4, decode=lambda ids: "".join("abcdefghij"[i] for i in ids)
        )

    assert stopper().cut([0, 9, 1, 2]) == ([0, 9], "eos")
    assert stopper().cut([1, 2, 9]) == ([1, 2], "stop")
    assert stopper().cut([0, 0, 0, 0, 9]) == ([0, 0, 0, 0], "length")
    assert stopper().cut([0, 0, 0, 9]) == ([0, 0, 0, 9], "eos")
    assert stopper().cut([0, 1]) == ([0, 1], None)


def test_text_before_stop_takes_the_first_of_several():
    assert text_before_stop("one two three", ["three", "two"]) == "one "
    assert text_before_stop("one", ["two", ""]) == "one"


# --- runs do not meet --------------------------------------------------------------------------------------


def test_interleaved_streams_do_not_influence_each_other(engine):
    configs = [
        GenerationConfig(tree="cartesian-4x2x2", max_new_tokens=40),
        GenerationConfig(tree="cartesian-2x2", temperature=0.9, seed=5, max_new_tokens=40),
        GenerationConfig(method="none", temperature=1.3, seed=6, max_new_tokens=40),
        GenerationConfig(tree="cartesian-3x1x1", acceptance="typical", temperature=0.7, max_new_tokens=40),
    ]
    prompts = [tiny.random_tokens(4 + i, seed=i) for i in range(len(configs))]
    alone = [tiny.emitted(engine.stream(p, c)) for p, c in zip(prompts, configs, strict=True)]
    together: list[list[int]] = [[] for _ in configs]
    live = {i: engine.stream(p, c) for i, (p, c) in enumerate(zip(prompts, configs, strict=True))}
    while live:
        for i in list(live):
            step = next(live[i], None)
            if step is None:
                del live[i]
            else:
                together[i] += step.emitted
    assert together == alone


@pytest.mark.parametrize("chosen", [{"acceptance": "match"}, {"acceptance": "typical", "root": "sample"}])
def test_a_seed_repeats_a_run_and_another_changes_it(engine, chosen):
    torch.manual_seed(1)
    first = tiny.emitted(run(engine, temperature=1.0, seed=3, max_new_tokens=40, **chosen))
    torch.manual_seed(2)  # the global generator plays no part
    assert tiny.emitted(run(engine, temperature=1.0, seed=3, max_new_tokens=40, **chosen)) == first
    assert tiny.emitted(run(engine, temperature=1.0, seed=4, max_new_tokens=40, **chosen)) != first
