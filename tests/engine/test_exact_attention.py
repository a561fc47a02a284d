"""Exact attention: a node of a tree gets the bits of its branch alone, and near enough what float64 gives."""

from __future__ import annotations

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_core.model import exact_attention
from medusa_core.model.exact_attention import CHUNK, ONES, SUMS_BYTES, attend, chunks_of, sums_in_order
from medusa_core.model.products import Linear, Operators, invariant_rows

SHAPES = [(2, 3, 64), (4, 1, 64), (2, 4, 128), (2, 2, 96), (1, 7, 64)]
in_order = pytest.mark.skipif(
    not all(sums_in_order(*shape) for shape in SHAPES), reason="BLAS sums in another order"
)


def rows_of(groups, size, slots, seed):
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(groups, size, slots, generator=generator)
    values = torch.randn(groups, slots, size + ONES, generator=generator)
    values[..., size:] = torch.eye(ONES)[0]
    return keys, values


def tree_of(parents):
    seen = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents[1:], start=1):
        seen[node] |= seen[parent]
    return seen, seen.sum(dim=1) - 1


def finished(sums, size):
    return sums[..., :size] / sums[..., size : size + 1]


def one_after_another(weights, values, chunks):
    """The obvious sums: each chunk's product added to those before it."""
    total = torch.zeros(*weights.shape[:2], values.shape[2])
    for chunk in chunks:
        total += torch.bmm(weights[:, :, chunk.start : chunk.end], values[:, chunk.start : chunk.end])
    return total


@in_order
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("count", [1, 8, 31, 32, 33, 70])
def test_chunks_multiplied_as_a_batch_have_the_bits_of_one_after_another(groups, count):
    slots = count * CHUNK + 40
    weights = torch.rand(groups, 14, slots, generator=torch.Generator().manual_seed(count))
    _, values = rows_of(groups, 64, slots, count)
    chunks = chunks_of(count * CHUNK, torch.zeros(1, dtype=torch.long), 0)[:count]
    memory = torch.empty(SUMS_BYTES // 4)
    found = exact_attention._joint_sums(weights, values, count, memory)
    assert torch.equal(found, one_after_another(weights, values, chunks))


@in_order
@settings(max_examples=40)
@given(
    shape=st.sampled_from(SHAPES),
    parents=tiny.parent_lists(70),
    length=st.sampled_from(
        [3, 17, 64, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 60, 8 * CHUNK - 3, 34 * CHUNK]
    ),
    seed=st.integers(0, 10**6),
)
def test_a_node_gets_the_bits_of_its_branch_alone(shape, parents, length, seed):
    groups, heads, size = shape
    seen, depths = tree_of(parents)
    keys, values = rows_of(groups, size, length + len(parents), seed)
    query = torch.randn(len(parents), groups, heads, size, generator=torch.Generator().manual_seed(seed))
    mask = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf).repeat_interleave(heads, dim=0)
    grouped = query.permute(1, 0, 2, 3).reshape(groups, -1, size)
    tree = attend(grouped, keys, values, mask, chunks_of(length, depths, int(depths.max())), 0.125)
    for node in {0, len(parents) // 2, len(parents) - 1}:
        path = torch.cat([torch.arange(length), length + seen[node].nonzero()[:, 0]])
        chunks = chunks_of(len(path) - 1, torch.zeros(1, dtype=torch.long), 0)
        alone = attend(query[node], keys[..., path], values[:, path], None, chunks, 0.125)
        found = tree[:, node * heads : (node + 1) * heads]
        assert torch.equal(found, alone)
        scores = query[node].double() @ keys[..., path].double() * 0.125
        wanted = scores.softmax(dim=-1) @ values[:, path, :size].double()
        torch.testing.assert_close(finished(found, size).double(), wanted, atol=1e-5, rtol=1e-4)


@in_order
@pytest.mark.parametrize("over", [0, 1, 2, 3])
def test_rows_that_are_taken_in_blocks_keep_their_bits(over, monkeypatch):
    """The last block has as few rows as one."""
    length, count = 3 * CHUNK, 2 * 16 + over
    monkeypatch.setattr(exact_attention, "WEIGHTS_BYTES", 16 * (length + 1) * 4)
    keys, values = rows_of(1, 64, length + 1, over)
    query = torch.randn(1, count, 64, generator=torch.Generator().manual_seed(over))
    chunks = chunks_of(length, torch.zeros(1, dtype=torch.long), 0)
    found = attend(query, keys, values, None, chunks, 0.125)
    monkeypatch.undo()
    assert torch.equal(found, attend(query, keys, values, None, chunks, 0.125))
    for row in (0, count - 1):
        assert torch.equal(
            found[:, row : row + 1], attend(query[:, row : row + 1], keys, values, None, chunks, 0.125)
        )


def test_the_measurement_sees_the_last_bit(monkeypatch):
    def rounds_by_rows(query, *rest):
        sums = attend(query, *rest)
        return sums if query.shape[1] > 3 else torch.nextafter(sums, torch.tensor(torch.inf))

    monkeypatch.setattr(exact_attention, "attend", rounds_by_rows)
    assert not sums_in_order(2, 3, 64)


@pytest.mark.parametrize("length", [0, 1, CHUNK - 2, CHUNK, 3 * CHUNK - 1])
def test_chunks_count_every_key_once(length):
    """Σ over chunks of the columns that a chunk keeps is one for each key that a row may see."""
    _, depths = tree_of([-1, 0, 0, 1, 2, 4, 5])
    counted = torch.zeros(length + len(depths))
    for chunk in chunks_of(length, depths, int(depths.max())):
        weights = torch.ones(chunk.end - chunk.start)
        weights[: chunk.skip] = 0
        if chunk.keep is not None:
            weights[len(weights) - len(chunk.keep) :] *= chunk.keep
        counted[chunk.start : chunk.end] += weights
    assert torch.equal(counted, torch.ones_like(counted))


@pytest.mark.parametrize("packed", [False, True])
def test_rows_that_a_kernel_sums_otherwise_are_found(packed, monkeypatch):
    """Its sums cancel, so that one addition made elsewhere shows in every number."""
    operators = Operators.find() if packed else None
    if packed and operators is None:
        pytest.skip("this torch packs no weights")

    class Parted(Linear):
        def _multiply(self, x):
            if len(x) < 40:
                return super()._multiply(x)
            half = x.shape[1] // 2
            parts = (
                x[:, :half].float() @ self.weight[:, :half].T.float(),
                x[:, half:].float() @ self.weight[:, half:].T.float(),
            )
            return (parts[0] + parts[1]).to(x.dtype)

    rows = invariant_rows(torch.Size([96, 256]), torch.bfloat16, operators)
    if rows < 40:
        pytest.skip("the products of this machine round by few rows")
    monkeypatch.setattr("medusa_core.model.products.Linear", Parted)
    if not packed:
        assert invariant_rows(torch.Size([96, 256]), torch.bfloat16, None) == 32


def test_a_product_is_cut_into_the_rows_it_may_have():
    weight = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    x = torch.randn(70, 8, generator=torch.Generator().manual_seed(1))
    product, calls = Linear(weight, torch.ones(5), rows=32), []
    real = product._multiply
    product._multiply = lambda part: calls.append(len(part)) or real(part)
    torch.testing.assert_close(product(x), torch.nn.functional.linear(x, weight, torch.ones(5)))
    assert calls == [32, 32, 6]
    calls.clear()
    product(x.repeat(5, 1))  # a part of a prompt, of which no node is compared with a token alone
    assert calls == [350]
