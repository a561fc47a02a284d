"""What a step of each drafter computes and moves on a large model: counted by hand, and beside the paper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medusa_core.drafters import draft_products, drafter_names, method
from medusa_core.evaluation.computed_step import computed_step, embedded_options
from medusa_core.hardware.devices import find_device
from medusa_core.hardware.operators import Work, step_seconds
from medusa_core.hardware.shapes import ModelShape, known_shapes
from medusa_core.trees.tree import load_tree

A100, LLAMA = find_device("a100"), known_shapes()["llama-7b"]
CONTEXT = 1024
# Width 8, MLP 16, two query heads of size 4 with one key-value head, 3 layers, 100 tokens.
SMALL = ModelShape("small", 8, 16, 2, 1, 4, 3, 100)
TREE = load_tree("cartesian-2x2x1")  # 2, 4 and 4 nodes; 1, 2 and 4 of the levels above them go on


def counted(
    name: str, shape: ModelShape = SMALL, context: int = 50, **options: object
) -> tuple[float, float]:
    """FLOP and bytes of a draft."""
    products = draft_products(name, options, shape, Work(1, 1, context))
    return sum(one.calls * one.flops for one in products), sum(one.calls * one.moved for one in products)


def product(rows: int, width: int, out: int) -> tuple[int, int]:
    """The plain count of one product at two bytes a number."""
    return 2 * rows * width * out, 2 * (rows * width + rows * out + width * out)


def total(*parts: tuple[int, int]) -> tuple[int, int]:
    return sum(flops for flops, _ in parts), sum(moved for _, moved in parts)


def attended(rows: int, context: int, heads: int, kv_heads: int, size: int) -> tuple[int, int]:
    """QKᵀ and PV of one layer."""
    numbers = heads * (rows * context + rows * size) + kv_heads * context * size
    return 2 * 2 * heads * rows * context * size, 2 * 2 * numbers


def test_medusa_runs_a_block_and_an_lm_head_for_each_level_on_one_row():
    assert counted("medusa", tree=TREE) == total(*[product(1, 8, 8), product(1, 8, 100)] * 3)


def test_hydra_runs_each_head_on_the_nodes_that_go_on_with_their_paths():
    levels = [(rows, (level + 2) * 8) for level, rows in enumerate((1, 2, 4))]
    assert counted("hydra", tree=TREE) == total(
        *(each for rows, wide in levels for each in (*[product(rows, wide, 8)] * 2, product(rows, 8, 100)))
    )


def test_eagle_runs_its_layer_on_the_root_and_then_on_k_nodes_a_level():
    def level(rows):
        wide = [product(rows, 16, 8), product(rows, 16, 4), product(rows, 16, 4)]  # q, k, v
        mlp = [product(rows, 8, 16), product(rows, 8, 16), product(rows, 16, 8)]
        return [*wide, attended(rows, 50, 2, 1, 4), product(rows, 8, 8), *mlp, product(rows, 8, 100)]

    settings = {"draft_depth": 3, "draft_top_k": 5, "draft_nodes": 9}
    assert counted("eagle3", **settings) == total(product(1, 24, 8), *level(1), *level(5), *level(5))
    # Its vocabulary ends where the published one does.
    large = replace(SMALL, vocabulary=128_000)
    assert counted("eagle3", large, **settings) == counted(
        "eagle3", replace(SMALL, vocabulary=32_000), **settings
    )


def test_a_draft_model_is_read_once_a_level():
    def forward(rows):
        layer = [
            *[product(rows, 768, 768)] * 4, attended(rows, 50, 12, 12, 64),
            *[product(rows, 768, 3072)] * 2, product(rows, 3072, 768),
        ]  # fmt: skip
        return [*layer * 12, product(rows, 768, 100)]

    settings = {"draft_depth": 3, "draft_top_k": 2, "draft_nodes": 9}
    assert counted("draft_model", **settings) == total(*forward(1), *forward(2), *forward(2))


@pytest.mark.parametrize(("budget", "seen"), [(32, 32), (512, 50)])
def test_tokenswift_reads_the_model_again_over_a_part_of_the_cache(budget, seen):
    layer = [
        *[product(1, 8, 8), product(1, 8, 4), product(1, 8, 4)], attended(1, seen, 2, 1, 4), product(1, 8, 8),
        *[product(1, 8, 16)] * 2, product(1, 16, 8),
    ]  # fmt: skip
    heads = [product(1, 8, 8), product(1, 8, 100)] * 2  # the first level is the model's own
    assert counted("tokenswift", tree=TREE, draft_budget=budget) == total(
        *layer * 3, product(1, 8, 100), *heads
    )


@pytest.mark.parametrize("name", [name for name in drafter_names() if not method(name).has_weights])
def test_without_weights_a_draft_is_free(name):
    assert counted(name) == (0, 0)
    step = computed_step(name, {}, 11, LLAMA, A100, CONTEXT)
    assert step.draft == 0
    assert step.verify == step_seconds(LLAMA, Work(1, 11, CONTEXT), A100)


def test_two_drafters_cost_the_sum():
    both = counted("medusa+lookup", tree=TREE, lookup_tokens=4)
    assert both == total(counted("medusa", tree=TREE), counted("lookup"))


def test_a_drafter_with_weights_says_what_it_costs_and_each_says_by_which_design():
    assert [name for name in drafter_names() if method(name).has_weights != bool(method(name).cost)] == []
    assert [name for name in drafter_names() if not method(name).design] == []


def test_medusa_s_overhead_is_the_paper_s():
    """Table 1 has 1.22 for Vicuna-7B with 64 nodes."""
    plain = computed_step("none", {}, 1, LLAMA, A100, CONTEXT)
    step = computed_step("medusa", {"tree": load_tree("vicuna_7b_stage2")}, 64, LLAMA, A100, CONTEXT)
    assert 1.1 < step.seconds / plain.seconds < 1.3


def test_the_embedded_drafters_settings_are_read_without_loading_them():
    found = embedded_options()
    assert found.keys() == {name for name in drafter_names() if method(name).has_weights}
    with_trees = [name for name in found if "tree" in found[name]]
    assert {"medusa", "hydra", "tokenswift"} == set(with_trees)
    assert all(found[name]["tree"].size > 1 for name in with_trees)
    for name, options in found.items():
        assert computed_step(name, options, 16, LLAMA, A100, CONTEXT).draft > 0


@pytest.mark.parametrize("name", ["mtp", "block"])
def test_a_draft_layer_costs_less_than_the_model(name):
    step = computed_step(name, {}, 16, LLAMA, A100, CONTEXT)
    plain = computed_step("none", {}, 1, LLAMA, A100, CONTEXT)
    assert 0 < step.draft < plain.seconds / 2
