"""A block drafter: its files, its guesses against one pass over the whole text, exactness, its refusals."""

from __future__ import annotations

import block_files
import pytest
import tiny
import torch
from bad_input import CONFIG, WEIGHTS, change_json, change_tensors

from medusa_core.config import GenerationConfig
from medusa_core.drafters import draft_size, load_draft, make_drafter, owner_of
from medusa_core.drafters.block.drafter import BlockDrafter
from medusa_core.drafters.block.model import block_outputs
from medusa_core.errors import MedusaError

SETTINGS = {"method": "block", "draft_top_k": 3, "draft_depth": 4, "draft_nodes": 10}


@pytest.fixture(scope="module")
def with_drafter(engine, tmp_path_factory):
    return block_files.with_block(engine, tmp_path_factory.mktemp("block"))


@torch.no_grad()
def test_a_step_guesses_what_one_pass_over_all_blocks_of_the_text_does(with_drafter):
    """Training's pass over a window, and drafting with a cache, are two ways to the same probabilities."""
    draft, target = with_drafter.drafts["block"], with_drafter.target
    config = GenerationConfig.of(max_new_tokens=12, **SETTINGS)
    text, seen = list(tiny.PROMPT), 0
    for step in with_drafter.stream(tiny.PROMPT, config):
        root, *_ = step.tree.tokens.tolist()
        tokens = torch.tensor([[*text, root, 0]])
        states = target.model(tokens, output_hidden_states=True).hidden_states
        features = torch.cat([states[layer] for layer in draft.model.shape.layers], dim=-1)
        window = block_outputs(draft.model, draft.rotary, draft.embedding[tokens], features, 1)
        first = draft.model.logits(next(window)[0, -1]).log_softmax(-1)
        drafted = [node for node in range(1, step.tree.size) if step.tree.depths[node] == 1]
        assert step.tree.tokens[drafted].tolist() == first.topk(len(drafted)).indices.tolist()
        assert step.tree.draft_logp[drafted].tolist() == pytest.approx(
            first.topk(len(drafted)).values.tolist(), abs=1e-4
        )
        text, seen = text + list(step.emitted), seen + 1
    assert seen > 3


@torch.no_grad()
def test_every_place_of_a_block_is_what_drafting_behind_that_token_guesses(with_drafter):
    draft, target = with_drafter.drafts["block"], with_drafter.target
    tokens = tiny.random_tokens(9, 1)
    features = torch.randn(9, 3 * draft.model.shape.hidden, generator=torch.Generator().manual_seed(2))
    embedded = draft.embedding[torch.tensor([tokens])]
    outputs = block_outputs(draft.model, draft.rotary, embedded, features[None], 4)
    found = [draft.model.logits(output) for output in outputs]
    assert [logits.shape[1] for logits in found] == [7, 6, 5, 4]
    config = GenerationConfig.of(**{**SETTINGS, "draft_top_k": 1})
    for row in range(4):
        drafter = make_drafter(target, {"block": draft}, config)
        assert isinstance(drafter, BlockDrafter)
        drafter.reserve(row + 1)
        drafter.begin(tokens[: row + 1], features[: row + 1])
        tree = drafter.propose(tokens[row + 1], 4)
        logps = [logits[0, row].log_softmax(-1) for logits in found]
        assert tree.tokens.tolist()[1:] == [int(logp.argmax()) for logp in logps]
        assert tree.draft_logp.tolist()[1:] == pytest.approx([float(logp.max()) for logp in logps], abs=1e-4)


def test_the_tree_holds_the_likeliest_combinations(with_drafter):
    config = GenerationConfig.of(max_new_tokens=20, **SETTINGS)
    for step in with_drafter.stream(tiny.PROMPT, config):
        tree, logp = step.tree, {}
        for node in range(1, tree.size):
            # A place has the same guesses with the same probabilities below every node.
            key = (tree.depths[node], int(tree.tokens[node]))
            assert logp.setdefault(key, float(tree.draft_logp[node])) == float(tree.draft_logp[node])
        assert tree.size <= 11
        assert tree.origins[1].label == "P1 #1"


def test_its_folder_is_recognised_and_counted(engine, tmp_path):
    folder = block_files.write(tmp_path / "drafter", engine.target.model)
    assert owner_of(folder) == "block"
    draft = load_draft("block", folder, engine.target)
    assert draft.label == "Block drafter of 4 tokens"
    size = draft_size(folder, None)
    assert size.weights == sum(one.numel() for one in draft.tensors())
    drafter = make_drafter(engine.target, {"block": draft}, GenerationConfig.of(**SETTINGS))
    assert size.cache_per_row == pytest.approx(drafter.cache_bytes_for(1000) / 1004 / 4)


def in_weights(change):
    return lambda folder: change_tensors(folder / WEIGHTS, change)


def in_config(**changes):
    return lambda folder: change_json(folder / CONFIG, **changes)


DAMAGE = {
    "a part is missing": (
        in_weights(lambda state: state.pop("fc.weight")),
        "lacks .*: its config.json says otherwise",
    ),
    "not a number": (
        in_weights(lambda state: state["masks"][0, 0].fill_(torch.nan)),
        "masks of the block drafter in .* holds NaN or infinity",
    ),
    "no such block": (in_config(block_size=0), "block_size is 0: it must be a whole number from 1 to 16"),
    "another vocabulary": (in_config(vocab_size=99), "wide with 99 tokens"),
    "features nowhere": (in_config(eagle_aux_hidden_state_layer_ids=[0, 1, 40]), "reads hidden states"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_drafter_that_does_not_fit_is_refused_with_the_reason(engine, tmp_path, name):
    damage, words = DAMAGE[name]
    folder = block_files.write(tmp_path, engine.target.model)
    damage(folder)
    with pytest.raises(MedusaError, match=words):
        load_draft("block", folder, engine.target)
