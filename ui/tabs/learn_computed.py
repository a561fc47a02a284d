"""The numbers of Learn's cards on memory and on the reader's own model, by the formulas of Hardware.

Only the tokens per step are measured: they are those of the record that all tabs show. The cards say so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from medusa_core.drafters import PLUS, draft_products, method
from medusa_core.drafters.medusa import NAME as HEADS
from medusa_core.errors import MedusaError
from medusa_core.evaluation.computed_step import computed_step
from medusa_core.experiments.record import paper_facts
from medusa_core.experiments.spec_bench import of_all_kinds
from medusa_core.hardware.devices import Device, find_device, known_devices
from medusa_core.hardware.operators import (
    ATTENTION,
    Work,
    kv_cache_bytes,
    operators,
    score_bytes,
    step_seconds,
)
from medusa_core.hardware.shapes import ModelShape, find_shape, known_shapes
from medusa_core.trees.tree import load_tree
from medusa_core.words import bytes_words, count_words, flops_words, rate_words, seconds_words
from ui.figures.method_speeds import PLAIN, MethodSpeed
from ui.records.figures import Figures, PageFigures
from ui.records.words import Words, as_data, sentences
from ui.tabs.hardware.choice import CONTEXT, NUMBER_BYTES
from ui.tabs.methods_computed import BITS, compute, words_after, words_before

MODEL, DEVICE = "llama-7b", "a100"  # the paper's
TREE, PAPER_TREE = 64, "vicuna_7b_stage2"  # nodes, as in the paper, and its tree of that size
LONG = 8192  # tokens of the text whose attention scores are counted
PAGE = 16  # tokens, the usual size of a page (Kwon et al., 2023)
WEIGHTS = (16, 8, 4)  # bits that the card's form offers
TEXTS = (1500, 300, 700)  # tokens that three texts have so far
RESERVED = 2048  # tokens that each may grow to


def card_facts() -> dict[str, Any]:
    """What the cards on memory name, in words with units, and the data of their pictures."""
    shape, device = find_shape(MODEL), find_device(DEVICE)
    return {
        "hw_model": shape.name,
        "hw_device": device.title,
        "hw_context": f"{CONTEXT:,}",
        "hw_rate": rate_words(device.bandwidth),
        "hw_peak": f"{flops_words(device.peak)}/s",
        **_step_facts(shape, device),
        **_attention_facts(shape),
        **_page_facts(shape),
        "roofline": {
            "bandwidth": device.bandwidth,
            "peak": device.peak,
            "ridge": device.ridge,
            "points": [_point(shape, device, tokens) for tokens in (1, TREE, CONTEXT)],
        },
        "weights": WEIGHTS,
        "models": list(known_shapes()),
        "devices": [[name, one.title] for name, one in known_devices().items()],
    }


def _step_facts(shape: ModelShape, device: Device) -> dict[str, Any]:
    """A plain step, one without a cache, which reads the whole text again, and one over a tree."""
    plain, again, tree = (Work(1, tokens, CONTEXT, NUMBER_BYTES) for tokens in (1, CONTEXT, TREE))
    cached, uncached = (sum(p.calls * p.flops for p in operators(shape, work)) for work in (plain, again))
    plain_seconds, tree_seconds = (step_seconds(shape, work, device) for work in (plain, tree))
    return {
        "hw_weights": bytes_words(NUMBER_BYTES * shape.read_parameters),
        "hw_cached": flops_words(cached),
        "hw_uncached": flops_words(uncached),
        "hw_times": f"{uncached / cached:,.0f}",
        "hw_row": bytes_words(kv_cache_bytes(shape, 1, 1, NUMBER_BYTES)),
        "hw_rows": bytes_words(kv_cache_bytes(shape, 1, CONTEXT, NUMBER_BYTES)),
        "hw_step": seconds_words(plain_seconds),
        "hw_tree": TREE,
        "hw_tree_step": seconds_words(tree_seconds),
        "hw_tree_times": f"{tree_seconds / plain_seconds:.2f}",
        "hw_ridge": f"{device.ridge:.0f}",
        **_paper_facts(shape, device),
    }


def _paper_facts(shape: ModelShape, device: Device) -> dict[str, Any]:
    """Medusa's overhead by these limits with the tree of the paper's 7B, and as the paper measured it."""
    tree = load_tree(PAPER_TREE)
    heads = computed_step(HEADS, {"tree": tree}, TREE, shape, device, CONTEXT)
    plain = step_seconds(shape, Work(1, 1, CONTEXT, NUMBER_BYTES), device)
    measured = next(row for row in paper_facts("figure3").rows if row.overhead)
    return {
        "hw_paper_heads": max(tree.depths),
        "hw_paper_computed": f"{heads.seconds / plain:.2f}",
        "hw_paper_overhead": f"{measured.overhead:.2f}",
        "hw_paper_tokens": f"{measured.tokens_per_step:.2f}",
        "hw_paper_speedup": f"{measured.speedup:.2f}",
    }


def _point(shape: ModelShape, device: Device, tokens: int) -> dict[str, float]:
    """A step as a whole under the roof: FLOP a byte, and FLOP a second by the computed time."""
    work = Work(1, tokens, CONTEXT, NUMBER_BYTES)
    products = operators(shape, work)
    flops = sum(p.calls * p.flops for p in products)
    moved = sum(p.calls * p.moved for p in products)
    return {"tokens": tokens, "intensity": flops / moved, "speed": flops / step_seconds(shape, work, device)}


def _attention_facts(shape: ModelShape) -> dict[str, Any]:
    """Attention over a long prompt with its scores written to memory and read again, and without."""
    work = Work(1, LONG, LONG, NUMBER_BYTES)
    scores = 2 * shape.layers * score_bytes(shape, work)  # written by one product, read by the other
    moved = sum(p.calls * p.moved for p in operators(shape, work) if p.kind == ATTENTION)
    return {
        "hw_long": f"{LONG:,}",
        "hw_scores": count_words(LONG * LONG),
        "hw_written": bytes_words(moved),
        "hw_tiled": bytes_words(moved - scores),
        "hw_tiled_times": f"{moved / (moved - scores):.0f}",
    }


def _page_facts(shape: ModelShape) -> dict[str, Any]:
    """Three texts in a cache that reserves the longest for each, and in one that gives out pages."""

    def held(tokens: int) -> float:
        return kv_cache_bytes(shape, 1, tokens, NUMBER_BYTES)

    pages = [-(-length // PAGE) for length in TEXTS]
    return {
        "hw_page": PAGE,
        "hw_reserved": bytes_words(held(RESERVED * len(TEXTS))),
        "hw_paged": bytes_words(held(PAGE * sum(pages))),
        "hw_used": bytes_words(held(sum(TEXTS))),
        "hw_room": f"{RESERVED:,}",
        "paging": {"texts": list(TEXTS), "reserved": RESERVED, "page": PAGE},
    }


def expectation(model: str, device: str, figures: Figures | None, bits: int = BITS) -> dict[str, Any]:
    """What each method would bring with that model on that device: rows, and words around them.

    ``error`` holds the words where a name or a size cannot be used.
    """
    asked = {"model": model, "device": device, "bits": bits}
    try:
        if bits not in WEIGHTS:
            raise MedusaError(f"weights of {bits} bits are not computed: choose 16, 8 or 4")
        if figures is None:
            raise MedusaError("no speeds are known, and so no tokens per step: measure them in Compare")
        shape, on = find_shape(model), find_device(device)
        found = compute(_speeds(figures), figures, shape, on, bits)
    except MedusaError as error:
        return asked | {"error": str(error)}
    plain = next(one for one in found if one.name == PLAIN)
    rows: list[dict[str, Any]] = [
        {
            "name": one.name,
            "title": method(one.name).title,
            "design": method(one.name).design,
            "nodes": one.nodes,
            "tokens": one.tokens_per_step,
            "draft": one.draft_ms / plain.step_ms,
            "overhead": one.step_ms / plain.step_ms,
            "rate": one.tokens_per_second,
            "speedup": one.tokens_per_second / plain.tokens_per_second,
        }
        for one in found
    ]
    before, after = words_before(shape, on, bits), words_after(found, figures)
    return asked | {
        "model": shape.name,
        "device": on.title,
        "before": as_data(before),
        "after": as_data(sentences(after, _heads_words(shape, bits))),
        "rows": sorted(rows, key=lambda row: -row["rate"]),
    }


def _heads_words(shape: ModelShape, bits: int) -> Words:
    """Why a draft of Medusa's heads may cost more than others: what one head reads beside the model."""
    plain = Work(1, 1, CONTEXT, NUMBER_BYTES, bits / 8)
    head, model = draft_products(HEADS, {"tree": "cartesian-1"}, shape, plain), operators(shape, plain)
    return Words(
        "For a draft each Medusa head reads {0}, since it has its own output layer for {2} tokens; a plain "
        "step reads {1} of weights and cache. The larger the vocabulary for a model’s size, the less many "
        "heads pay.",
        *(bytes_words(sum(one.calls * one.moved for one in products)) for products in (head, model)),
        f"{shape.vocabulary:,}",
    )  # fmt: skip


def computed_records(page: PageFigures) -> dict[str, Any]:
    """What the tour's cards compute: facts of the cards, and the expectation to begin with."""
    return {"computed": card_facts(), "expected": expectation(MODEL, DEVICE, page.whole)}


def answered(asked: str, figures: Figures | None) -> str:
    """The answer to the card's form as the page sends it, ``{"model", "device", "bits"}``, both as JSON."""
    try:
        given = json.loads(asked)
        model, device, bits = str(given["model"])[:200], str(given["device"])[:200], int(given["bits"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        model, device, bits = "", "", BITS
    return json.dumps(expectation(model, device, figures, bits))


def _speeds(figures: Figures) -> Sequence[MethodSpeed]:
    """Each drafter by itself, and plain decoding."""
    rows = of_all_kinds(figures.record.rows)
    return [MethodSpeed.of(row) for row in rows if row.phase_ms and PLUS not in row.series]
