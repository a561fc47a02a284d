"""The experiments measured on a real tiny engine, and what they refuse."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import eagle3_files
import pytest
import tiny
import torch
from eagle3_slow import SlowDraft
from tiny_experiments import write_draft_model, write_text

from medusa_core.drafters.medusa import medusa_draft, with_heads
from medusa_core.errors import MedusaError
from medusa_core.experiments import eagle3_training, figure3, figure4, table2, table3, variants
from medusa_core.experiments.figure5 import measurement as figure5
from medusa_core.experiments.figure7 import measurement as figure7
from medusa_core.experiments.grouped_heads import measurement as grouped_heads
from medusa_core.experiments.quality import sums_in
from medusa_core.experiments.settings import PLAIN
from medusa_core.experiments.train_variants import variant_config
from medusa_core.loading.load import load_engine
from medusa_core.training.unrolled_losses import Reading
from medusa_core.trees.search import expected_lengths
from medusa_core.trees.tree import Topology


def test_figure3_measures_every_kind_and_all(setup):
    found = figure3.measure(setup, figure3.Settings())
    ours = {row.label: row for row in found.rows if row.series == figure3.MEDUSA}
    assert list(ours) == ["Story", "Chat", figure3.ALL]
    assert [row.prompts for row in ours.values()] == [2, 1, 3]
    assert found.notes == ["3 of 3 texts are identical to plain decoding's."]
    assert ours[figure3.ALL].tokens_per_step.mean > 1.2
    for row in found.rows:
        if row.series == PLAIN:
            assert (row.tokens_per_step.mean, row.speedup.median, row.overhead) == (1, 1, 1)


def test_figure4_measures_each_tree_by_the_engine_itself(setup):
    settings = figure4.Settings(nodes="2,9", random_trees=1)
    found = figure4.measure(setup, settings)
    assert {row.series for row in found.rows} == {"plain decoding", "optimised", "cartesian", "random"}
    assert [row.x for row in found.rows if row.series == "optimised"] == [2, 9]
    candidates = figure4.candidate_trees(medusa_draft(setup.engine).accuracies, [2, 9], settings)
    for candidate in candidates:
        row = next(row for row in found.rows if row.label == candidate.label)
        engine = with_heads(setup.engine, default_tree=candidate.tree)
        steps = [step for prompt in setup.all_prompts for step in engine.stream(prompt, setup.config())]
        assert row.tokens_per_step.mean == pytest.approx(len(tiny.emitted(steps)) / len(steps), abs=1e-4)
        assert row.tree_nodes == row.x == candidate.tree.size
        expected = expected_lengths(medusa_draft(setup.engine).accuracies, candidate.tree.choices)[-1]
        assert row.expected_tokens_per_step == pytest.approx(expected, abs=1e-3)


def test_of_trees_of_one_size_the_optimised_has_the_highest_estimate(setup):
    settings = figure4.Settings(random_trees=5)
    for size in (4, 9, 30):
        candidates = figure4.candidate_trees(medusa_draft(setup.engine).accuracies, [size], settings)
        accuracies = medusa_draft(setup.engine).accuracies
        best = max(candidates, key=lambda c: expected_lengths(accuracies, c.tree.choices)[-1])
        assert best.series == figure4.OPTIMISED
        assert all(c.tree.size <= size for c in candidates)


def test_figure5_sweeps_epsilon_between_the_references(setup):
    found = figure5.measure(setup, figure5.Settings(epsilons="0.01,0.25"))
    rows = {row.label: row for row in found.rows}
    assert list(rows)[:2] == ["greedy", "random sampling"]
    assert [row.x for row in found.rows[2:]] == [0.01, 0.25, 0.01, 0.25]
    assert rows["greedy"].new_tokens == 3 * 16
    assert rows["random sampling"].new_tokens == 2 * 3 * 16  # two seeds
    assert rows["greedy"].quality.mean > rows["random sampling"].quality.mean
    loose, strict = found.rows[2:4]
    assert loose.tokens_per_step.mean >= strict.tokens_per_step.mean
    assert all(row.quality.mean < 0 and 0 < row.distinct <= 1 for row in found.rows)
    assert "itself" in found.quality


def test_sums_in_a_text_are_found_and_judged():
    text = "He has 48/2=24 clips, 3 + 4 = 8 pens and 0.5*3=1.5 cups. 2 + 3 + 4 = 9. 10-4=6.5 7/3=2.33 5/0=1"
    assert sums_in(text) == [True, False, True, False, True, False]


def test_the_threshold_delta_is_the_root_of_epsilon():
    points = figure5.sweep([0.01, 0.09], 0.7)
    assert [(p.changes["epsilon"], p.changes["delta"]) for p in points[2:4]] == [(0.01, 0.1), (0.09, 0.3)]
    assert {p.changes["temperature"] for p in points[1:]} == {0.7}


def test_figure7_sets_every_gamma_beside_the_formula(setup, engine_folder, tmp_path):
    with pytest.raises(MedusaError, match="--draft-models, as in small=FOLDER"):
        figure7.measure(setup, figure7.Settings())
    small = write_draft_model(engine_folder, tmp_path / "small")
    itself = tmp_path / "itself"
    setup.engine.target.model.save_pretrained(itself)
    setup.engine.tokenizer.save_pretrained(itself)
    names = f"itself={itself},small={small}"
    found = figure7.measure(setup, figure7.Settings(gammas="2,3", draft_models=names))
    rows = {(row.series, row.x): row for row in found.rows}
    for gamma in (1, 2, 3):
        whole, part = rows["itself", gamma], rows["small", gamma]
        # The model itself is always right, but for where a text ends.
        assert 16 / math.ceil(15 / (gamma + 1) + 1) <= whole.tokens_per_step.mean <= gamma + 1
        assert part.tokens_per_step.mean <= whole.tokens_per_step.mean
        assert whole.same_texts == part.same_texts == 3
        computed = rows[f"small{figure7.FORMULA}", gamma]
        assert computed.speedup.median == pytest.approx(
            computed.tokens_per_step.mean / computed.overhead, abs=1e-3
        )
    assert rows[f"small{figure7.FORMULA}", 1].tokens_per_step.mean == pytest.approx(
        rows["small", 1].tokens_per_step.mean, abs=1e-4
    )
    assert figure7.kept_tokens(0.5, 2) == 1.75
    assert figure7.kept_tokens(1.0, 3) == 4


def test_pooled_heads_are_the_means_of_their_groups(setup):
    model = grouped_heads.fresh_model(
        setup.engine, grouped_heads.Settings(query_heads=4, layers=1, head_size=8)
    )
    first, shared = (one.model.layers[0].self_attn for one in (model, grouped_heads.pooled(model, 2)))
    keys = first.k_proj.weight.view(4, 8, -1)
    assert torch.equal(shared.k_proj.weight.view(2, 8, -1)[1], (keys[2] + keys[3]) / 2)
    assert torch.equal(shared.q_proj.weight, first.q_proj.weight)
    for layer in (first.k_proj, first.v_proj):  # heads that are equal lose nothing by being shared
        layer.weight.data = layer.weight.data.view(4, 8, -1)[:1].expand(4, -1, -1).flatten(0, 1).clone()
    tokens = torch.tensor([[1, 5, 2, 7]])
    one = grouped_heads.pooled(model, 1).eval()
    torch.testing.assert_close(one(tokens).logits, model.eval()(tokens).logits)


@pytest.mark.parametrize("steps", [0, 1, 9, 10])
def test_a_training_of_any_length_ends(setup, steps):
    settings = grouped_heads.Settings(query_heads=2, layers=1, head_size=8)
    model = grouped_heads.fresh_model(setup.engine, settings)
    before = model.lm_head.weight.clone()
    grouped_heads.fit(model, torch.ones(3, 9, dtype=torch.long), steps * 2048, 1e-3)
    assert torch.equal(model.lm_head.weight, before) == (steps == 0)


def test_sharing_heads_costs_loss_and_a_training_takes_it_back(setup, tmp_path):
    settings = grouped_heads.Settings(
        query_heads=2, layers=1, head_size=16, tokens=100 * 2048, uptrained=0.2,
        data=str(write_text(tmp_path)), runs=str(tmp_path / "runs"),
    )  # fmt: skip
    found = grouped_heads.measure(setup, settings)
    whole, _, pooled, later = found.rows
    assert [row.label for row in found.rows][2:] == [
        "MQA, 1 key-value head, pooled", "MQA, 1 key-value head, pooled and trained on"
    ]  # fmt: skip
    assert whole.quality_change.mean == 0
    assert pooled.quality_change.mean > 0
    assert later.quality.mean < pooled.quality.mean
    assert whole.cache_bytes == 2 * pooled.cache_bytes


def with_an_end(setup, engine_folder, folder):
    """The setup with a tokenizer that has an end-of-text token, without which nothing is trained."""
    base = folder / "base"
    shutil.copytree(engine_folder, base)
    tiny.tiny_tokenizer(end_token=tiny.VOCABULARY - 1).save_pretrained(base)
    load = replace(setup.load, model=str(base))
    return replace(setup, load=load, engine=load_engine(load))


def test_a_missing_eagle3_layer_is_trained_in_its_own_way(setup, engine_folder, tmp_path):
    setup = with_an_end(setup, engine_folder, tmp_path)
    settings = eagle3_training.Settings(
        data=str(write_text(tmp_path)), runs=str(tmp_path / "runs"), tokens=8 * 512, batch_tokens=512
    )
    variants = eagle3_training.variants_of(setup.engine.target.config.num_hidden_layers)
    chosen = {name: variants[name] for name in ("eighth", "eagle1")}
    engines = eagle3_training.load_layers(setup, settings, chosen)
    assert all("eagle3" in engine.drafts for engine in engines.values())
    runs = {name: tmp_path / "runs" / name / "config.json" for name in chosen}
    trained = {name: json.loads(file.read_text("utf-8")) for name, file in runs.items()}
    assert (trained["eighth"]["tokens"], trained["eagle1"]["tokens"]) == (512, 4096)
    assert (trained["eagle1"]["unrolled_steps"], trained["eagle1"]["feature_weight"]) == (1, 1.0)
    assert trained["eagle1"]["feature_layers"] == "2,2,2"


def test_right_guesses_by_step_are_those_of_drafting_chains(setup):
    """A slow draft model says what it would guess at each place of the text, behind each number of tokens."""
    engine = eagle3_files.with_draft(setup.engine)
    draft, target = engine.drafts["eagle3"], engine.target
    slow = SlowDraft(eagle3_files.state(), draft.embedding)
    text = tiny.random_tokens(18, 3)
    reading = Reading(target.model, torch.tensor([text]), tuple(eagle3_files.LAYERS))
    states, best = reading.features[0], reading.logits[0].argmax(dim=-1).tolist()
    found = eagle3_training.right_by_step(engine, [text])
    assert max(found) > 0
    for step, share in enumerate(found):
        rows = range(len(text) - 2 - step)
        right = [
            slow.guesses(states[: row + 1], text[: row + 2], text[row + 2 : row + 2 + step], 1)[0][0]
            == best[row + 1 + step]
            for row in rows
        ]
        assert share == pytest.approx(sum(right) / len(rows), abs=1e-4)


def test_table2_sees_that_a_changed_base_is_worse(setup, trained, prompt_file):
    found = table2.measure(setup, table2.Settings(variants=trained, calibration=str(prompt_file), nodes=6))
    rows = {row.label: row for row in found.rows}
    assert rows["Medusa-1"].quality_change.mean == 0
    assert rows["Medusa-2, two stages"].quality_change.mean == 0  # the same base in this test
    assert rows["direct fine-tuning"].quality_change.mean > 0
    assert rows["plain decoding"].quality == rows["Medusa-1"].quality
    assert rows["Medusa-2, two stages"].tokens_per_step.mean > rows["Medusa-1"].tokens_per_step.mean
    assert found.info.heads is None


def test_table3_climbs_from_a_chain_to_better_heads(setup, trained, prompt_file):
    known = trained.rpartition(",")[0]
    found = table3.measure(setup, table3.Settings(variants=known, calibration=str(prompt_file), nodes=9))
    rows = {row.label: row for row in found.rows}
    assert list(rows)[1:] == ["heads only", "+ tree attention", "+ optimised tree", "+ Medusa-2 training"]
    assert [row.tree_nodes for row in found.rows[:2]] == [1, tiny.HEADS + 1]
    assert rows["+ Medusa-2 training"].tokens_per_step.mean > rows["heads only"].tokens_per_step.mean
    assert (
        rows["+ optimised tree"].expected_tokens_per_step >= rows["+ tree attention"].expected_tokens_per_step
    )
    assert table3.chain(3) == Topology(((0,), (0, 0), (0, 0, 0)))


def test_missing_variants_are_trained(setup, engine_folder, prompt_file, tmp_path):
    setup = with_an_end(setup, engine_folder, tmp_path)
    text = write_text(tmp_path)
    settings = table3.Settings(
        data=str(text), runs=str(tmp_path / "runs"), tokens=2048, batch_tokens=1024, nodes=4,
        calibration=str(prompt_file),
    )  # fmt: skip
    found = table3.measure(setup, settings)
    assert len(found.rows) == 5
    assert any("trained by this command on the text text.txt, 2,048 tokens" in note for note in found.notes)
    assert (tmp_path / "runs" / "medusa2" / "metrics.jsonl").is_file()


def test_every_variant_sees_as_many_tokens():
    settings = table2.Settings(tokens=1001)
    of = {name: variant_config(name, settings, model="m", data="d", own_text=True) for name in table2.LABELS}
    assert of["medusa1"].tokens == of["direct"].tokens == 1001
    assert of["medusa2"].tokens + of["medusa2"].stage1_tokens == 1001
    assert of["medusa2"].teacher == "self"
    assert of["direct"].head_warmup == "none"
    given = variant_config("medusa2", settings, model="m", data="d", own_text=False)
    assert given.teacher == "text"


@pytest.mark.parametrize(
    ("text", "cause"),
    [("medusa1", "NAME=FOLDER"), ("other=/tmp", "one of medusa1"), ("medusa1=/no/such", "no folder")],
)
def test_variants_that_are_none_are_refused(text, cause):
    with pytest.raises(MedusaError, match=cause):
        variants.read_folders(text, ["medusa1"])


@pytest.mark.parametrize("text", ["", "1,2", "2,x", "2,300"])
def test_sizes_that_are_none_are_refused(setup, text):
    with pytest.raises(MedusaError, match="nodes is"):
        figure4.measure(setup, figure4.Settings(nodes=text))
