"""Models beside the app's own: loaded in a thread that can be given up, shared, and put away for room."""

from __future__ import annotations

import gc
import shutil
import threading
from dataclasses import replace

import pytest
import tiny
from slow_loading import PATIENCE, close_gate

from medusa_core.config import LoadConfig
from medusa_core.drafters.medusa import medusa_draft
from medusa_core.errors import MedusaError
from medusa_core.loading import devices, memory
from medusa_core.loading.load import load_engine
from medusa_core.loading.memory import estimate_memory
from ui.records.updates import StopFlag
from ui.serving.model_loader import WAITING, Loading, ModelCache, ModelLoader


@pytest.fixture(scope="module")
def sources(engine_folder, tmp_path_factory):
    """Four models of one size, at four places."""
    folders = [tmp_path_factory.mktemp("models") / f"model{number}" for number in range(4)]
    for folder in folders:
        shutil.copytree(engine_folder, folder)
    return [LoadConfig(str(folder), dtype="float32", device="cpu") for folder in folders]


@pytest.fixture
def shelf():
    return ModelCache()


@pytest.fixture
def loader(shelf):
    return ModelLoader(shelf)


def finished(updates):
    """The words of a load and what it returns."""
    words = []
    while True:
        try:
            update = next(updates)
        except StopIteration as end:
            return words, end.value
        assert isinstance(update, Loading)
        words.append(update.status)


def load(loader, source):
    return finished(loader.load(source, StopFlag()))[1]


def is_quiet(loader) -> bool:
    """Waits for the thread of the last load to end."""
    loader._current.join(PATIENCE)
    return not loader._current.is_alive()


def models_alive() -> int:
    gc.collect()
    return sum(type(thing).__name__ in ("BareLlama", "LlamaForCausalLM") for thing in gc.get_objects())


def test_a_model_is_loaded_once_and_shared(loader, shelf, sources):
    engine = load(loader, sources[0])
    assert medusa_draft(engine).heads.count == tiny.HEADS
    words, again = finished(loader.load(replace(sources[0]), StopFlag()))
    assert (words, again) == ([], engine)
    assert shelf.get(sources[1]) is None


def test_loading_says_its_stage_its_progress_and_the_memory(loader, sources, monkeypatch):
    gate = close_gate(monkeypatch, "weights")
    updates = loader.load(sources[0], StopFlag())
    while "Reading" not in (words := next(updates).status):
        pass
    gate.opened.set()
    assert words.startswith("Reading the weights: 0% · needs about ")
    assert "are free" in words
    assert finished(updates)[1] is not None


@pytest.mark.parametrize("leaves", ["flag", pytest.param("close", marks=pytest.mark.slow)])
def test_a_load_that_is_given_up_returns_at_once_and_leaves_nothing(
    loader, shelf, sources, monkeypatch, leaves
):
    before = models_alive()
    gate = close_gate(monkeypatch, "heads")  # the base is in memory by then
    flag = StopFlag()
    updates = loader.load(sources[0], flag)
    while not gate.reached.is_set():
        next(updates)
    assert models_alive() > before
    if leaves == "flag":
        flag.stopped = True
        assert finished(updates)[1] is None
    else:
        updates.close()
    gate.opened.set()
    assert is_quiet(loader)
    assert shelf.get(sources[0]) is None
    del updates
    assert models_alive() == before


def test_loads_take_turns_and_one_that_waited_finds_what_the_other_brought(loader, sources, monkeypatch):
    gate = close_gate(monkeypatch, "weights")
    first, second, third = (loader.load(source, StopFlag()) for source in (*sources[:2], sources[0]))
    while not gate.reached.is_set():
        next(first)
    assert [next(second).status, next(third).status] == [WAITING, WAITING]
    gate.opened.set()
    engines = [finished(updates)[1] for updates in (first, second, third)]
    assert engines[0] is engines[2]
    assert engines[0] is not engines[1]


def test_one_that_waits_can_leave(loader, sources, monkeypatch):
    gate = close_gate(monkeypatch, "weights")
    first, flag = loader.load(sources[0], StopFlag()), StopFlag()
    second = loader.load(sources[1], flag)
    while not gate.reached.is_set():
        next(first)
    next(second)
    flag.stopped = True
    assert finished(second)[1] is None
    gate.opened.set()
    assert finished(first)[1] is not None


def test_an_error_comes_out_and_the_next_load_goes_well(loader, sources, tmp_path):
    with pytest.raises(MedusaError, match="has no config"):
        load(loader, replace(sources[0], model=str(tmp_path)))
    assert load(loader, sources[0]) is not None


def test_a_given_up_load_keeps_no_later_one_out_after_a_fork(loader, sources, monkeypatch):
    """After a fork the thread that was loading is dead; nothing it held may be waited for."""
    gate = close_gate(monkeypatch, "weights")
    first = loader.load(sources[0], StopFlag())
    while not gate.reached.is_set():
        next(first)
    first.close()
    busy = loader._current
    loader._current = threading.Thread()  # as the forked process sees it: not alive
    gate.opened.set()
    assert load(loader, sources[1]) is not None
    busy.join(PATIENCE)


def test_the_estimate_is_that_of_the_command_line(loader, sources):
    _, found = finished(loader.estimate(sources[0], StopFlag()))
    assert found.total == estimate_memory(sources[0]).total


# ---- room ------------------------------------------------------------------------------------------------


def test_the_shelf_drops_what_was_not_used_for_longest_but_nothing_in_use():
    shelf, (a, b, c, d) = ModelCache(most=2), [LoadConfig(name) for name in "abcd"]
    engines = {source: object() for source in (a, b, c, d)}
    for source in (a, b):
        shelf.add(source, engines[source])
    shelf.get(a)
    shelf.add(c, engines[c])
    assert [shelf.get(source) for source in (a, b, c)] == [engines[a], None, engines[c]]
    with shelf.in_use(a):
        shelf.add(d, engines[d])
        assert [shelf.get(source) is None for source in (a, c, d)] == [False, True, False]
        assert shelf.drop_oldest()
        assert not shelf.drop_oldest()
        assert shelf.get(a) is engines[a]
    assert shelf.drop_oldest()
    assert not shelf.drop_oldest()


@pytest.fixture
def capacity(shelf, sources, monkeypatch):
    """Sets how many models of this size the machine has room for; those on the shelf take theirs."""
    total, weights = estimate_memory(sources[0]).total, weights_of(load_engine(sources[0]))

    def of(count):
        def free(device):
            return round(total + (count - 1 - len(on_shelf(shelf, sources))) * weights)

        for module in (devices, memory):
            monkeypatch.setattr(module, "free_memory", free)

    return of


def weights_of(engine):
    heads = sum(parameter.nbytes for parameter in medusa_draft(engine).heads.parameters())
    return engine.target.weight_bytes + heads


def on_shelf(shelf, sources):
    return [number for number, source in enumerate(sources) if shelf._models.get(source)]


def test_models_are_put_away_where_memory_is_short(loader, shelf, sources, capacity):
    capacity(2)
    for number in (0, 1):
        assert load(loader, sources[number]) is not None
    shelf.get(sources[0])
    assert load(loader, sources[2]) is not None
    assert on_shelf(shelf, sources) == [0, 2]


def test_a_model_in_use_is_not_put_away(loader, shelf, sources, capacity):
    capacity(1)
    load(loader, sources[0])
    with shelf.in_use(sources[0]), pytest.raises(MedusaError, match=r"needs about .* are free"):
        load(loader, sources[1])
    assert on_shelf(shelf, sources) == [0]
    assert load(loader, sources[1]) is not None
    assert on_shelf(shelf, sources) == [1]


def test_nothing_is_put_away_for_a_model_that_never_fits(loader, shelf, sources, capacity):
    capacity(1)
    load(loader, sources[0])
    capacity(0.9)
    with pytest.raises(MedusaError, match="needs about"):
        load(loader, sources[1])
    assert on_shelf(shelf, sources) == [0]


def test_the_bytes_of_a_model_are_those_of_its_weights(model):
    engine = tiny.build_engine(model, tiny.random_heads(model))
    shelf = ModelCache()
    shelf.add(LoadConfig("a"), engine)
    assert shelf.droppable_bytes() == weights_of(engine)
    with shelf.in_use(LoadConfig("a")):
        assert shelf.droppable_bytes() == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_load_that_ends_by_no_exception_is_told(loader, sources, monkeypatch):
    class Panic(BaseException):
        """As pyo3 raises for a panic in Rust."""

    def panic(*_):
        raise Panic

    monkeypatch.setattr("medusa_core.loading.load.load_engine", panic)
    with pytest.raises(RuntimeError, match="without a result"):
        load(loader, sources[0])
    assert is_quiet(loader)
