"""A long run in a folder: the same tokens however often it is killed, α and memory as defined."""

from __future__ import annotations

import json
import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path

import eagle3_files
import pytest
import small_model
import tiny
from hydra_heads import with_hydra
from paths import ROOT
from tokenswift_heads import with_tokenswift

from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters import method_names
from medusa_core.drafters.medusa import with_heads
from medusa_core.errors import MedusaError
from medusa_core.loading.load import load_engine
from medusa_core.longrun import folder, memory, run, segments
from medusa_core.longrun.folder import SEGMENTS
from medusa_core.longrun.run import saved_run, with_tree_of
from medusa_core.longrun.segments import decode_segments
from medusa_core.trees.tree import Topology

METHODS = [name for name in method_names() if name != "none"]
SMALL = {"tree": "cartesian-4x2x2", "draft_top_k": 4, "draft_depth": 3, "draft_nodes": 15}
SMALL |= {"draft_budget": 40, "draft_sinks": 4}  # less than the text, so that rows are chosen
TOKENS_WANTED = 150
SHORT = 32  # tokens of a segment in these tests


@pytest.fixture(scope="module")
def engine():
    """A tiny engine with a long context and weights of every drafter that has some."""
    model = tiny.build_model(tiny.tiny_config(2, max_position_embeddings=4096), seed=1)
    engine = tiny.build_engine(model, tiny.fitted_heads(model))
    return with_tokenswift(with_hydra(small_model.with_draft_model(eagle3_files.with_draft(engine))))


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch):
    for module in (segments, folder, run, memory):
        monkeypatch.setattr(module, "SEGMENT", SHORT)


def config_of(**settings) -> GenerationConfig:
    return GenerationConfig.of(**{"max_new_tokens": TOKENS_WANTED, "ignore_eos": True} | SMALL | settings)


def finish(engine, config, path) -> list[int]:
    """Begin or go on to the end."""
    with saved_run(engine, tiny.PROMPT, config, path) as saved:
        for _ in saved.steps():
            pass
        assert saved.totals.tokens == len(saved.tokens) == saved.result()["new_tokens"]
        assert saved.end is not None
        return list(saved.tokens)


def killed(engine, config, path, steps, chance) -> None:
    """Work for so many steps and leave what a kill in the middle of a write leaves."""
    with saved_run(engine, tiny.PROMPT, config, path) as saved, closing(saved.steps()) as decoding:
        for _ in islice(decoding, steps):
            pass
        ended = saved.end is not None
    file = path / SEGMENTS
    if file.exists() and not ended and chance.random() < 0.7:
        content = file.read_bytes()
        file.write_bytes(content[: len(content) - chance.randrange(min(90, len(content)) + 1)])


@pytest.mark.sample(6)
@pytest.mark.parametrize("method", ["none", *METHODS])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.9},
        {"temperature": 0.9, "acceptance": "typical"},
        {"temperature": 0.9, "acceptance": "rejection"},
    ],
    ids=["greedy", "sampled", "typical", "rejection"],
)
def test_a_run_that_was_killed_has_the_tokens_of_one_that_was_not(engine, method, settings, tmp_path):
    if method not in engine.methods():
        pytest.skip(f"the tiny engine has no weights for {method}")
    config, chance = config_of(method=method, **settings), random.Random(f"{method} {settings}")
    whole = finish(engine, config, tmp_path / "whole")
    for _ in range(4):
        killed(engine, config, tmp_path / "killed", chance.randrange(40), chance)
    assert finish(engine, config, tmp_path / "killed") == whole
    assert len(whole) == TOKENS_WANTED
    if not settings:
        steps = engine.stream(tiny.PROMPT, config_of(method="none"))
        assert whole == tiny.emitted(steps)  # every method: plain decoding in one go


def test_segments_draw_by_their_own_seeds(engine):
    config = config_of(method="none", temperature=1.0)
    state = engine.new_state(len(tiny.PROMPT), config)
    chained = tiny.emitted(decode_segments(engine, tiny.PROMPT, config, state))
    alone = tiny.emitted(engine.stream(tiny.PROMPT, config))
    assert chained[:SHORT] == alone[:SHORT]
    assert chained != alone
    assert len({segments.seed_of(5, number) for number in range(2000)}) == 2000


def test_a_stop_string_may_lie_across_two_segments(engine):
    config = config_of(method="none")
    text = engine.decode_text(tiny.emitted(engine.stream(tiny.PROMPT, config)))
    stop = text[SHORT - 4 : SHORT + 4]  # one letter a token
    end = text.find(stop) + len(stop)
    config = config_of(method="none", stop=(stop,))
    steps = list(decode_segments(engine, tiny.PROMPT, config, engine.new_state(len(tiny.PROMPT), config)))
    assert (steps[-1].finish_reason, len(tiny.emitted(steps))) == ("stop", end)


@pytest.mark.parametrize("room", [SHORT, SHORT + 5])
def test_the_context_ends_a_run_at_the_border_of_a_segment_too(engine, room, monkeypatch):
    monkeypatch.setattr(engine.target, "context", len(tiny.PROMPT) + room)
    config = config_of()
    steps = list(decode_segments(engine, tiny.PROMPT, config, engine.new_state(len(tiny.PROMPT), config)))
    assert [step.finish_reason for step in steps[-2:]] == [None, "context"]
    assert len(tiny.emitted(steps)) == room


def test_each_segment_leaves_its_speed_and_alpha(engine, tmp_path):
    config = config_of()
    finish(engine, config, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / SEGMENTS).read_text().splitlines()]
    assert [line["sums"]["tokens"] for line in lines] == [*range(SHORT, TOKENS_WANTED, SHORT), TOKENS_WANTED]
    steps = list(decode_segments(engine, tiny.PROMPT, config, engine.new_state(len(tiny.PROMPT), config)))
    kept = sum(len(step.verdict.path) - 1 for step in steps)
    depth = max(steps[0].tree.depths)
    with saved_run(engine, tiny.PROMPT, config, tmp_path) as saved:
        result = saved.result()
    assert result["alpha"] == pytest.approx(kept / (depth * len(steps)), abs=1e-4)
    assert result["steps"] == len(steps) == lines[-1]["sums"]["steps"]
    assert all(0 <= line["alpha"] <= 1 and line["step_ms"]["total"] > 0 for line in lines)
    finish(engine, config_of(method="none"), tmp_path / "plain")
    with saved_run(engine, tiny.PROMPT, config_of(method="none"), tmp_path / "plain") as saved:
        assert saved.result()["alpha"] is None


def test_the_cache_is_made_once_and_is_what_was_told(engine, tmp_path):
    config, addresses = config_of(max_new_tokens=400), set()
    new_state = type(engine).new_state
    states = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(engine), "new_state", lambda *given: states.append(new_state(*given)) or states[-1]
        )
        with saved_run(engine, tiny.PROMPT, config, tmp_path) as saved:
            for _ in saved.steps():
                addresses.add(states[0].cache.tree_layers[0].keys.data_ptr())
            assert saved.memory.cache == states[0].cache.nbytes
    assert len(addresses) == 1


def test_a_run_that_does_not_fit_is_refused_with_the_numbers(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda device: 3 * 2**20)
    with (
        pytest.raises(
            MedusaError, match=r"a cache for 4,0\d\d rows takes .* 3\.15 MB are free: there is room for"
        ),
        saved_run(engine, tiny.PROMPT, config_of(max_new_tokens=4000), tmp_path),
    ):
        pass
    assert not (tmp_path / "run.json").exists()


def far_run(extend, method, root):
    """Tokens and memory of a run beyond the trained context, for a process of its own."""
    for module in (segments, folder, run, memory):
        module.SEGMENT = 256
    load = LoadConfig(str(Path(ROOT) / "assets" / "model"), dtype="float32", device="cpu", context=9000)
    embedded = load_engine(LoadConfig(**vars(load) | {"extend": extend}))
    config = GenerationConfig(method=method, max_new_tokens=8700, ignore_eos=True)
    with saved_run(
        embedded, embedded.encode("Once upon a time"), config, root / f"{extend}-{method}"
    ) as saved:
        for _ in saved.steps():
            pass
        return list(saved.tokens), saved.result()["memory"]


@pytest.mark.slow
@pytest.mark.parametrize("extend", ["yarn", "window"])
def test_the_embedded_model_goes_on_beyond_its_context(extend, tmp_path):
    """Greedy Medusa gives plain decoding's text beyond the trained 8,192 tokens; memory is what was told."""
    # What a run leaves in a process, such as the memory of BLAS, would count as none of the next one's.
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        plain, medusa = processes.map(far_run, [extend] * 2, ["none", "medusa"], [tmp_path] * 2)
    assert plain[0] == medusa[0]
    for _, taken in (plain, medusa):
        assert 0.5 * taken["estimated"] < taken["measured"] < taken["estimated"]


def test_a_tree_that_was_chosen_stays_that_of_the_run(engine, tmp_path):
    """Step times may choose another one tomorrow."""
    first = with_heads(engine, default_tree=Topology(((0,), (0, 0))))
    later = with_heads(engine, default_tree=Topology(((0,), (1,))))
    config = config_of(tree="auto", temperature=0.9)
    whole = finish(first, config, tmp_path / "whole")
    killed(first, config, tmp_path / "killed", 45, random.Random(1))
    assert finish(later, config, tmp_path / "killed") == whole
    assert finish(later, config, tmp_path / "other") != whole


def test_a_damaged_tree_of_the_run_is_called_so():
    with pytest.raises(MedusaError, match=r"began with is damaged \(tree node 'x' .*\): choose another"):
        with_tree_of(GenerationConfig(), {"tree": ["x"]})


def test_a_run_that_began_before_there_was_a_setting_goes_on_with_its_default(engine, tmp_path):
    config = config_of(method="none", temperature=0.9, max_new_tokens=40)
    whole = finish(engine, config, tmp_path)
    about = json.loads((tmp_path / folder.RUN).read_text(encoding="utf-8"))
    assert about["settings"].pop("top_k") == 0
    (tmp_path / folder.RUN).write_text(json.dumps(about), encoding="utf-8")
    assert finish(engine, config.changed(max_new_tokens=60), tmp_path)[: len(whole)] == whole
    with pytest.raises(MedusaError, match=r"other settings \(top_k 0, now 3\)"):
        finish(engine, config.changed(top_k=3), tmp_path)
