"""What pretraining can be told, by settings and by its command."""

from __future__ import annotations

import itertools
import json
import os
import signal
from dataclasses import fields, replace

import pytest
import torch
from test_pretrain_phases import SMALL
from tiny import build_model, tiny_config
from training_corpus import losses_of
from transformers import AutoModelForCausalLM, AutoTokenizer

from medusa_core.cli.progress import show_progress
from medusa_core.cli.signals import Terminated
from medusa_core.errors import MedusaError
from medusa_core.training import loop
from medusa_core.training.folder_lock import locked_folder
from tools.make_model.__main__ import main
from tools.make_model.pretrain import Dropout, pretrain
from tools.make_model.settings import PretrainConfig


def settings(corpus, **changes):
    places = {"out": str(corpus / "run"), "recipe": str(corpus / "recipe.json"), "data_root": str(corpus)}
    return replace(SMALL, **(places | changes))


def test_dropout_is_off_until_a_rate_is_set_and_in_eval_mode():
    model = build_model(tiny_config())
    tokens = torch.arange(12)[None]
    before = model(tokens).logits
    dropout = Dropout(model)
    model.train()
    assert torch.equal(model(tokens).logits, before)
    dropout.rate = 0.5
    torch.manual_seed(1)
    dropped = model(tokens).logits
    torch.manual_seed(1)
    assert torch.equal(model(tokens).logits, dropped)
    assert not torch.allclose(dropped, before)
    assert torch.equal(model.eval()(tokens).logits, before)


def test_dropout_zeroes_its_share_behind_attention_and_mlp():
    model = build_model(tiny_config())
    Dropout(model).rate = 0.3
    outputs = []
    for layer in model.train().model.layers:
        for part in (layer.self_attn.o_proj, layer.mlp.down_proj):
            part.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    model(torch.randint(0, 24, (8, 64)))
    assert len(outputs) == 2 * model.config.num_hidden_layers
    for output in outputs:
        assert float((output == 0).float().mean()) == pytest.approx(0.3, abs=0.03)


def test_dropout_keeps_the_mean():
    model = build_model(tiny_config())
    Dropout(model).rate = 0.1
    part = model.train().model.layers[0].mlp.down_proj
    x = torch.ones(4000, part.in_features)
    assert part(x).mean(0) == pytest.approx(part.forward(x).mean(0).tolist(), rel=0.05, abs=0.01)


def test_heldout_losses_are_measured_without_dropout(corpus):
    config = settings(corpus, dropout=0.5, evaluate_every=5, tokens=5 * 256)
    *_, last = pretrain(config)
    record = json.loads((corpus / "run" / "result.json").read_text(encoding="utf-8"))
    model = AutoModelForCausalLM.from_pretrained(last.folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(last.folder)
    text = (
        (corpus / "c.txt").read_text(encoding="utf-8").replace("\n<|endoftext|>\n", "<|endoftext|>").strip()
    )
    ids = tokenizer(f"{text}<|endoftext|>", return_tensors="pt").input_ids[:, : 64 * 32 + 1]
    windows = ids[0].unfold(0, 33, 32)
    with torch.inference_mode():
        loss = model(windows, labels=windows).loss
    assert record["heldout/chat"] == pytest.approx(float(loss), abs=0.02)


def test_the_rotary_base_reaches_the_finished_model(corpus):
    *_, last = pretrain(settings(corpus, rotary_base=100_000.0, tokens=256))
    saved = AutoModelForCausalLM.from_pretrained(last.folder)
    assert saved.config.rope_parameters["rope_theta"] == 100_000.0
    # The slowest pair of a head of 16: 100,000 ** -(14 / 16)
    assert float(saved.model.rotary_emb.inv_freq[-1]) == pytest.approx(100_000.0 ** -(14 / 16), rel=1e-3)


def test_a_kept_tokenizer_is_the_one_trained_with(corpus):
    *_, first = pretrain(settings(corpus, tokens=256))
    kept = str(first.folder / "tokenizer.json")
    (corpus / "b.txt").write_text("zebra zebra zebra\n" * 50, encoding="utf-8")
    *_, second = pretrain(settings(corpus, out=str(corpus / "two"), tokenizer=kept, tokens=256))
    ids = [AutoTokenizer.from_pretrained(done.folder)("The zebra saw").input_ids for done in (first, second)]
    assert ids[0] == ids[1]
    assert not (corpus / "two" / "tokenizer.json").exists()


def test_a_tokenizer_that_cannot_be_kept_is_refused_in_one_line(corpus):
    for text, words in (
        ("{", "cannot read"),
        ('{"model": {"type": "BPE", "vocab": {}, "merges": []}}', "endof"),
    ):
        (corpus / "bad.json").write_text(text, encoding="utf-8")
        with pytest.raises(MedusaError, match=words) as caught:
            list(pretrain(settings(corpus, tokenizer=str(corpus / "bad.json"))))
        assert "\n" not in str(caught.value)


def test_the_clock_asks_for_checkpoints_on_a_slow_machine(corpus, monkeypatch):
    seconds = itertools.count(0, 60)  # a minute passes whenever somebody looks
    saved = []
    monkeypatch.setattr(loop.time, "perf_counter", lambda: next(seconds))
    monkeypatch.setattr(loop.TrainRun, "save", lambda run: saved.append(run.step))
    list(pretrain(settings(corpus, tokens=12 * 256, checkpoint_minutes=10.0)))
    gaps = [after - before for before, after in itertools.pairwise(saved)]
    assert len(saved) > 2
    assert max(gaps) <= 10


@pytest.mark.usefixtures("heard_interrupts")
@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_signal_ends_a_run_after_its_step_with_a_checkpoint(corpus, number, error):
    config = settings(corpus)

    def records():
        inner = pretrain(config)
        try:
            for record in inner:
                if record.step == 7:
                    os.kill(os.getpid(), number)
                yield record
        finally:
            inner.close()

    with pytest.raises(error):
        show_progress(records())
    assert next(pretrain(config)).step == 8
    *_, done = pretrain(config)
    assert done.folder is not None
    assert list(losses_of(corpus / "run")) == [10, 20, 30, 40]


def test_text_that_moved_does_not_stop_a_run_from_going_on(corpus, tmp_path_factory):
    records = pretrain(settings(corpus))
    assert next(records).step == 1
    records.close()
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for file in ("a.txt", "b.txt", "c.txt"):
        (elsewhere / file).write_bytes((corpus / file).read_bytes())
    assert next(pretrain(settings(corpus, data_root=str(elsewhere)))).step == 2


# --- ``python -m tools.make_model``: bad sizes, a folder in use.


SIZES = {
    "heads that do not share the width": ({"hidden_size": 50}, "50, no multiple of attention_heads 3"),
    "heads that do not share keys": ({"kv_heads": 2}, "attention_heads is 3, no multiple of kv_heads 2"),
    "odd parts": ({"attention_heads": 16, "hidden_size": 16, "kv_heads": 1}, "in odd parts"),
    "a batch without a window": ({"batch_tokens": 32}, "a step of 32 tokens holds no window of 128"),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_fit_no_model_are_refused(corpus, capsys, name):
    changes, cause = SIZES[name]
    folders = {"out": corpus / "base", "recipe": corpus / "recipe.json", "data_root": corpus}
    sizes = {
        "tokens": 512, "vocab_size": 300, "hidden_size": 48, "intermediate_size": 96, "layers": 1,
        "attention_heads": 3, "kv_heads": 1, "context": 128, "sequence_length": 64, "batch_tokens": 512,
    }  # fmt: skip
    settings = folders | sizes | changes
    assert {item.name for item in fields(PretrainConfig)} >= settings.keys()
    flags = [part for key, value in settings.items() for part in (f"--{key.replace('_', '-')}", value)]
    assert main([str(flag) for flag in flags]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert cause in err


def test_a_folder_in_which_another_process_trains_is_refused(tmp_path, capsys):
    with locked_folder(tmp_path / "run"):
        assert main(["--out", str(tmp_path / "run")]) == 2
    assert "another process" in capsys.readouterr().err
