"""Trace files of older and newer versions: who proposed a node, what version 1 lacks, what is not known."""

from __future__ import annotations

import copy
import json

import pytest
from trace_version1 import SHIPPED, recording_of_version1

from medusa_core.errors import MedusaError
from medusa_core.trace.format import parse_trace, read_trace


@pytest.fixture(scope="module")
def first():
    return recording_of_version1()


@pytest.fixture(scope="module")
def second():
    return read_trace(SHIPPED).model_dump(mode="json")


@pytest.fixture
def reads(tmp_path):
    """The sentence about a trace that was changed, empty for one that is read."""

    def read(trace, change):
        trace = copy.deepcopy(trace)
        change(trace)
        file = tmp_path / "trace.json"
        file.write_text(json.dumps(trace), "utf-8")
        try:
            read_trace(file)
        except MedusaError as error:
            return str(error)
        return ""

    return read


def node(trace, number):
    return trace["steps"][0]["nodes"][number]


def test_only_the_root_was_proposed_by_nobody(reads, second):
    assert "node 1 of step 0 has origin ''" in reads(second, lambda t: node(t, 1)["origin"].update(by=""))
    assert "node 0 of step 0 has origin 'x'" in reads(second, lambda t: node(t, 0)["origin"].update(by="x"))
    assert reads(second, lambda t: node(t, 1)["origin"].update(by="oracle", head=None, rank=None)) == ""


@pytest.mark.parametrize("head", [0, None, False, [], "", "1", 1.0, -1, {}], ids=repr)
def test_a_draft_of_version_1_has_the_number_of_its_head(reads, first, head):
    assert "is not a trace" in reads(first, lambda t: node(t, 1).update(head=head))


def test_the_root_of_version_1_is_of_head_0(reads, first):
    assert "node 0 of step 0 has origin 'medusa'" in reads(first, lambda t: node(t, 0).update(head=2))


@pytest.mark.parametrize("name", ["head", "rank", "method", "acceptance", "epsilon", "delta"])
def test_what_is_missing_in_version_1_is_named(reads, first, name):
    sentence = reads(first, lambda t: (node(t, 1) if name in node(t, 1) else t["config"]).pop(name))
    assert sentence.endswith(f"is not a trace of version 1: {name} is missing; record the run again")


@pytest.mark.sample
@pytest.mark.parametrize("part", ["config", "steps"])
@pytest.mark.parametrize("value", [7, "abc", None, [1], [["a", 1]], [{"nodes": [3]}]], ids=repr)
def test_a_version_1_made_of_other_things(reads, first, part, value):
    assert "is not a trace of version" in reads(first, lambda t: t.update({part: value}))


@pytest.mark.parametrize("version", [True, 1.0, "1", None, [1], 0, -1, "4", 4.0], ids=repr)
def test_a_version_is_a_whole_number(reads, first, version):
    assert "schema_version" in reads(first, lambda t: t.update(schema_version=version))


# --- A trace of a version that does not exist yet is said to be one, not a damaged file.


@pytest.mark.parametrize("version", [4, 99])
def test_a_newer_version_is_named_with_those_that_are_read(version):
    data = json.dumps({"schema_version": version, "steps": []}).encode()
    with pytest.raises(
        MedusaError, match=f"a trace of version {version}, versions 1 to 3 are read here: update"
    ):
        parse_trace(data, "the file")
