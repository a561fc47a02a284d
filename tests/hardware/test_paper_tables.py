"""The formulas give the figures that the paper prints in its Appendix G, to the printed digit."""

from __future__ import annotations

import pytest
from paper_tables import ATTENTION, LINEAR

from medusa_core.hardware.devices import known_devices
from medusa_core.hardware.operators import (
    ADDED,
    OVERLAPPED,
    Product,
    Work,
    kv_bytes_per_token,
    kv_cache_bytes,
    operators,
    paper_speeds,
    seconds_of,
)
from medusa_core.hardware.shapes import known_shapes

CANDIDATES = (1, 16, 32, 48, 64, 80, 96, 112)


def product(name: str, batch: int, tokens: int, model: str = "llama-33b", context: int = 1024) -> Product:
    return {each.name: each for each in operators(known_shapes()[model], Work(batch, tokens, context))}[name]


@pytest.mark.parametrize("name", ["up", "gate", "down"])
def test_intensities_of_linear_layers(name):
    assert tuple(f"{product(name, 1, tokens).intensity:.2f}" for tokens in CANDIDATES) == LINEAR
    assert f"{product(name, 64, 112).intensity:.2f}" == "2893.91"


@pytest.mark.parametrize("name", ["qk", "pv"])
def test_intensities_of_attention_do_not_hang_on_the_batch(name):
    for batch in (1, 16, 64):
        assert tuple(f"{product(name, batch, tokens).intensity:.2f}" for tokens in CANDIDATES) == ATTENTION
    # "41 times the operational intensity" of decoding, with 64 candidates.
    assert round(product(name, 16, 64).intensity / product(name, 16, 1).intensity) == 41


def test_the_speeds_that_the_paper_measured_are_one_share_of_added_times():
    device = known_devices()["a100"]
    shares = {
        cost: [
            each.speed * seconds_of(each.product, device, cost) / each.product.flops
            for each in paper_speeds()
        ]
        for cost in (OVERLAPPED, ADDED)
    }
    assert all(0.855 < share < 0.875 for share in shares[ADDED])
    assert all(0.62 < share < 0.73 for share in shares[OVERLAPPED])


def test_rooflines_meet_where_the_paper_draws_it():
    device = known_devices()["a100"]
    assert device.attainable(1.0) == 1935e9
    assert device.attainable(1000.0) == 312e12
    assert round(device.ridge) == 161


def test_a_seven_billion_cache_takes_what_the_sources_say():
    llama = known_shapes()["llama-7b"]
    assert kv_bytes_per_token(llama.layers, llama.kv_heads, llama.head_size) == 512 * 1024
    assert kv_cache_bytes(llama, batch=1, length=1024) == 512 * 1024**2


def test_counts_of_a_block_by_hand():
    """Llama-7B, two sequences, three tokens each, eight positions."""
    found = {each.name: each for each in operators(known_shapes()["llama-7b"], Work(2, 3, 8))}
    assert found["q"].flops == 2 * 6 * 4096 * 4096
    assert found["q"].moved == 2 * (6 * 4096 + 4096 * 4096 + 6 * 4096)
    assert found["qk"].flops == 2 * 2 * 32 * 3 * 8 * 128
    assert found["qk"].moved == 2 * 2 * 32 * (3 * 8 + (3 + 8) * 128)
    assert (found["lm_head"].calls, found["up"].calls) == (1, 32)
    assert found["lm_head"].flops == 2 * 6 * 4096 * 32_000
    prefill = {each.name: each for each in operators(known_shapes()["llama-7b"], Work(2, 8, 8))}
    assert prefill["lm_head"].flops == 2 * 2 * 4096 * 32_000  # one row of each text
