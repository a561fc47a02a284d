"""Folders of EAGLE-3 draft models: the public layouts load strictly, every fault is refused in a sentence."""

from __future__ import annotations

import json

import eagle3_files as files
import pytest
import tiny
import torch

from medusa_core.checkpoints.sources import find_sources
from medusa_core.config import GenerationConfig, LoadConfig
from medusa_core.drafters import draft_size, load_draft, owner_of
from medusa_core.drafters.eagle3.files import save
from medusa_core.drafters.eagle3.model import rotary_table
from medusa_core.drafters.eagle3.shape import DraftShape
from medusa_core.errors import MedusaError
from medusa_core.loading.load import load_engine
from medusa_core.loading.model_size import model_size
from medusa_core.model.features import BEFORE_NORM

V = tiny.VOCABULARY
EVERY = list(range(V))
WITHOUT_MAPS = {name: tensor for name, tensor in files.state(EVERY).items() if name not in ("d2t", "t2d")}
LAYOUTS = {
    "part of the vocabulary": (files.state(), files.config()),
    "without t2d": ({k: t for k, t in files.state().items() if k != "t2d"}, files.config()),
    "whole vocabulary": (files.state(EVERY), files.config(EVERY)),
    "whole vocabulary without maps": (WITHOUT_MAPS, files.config(EVERY)),
    "maps that count for nothing": (WITHOUT_MAPS | {"d2t": torch.ones(V).long()}, files.config(EVERY)),
    "buffers of older versions": (
        files.state() | {"midlayer.self_attn.rotary_emb.inv_freq": torch.ones(4)}, files.config()
    ),
    "layers beneath a key of their own": (
        files.state(),
        files.config(
            eagle_aux_hidden_state_layer_ids=None,
            eagle_config={"eagle_aux_hidden_state_layer_ids": [layer - 1 for layer in files.LAYERS]},
        ),
    ),
    "layers at the top before those beneath": (
        files.state(), files.config(eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 0, 1]})
    ),
    "names of vLLM": (files.numbered(files.state()), files.config()),
    "speculators": (files.numbered(files.state()), files.speculators()),
}  # fmt: skip


@pytest.mark.sample
@pytest.mark.parametrize("kind", ["safetensors", "bin"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_public_layout_is_recognised_and_loaded(engine, tmp_path, layout, kind):
    state, config = LAYOUTS[layout]
    folder = files.write(tmp_path, state, config, kind)
    assert owner_of(folder) == "eagle3"
    draft = load_draft("eagle3", folder, engine.target)
    model = draft.model
    loaded = dict(model.named_parameters())
    state = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in state.items()}
    assert all(torch.equal(loaded[name], state[name]) for name in loaded)
    known = EVERY if "whole" in layout or "nothing" in layout else files.KNOWN
    assert model.target_tokens(torch.arange(len(known))).tolist() == known
    assert model.t2d.nonzero().flatten().tolist() == known
    assert draft.layers == (0, 1, BEFORE_NORM)  # of 0, 1 and 2 of two
    assert draft.notes == ()
    # The embedding is the target's own memory.
    assert draft.embedding.data_ptr() == engine.target.model.get_input_embeddings().weight.data_ptr()


def test_half_precision_becomes_the_target_s_dtype_and_another_embedding_is_said(engine, tmp_path):
    state = {name: t.half() if t.is_floating_point() else t for name, t in files.state().items()}
    own = engine.target.model.get_input_embeddings().weight
    folder = files.write(tmp_path / "same", state | {"embed_tokens.weight": own.clone()}, files.config())
    draft = load_draft("eagle3", folder, engine.target)
    assert {tensor.dtype for tensor in draft.tensors()} == {torch.float32}
    assert draft.notes == ()
    folder = files.write(tmp_path / "other", state | {"embed_tokens.weight": 2 * own}, files.config())
    assert (
        "embed_tokens.weight is not the model's own" in load_draft("eagle3", folder, engine.target).notes[0]
    )


def changed(**changes):
    """The state with tensors replaced, or left out when None."""
    state = files.state() | {name.replace("__", "."): tensor for name, tensor in changes.items()}
    return {name: tensor for name, tensor in state.items() if tensor is not None}


SAME = torch.zeros(len(files.KNOWN), dtype=torch.long)
NAN = torch.full((32,), torch.nan)
FAULTS = {
    "missing tensor": (changed(fc__weight=None), {}, r"lacks fc\.weight: fetch .* .names as in"),
    "names of another layout": (
        {name.replace("midlayer.", "model.layer."): tensor for name, tensor in files.state().items()}, {},
        r"lacks midlayer\.hidden_norm\.weight, midlayer.*: fetch .* again .names as in the public code",
    ),
    "unknown tensor": (changed(midlayer__bias=torch.ones(1)), {}, r"'midlayer\.bias', which does not belong"),
    "another shape": (
        changed(fc__weight=torch.ones(32, 95)), {},
        r"fc\.weight of .* has shape \[32, 95\].*\]: fetch them with config\.json again",
    ),
    "whole numbers": (changed(norm__weight=torch.ones(32).long()), {}, r"norm\.weight of .* is int64"),
    "a complex embedding": (
        changed(embed_tokens__weight=torch.ones(V, 32) + 0j), {}, r"embed_tokens\.weight in .* not a plain"
    ),
    "no map": (changed(d2t=None), {}, "lack d2t, which says which of 24 tokens the 16 are"),
    "a map of another size": (changed(d2t=SAME[1:]), {}, r"d2t as \[15\], not \[16\]"),
    "a map out of the vocabulary": (changed(d2t=SAME + 9), {}, "from 9 to 24, they must be 16 different"),
    "a token twice": (changed(d2t=-torch.arange(16) // 2 * 2 // 2), {}, "they must be 16 different"),
    "maps that disagree": (changed(t2d=torch.ones(V).bool()), {}, "a t2d that names other tokens than d2t"),
    "not a number": (changed(norm__weight=NAN), {}, r"norm\.weight of EAGLE-3 in .* holds NaN or infinity"),
    "two layers": (files.state(), {"num_hidden_layers": 2}, "num_hidden_layers is 2: EAGLE-3"),
    "no width": (files.state(), {"hidden_size": None}, "hidden_size is None: it must be a whole number"),
    "a huge number": (files.state(), {"intermediate_size": 10**12}, "intermediate_size is 1000000000000"),
    "an epsilon of 400 digits": (files.state(), {"rms_norm_eps": 10**400}, "rms_norm_eps is 10+"),
    "another activation": (files.state(), {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    "no scaling of positions": (
        files.state(), {"rope_scaling": {"type": "linear"}}, "the scaling of positions .* cannot be used"
    ),
    "positions scaled by zero": (
        files.state(), {"rope_scaling": {"type": "linear", "factor": 0}},
        r"config\.json: rope_scaling\.factor is 0: it must be a number from 1 on",
    ),
    "positions scaled by less than nothing": (
        files.state(), {"rope_parameters": {"rope_type": "linear", "factor": -4.0}},
        r"config\.json: rope_parameters\.factor is -4\.0: it must be",
    ),
    "layers that are none": (
        files.state(), {"eagle_aux_hidden_state_layer_ids": [1, 2]}, "name 3 layers by their numbers"
    ),
    "layers of a deeper model": (
        files.state(), {"eagle_aux_hidden_state_layer_ids": [2, 4, 5]}, "layers 2, 4, 5, the model has 2"
    ),
    "layers beneath that are one too high": (
        files.state(),
        {"eagle_aux_hidden_state_layer_ids": None,
         "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}},
        "layers 1, 2, 3, the model has 2",
    ),
    "a norm without its weight": (files.state(), {"norm_before_fc": True}, r"lacks input_norm\.weight"),
    "norms that are not asked for": (
        files.state() | files.norms(["fc_norm"]), {},
        r"'fc_norm\.0\.weight', which does not belong to it",
    ),
    "a norm that is no answer": (files.state(), {"norm_output": 1}, "norm_output is 1: it must be true or"),
    "an embedding of its own": (files.state(), {"target_hidden_size": 64}, "target_hidden_size is 64, hidd"),
    "biases": (files.state(), {"attention_bias": True}, "attention_bias is True: the draft layer"),
    "a window": (files.state(), {"layer_types": ["sliding_attention"]}, "layer_types has 'sliding_"),
    "half a head rotated": (
        files.state(), {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5: the draft layer here"
    ),
    "the last hidden state alone": (
        files.state(), {"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state is false"
    ),
    "another drafter of speculators": (
        files.state(), files.speculators(speculators_model_type="dflash"), "model_type is 'dflash': of the"
    ),
    "a block of masks": (
        files.state(), {"num_hidden_layers": 4, "ptd_token_id": 3}, "it has ptd_token_id, so it drafts a"
    ),
    "DFlash's own layout": (
        {}, {"draft_vocab_size": None, "dflash_config": {"mask_token_id": 3}}, "it has dflash_config, so it"
    ),
    "an unsaid place of the norm": (
        files.numbered(files.state()), files.speculators(norm_before_residual=None),
        "norm_before_residual is missing, and programs that read this layout differ",
    ),
    "another width than the model's": (
        files.state(d=16, inner=40, key=8), {"hidden_size": 16, "head_dim": 4},
        "is 16 wide, the model 32: it belongs to another model, so give --heads made for this one",
    ),
    "another vocabulary than the model's": (
        files.state(vocabulary=30), {"vocab_size": 30}, "knows 30 tokens, the model 24: it belongs to another"
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused_with_its_name(engine, tmp_path, fault):
    state, changes, message = FAULTS[fault]
    folder = files.write(tmp_path / "draft", state, files.config(**changes))
    assert owner_of(folder) == "eagle3"
    with pytest.raises(MedusaError, match=message) as caught:
        load_draft("eagle3", folder, engine.target)
    assert "\n" not in str(caught.value)


def test_sizes_of_which_no_layer_can_be_made_are_refused_before_the_weights_are_here(tmp_path):
    huge = dict.fromkeys(("hidden_size", "num_attention_heads", "head_dim"), 2**24)
    folder = files.write(tmp_path / "draft", {}, files.config(**huge))
    (folder / "model.safetensors").unlink()
    with pytest.raises(MedusaError, match=r"the sizes in config\.json make no layer"):
        draft_size(folder, None)


class Harmful:
    def __reduce__(self):
        return print, ("was run",)


def test_damaged_files_are_refused_and_nothing_in_a_pickle_runs(engine, tmp_path, capsys):
    folder = files.write(tmp_path, {}, files.config(), "bin")
    torch.save({"fc.weight": Harmful()}, folder / "pytorch_model.bin")
    with pytest.raises(MedusaError, match=r"cannot read the EAGLE-3 weights .*pytorch_model\.bin holds"):
        load_draft("eagle3", folder, engine.target)
    (folder / "model.safetensors").write_bytes(b"\x00" * 20)
    with pytest.raises(MedusaError, match=r"cannot read the EAGLE-3 weights .*model\.safetensors is damaged"):
        load_draft("eagle3", folder, engine.target)
    assert "was run" not in capsys.readouterr().out
    for file in ("model.safetensors", "pytorch_model.bin"):
        (folder / file).unlink()
    with pytest.raises(MedusaError, match=r"has no model\.safetensors and no pytorch_model\.bin"):
        load_draft("eagle3", folder, engine.target)


def test_the_estimate_counts_the_weights_and_the_rows_of_its_cache(engine, engine_folder, tmp_path):
    base = model_size(engine_folder)
    whole = files.write(tmp_path / "whole", files.state(), files.config())
    small = files.write(tmp_path / "small", files.state(), files.config(), "bin")
    (small / "pytorch_model.bin").unlink()  # only small files were fetched from the hub so far
    draft = load_draft("eagle3", whole, engine.target)
    weights = sum(tensor.numel() for tensor in draft.tensors())
    for folder in (whole, small):
        assert draft_size(folder, base).weights == weights
        assert draft_size(folder, base).cache_per_row == 2 * 2 * 8 + 32  # keys, values, features


def test_what_is_saved_loads_again_and_names_its_base(engine, engine_folder, tmp_path):
    draft = files.draft_for(engine.target)
    save(draft.model, tmp_path / "saved", str(engine_folder), torch.float32)
    assert owner_of(tmp_path / "saved") == "eagle3"
    again = load_draft("eagle3", tmp_path / "saved", engine.target)
    assert again.model.shape == draft.model.shape
    state = draft.model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in again.model.state_dict().items())
    assert find_sources("", str(tmp_path / "saved")).base == engine_folder


def test_what_flags_ask_for_is_saved_with_them(engine, tmp_path):
    flags = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
    draft = files.draft_for(engine.target, flags=flags)
    save(draft.model, tmp_path, "a-base", torch.float32)
    again = load_draft("eagle3", tmp_path, engine.target)
    assert again.model.shape == draft.model.shape
    assert all(getattr(again.model.shape, flag) for flag in flags)
    assert again.model.state_dict().keys() == draft.model.state_dict().keys()


def test_a_base_is_found_where_speculators_names_it(engine_folder, tmp_path):
    verifier = {"verifier": {"name_or_path": str(engine_folder)}}
    folder = files.write(tmp_path, files.state(), files.speculators(speculators_config=verifier))
    assert find_sources("", str(folder)).base == engine_folder


def test_an_engine_loads_it_by_its_folder_and_names_it(engine, engine_folder, tmp_path):
    folder = files.write(tmp_path / "draft", files.state(), files.config())
    loaded = load_engine(LoadConfig(str(engine_folder), str(folder), dtype="float32", device="cpu"))
    assert loaded.info.drafts == ("EAGLE-3",)
    assert loaded.info.draft_parameters == sum(t.numel() for t in loaded.drafts["eagle3"].tensors())
    config = GenerationConfig.of(method="eagle3", draft_nodes=9, max_new_tokens=8)
    runs = [
        [step.tree.tokens.tolist() for step in one.stream(tiny.PROMPT, config)]
        for one in (loaded, files.with_draft(engine))
    ]
    assert runs[0] == runs[1]
    both = load_engine(
        LoadConfig(str(engine_folder), f"{engine_folder / 'heads'}+{folder}", dtype="float32", device="cpu")
    )
    assert {"medusa", "eagle3"} <= set(both.methods())


def test_without_a_base_in_the_config_the_model_is_asked_for(tmp_path):
    folder = files.write(tmp_path, files.state(), files.config())
    with pytest.raises(MedusaError, match="do not name their base: give the base with --model"):
        find_sources("", str(folder))


@pytest.mark.parametrize("said", [{}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}])
def test_rotations_lie_on_the_device_that_is_asked_for(said):
    """A device without memory stands for a GPU: tensors of the CPU do not mix with its own either."""
    found = rotary_table(DraftShape.of(files.config(**said)), torch.device("meta")).at(2, 5)
    assert (found.cos.device.type, found.cos.shape[0]) == ("meta", 5)


@pytest.mark.parametrize("said", [
    {"rope_scaling": {"type": "linear", "factor": 2.0}},
    {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    {"rope_theta": None, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0}},
])  # fmt: skip
def test_scaled_positions_are_turned_as_the_config_says(said):
    plain = rotary_table(DraftShape.of(files.config()), torch.device("cpu")).at(0, 10)
    scaled = rotary_table(DraftShape.of(files.config(**said)), torch.device("cpu")).at(0, 19)
    torch.testing.assert_close(scaled.cos[::2], plain.cos)
    torch.testing.assert_close(scaled.sin[::2], plain.sin)


def test_a_config_that_is_no_object_is_refused(tmp_path, engine):
    folder = files.write(tmp_path, files.state(), files.config())
    (folder / "config.json").write_text(json.dumps([1]), encoding="utf-8")
    with pytest.raises(MedusaError, match="is not a JSON object"):
        owner_of(folder)
