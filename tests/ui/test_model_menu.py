"""The menu of models: what it offers to whom, and what comes back from a browser that may send anything."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from medusa_core.config import LoadConfig
from medusa_core.errors import MedusaError
from ui.runs.session import Session
from ui.serving.models import in_page
from ui.serving.policy import AllowedModel, Policy
from ui.tabs.model_bar.menu import (
    LONGEST_NAME,
    MOST_RECENT,
    OTHER,
    OWN,
    entries,
    remember,
    remembered,
    value_of,
    wish_of,
)

OFFERS = (AllowedModel("owner/model", "owner/heads"), AllowedModel("/srv/secret place/model", "none"))
USED = LoadConfig("a/b", dtype="float16", quantize="4bit", capture=False)


@pytest.fixture(scope="module")
def private():
    return Session(LoadConfig("/home/me/mine", dtype="float32"))


@pytest.fixture(scope="module")
def public():
    return Session(LoadConfig("/home/me/mine"), policy=Policy(public=True, offers=OFFERS))


def labels(session, recent=()):
    return [label for label, _ in entries(session, recent)]


def test_on_ones_own_machine_any_model_can_be_named(private):
    recent = [USED, LoadConfig("/home/me/mine", dtype="float32"), LoadConfig("c", "none")]
    assert labels(private, recent) == [
        "mine", "embedded model", "embedded model · bfloat16", "a/b · float16 · 4bit · not captured",
        "c + no heads · auto", "another one…",
    ]  # fmt: skip


def test_the_embedded_model_is_offered_in_two_dtypes_to_be_compared():
    session = Session(LoadConfig())
    found = dict(entries(session, []))
    assert list(found) == [
        "embedded model", "embedded model · float32", "embedded model · bfloat16", "another one…",
    ]  # fmt: skip
    assert wish_of(session, found["embedded model · float32"]) == LoadConfig(dtype="float32")


def test_a_public_page_shows_the_owners_list_alone_and_no_path(public):
    found = entries(public, [USED])
    assert [label for label, _ in found] == ["mine", "owner/model + owner/heads", "model + no heads"]
    assert "secret place" not in str(found)
    assert "/home" not in str(found)


def test_each_entry_means_its_model(private, public):
    for label, value in entries(public, [])[1:]:
        assert AllowedModel(wish_of(public, value).model, wish_of(public, value).heads) in OFFERS, label
    assert wish_of(private, OWN) == private.models.own_config
    assert wish_of(private, value_of(USED), "", "", "auto", "none", False) == USED
    assert wish_of(private, OTHER, "x", "none", "auto", "8bit", True) == LoadConfig(
        "x", "none", quantize="8bit"
    )
    assert wish_of(private, OTHER, "", "heads", "auto", "none", False) == LoadConfig(
        "", "heads", capture=False
    )


@pytest.mark.parametrize(
    "value", ["", "offer 9", "offer -1", "{}", "[]", "nonsense", '{"model": "x"}', "[" * 100_000, "NaN",
              json.dumps({"model": 1, "heads": "", "dtype": "auto", "quantize": "none"}),
              json.dumps({"model": "x", "heads": "", "dtype": "int3", "quantize": "none"}),
              value_of(USED).replace("false", '"yes"')],
)  # fmt: skip
def test_a_value_that_was_never_offered_is_refused(private, public, value):
    for session in (private, public):
        with pytest.raises(MedusaError):
            wish_of(session, value, "", "", "auto", "none", False)


@pytest.mark.parametrize(
    "texts", [("", "", "auto", "none"), (" ", "none", "auto", "none"), ("x", "", "auto", "2bit"),
              ("x" * (LONGEST_NAME + 1), "", "auto", "none"), (None, "", "auto", "none")],
)  # fmt: skip
def test_fields_that_name_no_model_are_refused(private, texts):
    with pytest.raises(MedusaError):
        wish_of(private, OTHER, *texts, False)


def test_what_a_browser_kept_is_read_as_far_as_it_makes_sense():
    good = {"model": "a/b", "heads": "", "dtype": "float16", "quantize": "4bit", "capture": False}
    stored = [
        good | {"device": "cuda", "trust_remote_code": True},
        3,
        {"model": "x"},
        good | {"dtype": "int3"},
    ]
    assert remembered(stored) == [USED]
    del good["capture"]  # as it was kept before there was the switch
    assert remembered([good]) == [replace(USED, capture=True)]
    assert [remembered(other) for other in (None, "x", 3, {"a": 1}, [[]])] == [[]] * 5
    assert len(remembered([good] * 100)) == MOST_RECENT


def test_the_newest_comes_first_and_once():
    kept = []
    for name in [*"abcdefgh", "f"]:
        kept = remember(remembered(kept), LoadConfig(name))
    assert [record["model"] for record in kept] == list("fhgedc")
    assert json.loads(json.dumps(kept)) == kept


def test_flags_are_called_as_the_page_calls_them():
    assert in_page("use --quantize 4bit or --device cpu") == "use “quantize” 4bit or --device cpu"
