"""Pairs against repeated sentences: how they are found, what the loss is, and that a base learns."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import pytest
import torch
from test_pretrain_phases import SMALL, phased
from tiny import build_model, tiny_config
from tokenizers import Tokenizer

from medusa_core.errors import MedusaError
from medusa_core.files import project_folder
from tools.make_model.preferences import Pair, Preferences, read_pairs
from tools.make_model.pretrain import pretrain
from tools.make_model.repeats import main, pair_of
from tools.make_model.teachers import read_llama
from tools.make_model.writing import SENTENCE, said_by

END = 0
PAIRS = [Pair([5, 6, 7], [8, 9], [[3, 4, 2]]), Pair([2], [9], [[1]])]


def test_the_loss_is_that_of_equation_7():
    model, reference = (build_model(tiny_config(), seed=seed) for seed in (1, 2))

    def likely(base, before, said):
        logs = base(torch.tensor([[END, *before, *said]])).logits[0].log_softmax(-1)
        return sum(float(logs[len(before) + place, token]) for place, token in enumerate(said))

    losses = []
    for pair in PAIRS:
        wanted, refused = (
            likely(model, pair.before, said) - likely(reference, pair.before, said)
            for said in (pair.wanted[0], pair.refused)
        )
        losses.append(math.log1p(math.exp(-0.7 * (wanted - refused))))
    config = replace(SMALL, pair_beta=0.7, pair_weight=2.0, pair_batch=2)
    found = Preferences(PAIRS, reference, END, config).loss(model, 0)
    assert float(found) == pytest.approx(2.0 * sum(losses) / 2, rel=1e-4)


def test_a_base_learns_which_half_is_wanted():
    model, reference = (build_model(tiny_config(), seed=1) for _ in range(2))
    model.requires_grad_(True)
    preferences = Preferences(PAIRS, reference, END, replace(SMALL, pair_beta=0.5, pair_weight=1.0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(20):
        losses.append(preferences.loss(model, step))
        losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[0].item() == pytest.approx(math.log(2), rel=1e-4)
    assert losses[-1].item() < 0.5 * losses[0].item()


def test_a_repeated_sentence_is_told_from_others_the_base_might_say():
    folder = str(project_folder() / "assets" / "model")
    model, tokenizer = read_llama(folder).eval(), Tokenizer.from_file(f"{folder}/tokenizer.json")
    begin = "Tom had a red ball. He was very happy. He ran to the park."
    torch.manual_seed(0)
    pair = pair_of(f"{begin} He was very happy. Then he went home.", model, tokenizer)
    assert tokenizer.decode(pair.before) == begin
    assert tokenizer.decode(pair.refused) == " He was very happy."
    known = {said_by(sentence) for sentence in SENTENCE.findall(begin)}
    others = [tokenizer.decode(tokens) for tokens in pair.wanted]
    assert 0 < len(others) <= 3
    assert not known & {said_by(other) for other in others}
    assert pair_of(f"{begin} Then he went home.", model, tokenizer) is None
    said = 'Mom said, "I see." Tom ran home. Dad said, "I know."'
    behind_a_quote = pair_of(f"{said} Tom ran home.", model, tokenizer)
    assert tokenizer.decode(behind_a_quote.before) == said
    assert tokenizer.decode(behind_a_quote.refused) == " Tom ran home."


def test_pairs_of_a_folder_of_answers_become_a_file(tmp_path, capsys):
    texts = ["Tom had a ball. He was very happy. He was very happy.", "Tom had a ball. He went home."]
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi. Hi."}]
    lines = [{"text": text} for text in texts] + [{"messages": talk}]
    (tmp_path / "story.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    out = tmp_path / "pairs.jsonl"
    model = str(project_folder() / "assets" / "model")
    assert main(["--model", model, "--answers", str(tmp_path), "--out", str(out)]) == 0
    assert len(read_pairs(out, 4096)) == 1
    assert "1 pairs of 2 texts" in capsys.readouterr().out
    for wrong, cause in (
        (("--answers", "none"), "there is no file or folder"),
        (("--seed", "9" * 30), "lower it"),
    ):
        assert main(["--model", model, "--answers", str(tmp_path), "--out", str(out), *wrong]) == 2
        assert cause in capsys.readouterr().err


def test_pairs_are_read_as_written_and_other_files_refused(tmp_path):
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(asdict(pair)) + "\n" for pair in PAIRS), encoding="utf-8")
    assert read_pairs(file, 24) == PAIRS
    good = asdict(PAIRS[0])
    file.write_text("", encoding="utf-8")
    with pytest.raises(MedusaError, match="holds no pair"):
        read_pairs(file, 24)
    bad = [
        {},
        [1, 2],
        good | {"wanted": []},
        good | {"wanted": [[]]},
        good | {"before": None},
        good | {"refused": [24]},
        good | {"refused": [-1]},
        good | {"wanted": [[1.5]]},
        good | {"refused": "abc"},
        good | {"wanted": [3]},
    ]
    for text in ("no JSON", "[" * 100_000, *map(json.dumps, bad)):
        file.write_text(f"{json.dumps(good)}\n{text}", encoding="utf-8")
        with pytest.raises(MedusaError, match=r"line 2 of .* is not a pair"):
            read_pairs(file, 24)


def test_pretraining_learns_pairs_beside_text_and_asks_for_a_teacher(corpus):
    config, _ = phased(corpus, {"share": 1, "window": 32, "weights": {"story": 1}, "keeps": {"story": 1}})
    *_, start = pretrain(replace(config, tokens=256, recipe=str(corpus / "recipe.json")))
    file = corpus / "pairs.jsonl"
    file.write_text(json.dumps(asdict(PAIRS[0])), encoding="utf-8")
    asked = replace(
        config, out=str(corpus / "learned"), pairs=str(file), start=str(start.folder), accumulate=2,
        tokenizer=f"{start.folder}/tokenizer.json", teachers=str(start.folder), pair_weight=1.0,
    )  # fmt: skip
    *_, end = pretrain(asked)
    reference, learned = (read_llama(str(run.folder)) for run in (start, end))
    loss = Preferences(PAIRS[:1], reference, END, asked).loss(learned, 0)
    assert loss.item() < 0.5 * math.log(2)
    with pytest.raises(MedusaError, match="--teachers"):
        next(pretrain(replace(asked, teachers="", recipe=str(corpus / "recipe.json"), accumulate=1)))
