"""How files go bad: folders of the tiny engine, copied and damaged as by broken downloads and mix-ups."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tiny
import torch
from head_files import public_state, write
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import (
    CLIPConfig,
    CLIPModel,
    MambaConfig,
    MambaForCausalLM,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

from medusa_core.checkpoints.adapters import without_deprecations

WEIGHTS, CONFIG, INDEX = "model.safetensors", "config.json", "model.safetensors.index.json"
HEADS, PICKLE = "medusa_lm_head.safetensors", "medusa_lm_head.pt"
ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"


@dataclass(frozen=True)
class Named:
    """What a user types for ``--model`` and ``--heads``."""

    model: str = ""
    heads: str = ""

    def flags(self) -> list[str]:
        """The flags that a user types."""
        given = (("--model", self.model), ("--heads", self.heads))
        return [part for flag, value in given if value for part in (flag, value)]


@dataclass(frozen=True)
class Workshop:
    """``engine``: the folder of the tiny model with its heads, to be copied; ``out``: where rows write."""

    engine: Path
    out: Path

    @property
    def mark(self) -> Path:
        """The folder that an executed trap makes."""
        return self.out / "executed"

    def base(self) -> Path:
        """A copy of the model, heads included."""
        return Path(shutil.copytree(self.engine, self.out / "model"))

    def heads(self) -> Path:
        """A copy of only the heads."""
        return Path(shutil.copytree(self.engine / "heads", self.out / "heads"))


class Trap:
    """A pickle that makes a folder when it is loaded carelessly."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.mark,)


# --- how to damage -----------------------------------------------------------------------------------------


def cut(file: Path, keep: float) -> None:
    """Leave the first part of a file, as an interrupted download does."""
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])


def garble(file: Path) -> None:
    """Overwrite the beginning of a safetensors header; its length stays."""
    content = bytearray(file.read_bytes())
    content[8:24] = b"\xff\x00garbage\xff\x00\x01\x02\x03\x04\x05"
    file.write_bytes(bytes(content))


def change_json(file: Path, **changes: object) -> None:
    """Set keys of a JSON object; None deletes."""
    data = json.loads(file.read_text(encoding="utf-8")) | changes
    file.write_text(json.dumps({k: v for k, v in data.items() if v is not None}), encoding="utf-8")


def change_tensors(file: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Change a safetensors file's tensors in place."""
    state = load_file(file)
    change(state)
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, file, {"format": "pt"})


Damage = Callable[[Workshop, Path], object]


def base(damage: Damage) -> Callable[[Workshop], Named]:
    """A copy of the model with its heads, damaged."""

    def build(shop: Workshop) -> Named:
        folder = shop.base()
        damage(shop, folder)
        return Named(str(folder))

    return build


def heads(damage: Damage) -> Callable[[Workshop], Named]:
    """The good model with a copy of its heads, damaged."""

    def build(shop: Workshop) -> Named:
        folder = shop.heads()
        damage(shop, folder)
        return Named(str(shop.engine), str(folder))

    return build


def text(name: str, content: str | bytes) -> Damage:
    """Replace a file's content."""
    data = content.encode() if isinstance(content, str) else content
    return lambda _, folder: (folder / name).write_bytes(data)


def settings(name: str = CONFIG, **changes: object) -> Damage:
    """Change values in a JSON file."""
    return lambda _, folder: change_json(folder / name, **changes)


def another_model(make: Callable[[], PreTrainedModel]) -> Callable[[Workshop], Named]:
    """A whole folder of another model."""

    def build(shop: Workshop) -> Named:
        make().save_pretrained(shop.out / "model")
        tiny.tiny_tokenizer(end_token=23).save_pretrained(shop.out / "model")
        return Named(str(shop.out / "model"))

    return build


def without_tensor(_: Workshop, folder: Path) -> None:
    change_tensors(folder / WEIGHTS, lambda state: state.pop("model.layers.1.mlp.up_proj.weight"))


def not_numbers(_: Workshop, folder: Path) -> None:
    change_tensors(folder / WEIGHTS, lambda state: state["model.norm.weight"].fill_(torch.nan))


def pickled_base(shop: Workshop, folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    torch.save({"lm_head.weight": Trap(shop.mark)}, folder / "pytorch_model.bin")


def sharded(index: dict[str, object] | None = None) -> Damage:
    """The weights in two shards, the second of which is missing; or another text for their index."""

    def damage(_: Workshop, folder: Path) -> None:
        state = load_file(folder / WEIGHTS)
        (folder / WEIGHTS).unlink()
        first, second = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
        save_file({n: t for n, t in state.items() if "layers.1" not in n}, folder / first, {"format": "pt"})
        names = {name: second if "layers.1" in name else first for name in state}
        given = {"metadata": {}, "weight_map": names} if index is None else index
        (folder / INDEX).write_text(json.dumps(given), encoding="utf-8")

    return damage


def no_tokenizer(_: Workshop, folder: Path) -> None:
    for file in folder.glob("token*"):
        file.unlink()


def larger_tokenizer(_: Workshop, folder: Path) -> None:
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    data["model"]["vocab"] |= {"€": 40}
    (folder / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")


def code_in_heads(torch_file: bool) -> Damage:
    def damage(shop: Workshop, folder: Path) -> None:
        (folder / HEADS).unlink()
        state = {"0.0.linear.weight": Trap(shop.mark)}
        if torch_file:
            torch.save(state, folder / PICKLE)
        else:
            (folder / PICKLE).write_bytes(pickle.dumps(state))

    return damage


def other_heads(change: Callable[[dict[str, torch.Tensor]], None] = lambda _: None, **sizes: int) -> Damage:
    """Heads for a model of other sizes, or with other numbers."""

    def damage(_: Workshop, folder: Path) -> None:
        state = public_state(tiny.random_heads(tiny.build_model(tiny.tiny_config(2, **sizes))))
        change(state)
        write(folder, state)

    return damage


def adapted(damage: Callable[[Path], object] = lambda _: None, **sizes: int) -> Callable[[Workshop], Named]:
    """The good model with heads that come with an adapter, for a model of other sizes, or damaged."""

    def build(shop: Workshop) -> Named:
        folder = shop.heads()
        model = tiny.build_model(tiny.tiny_config(2, **sizes))
        config = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        with without_deprecations():
            get_peft_model(model, config).save_pretrained(shop.out / "adapter")
        for name in (ADAPTER, ADAPTER_CONFIG):
            shutil.copyfile(shop.out / "adapter" / name, folder / name)
        damage(folder)
        return Named(str(shop.engine), str(folder))

    return build


def t5() -> PreTrainedModel:
    return T5ForConditionalGeneration(
        T5Config(vocab_size=24, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    )


def mamba() -> PreTrainedModel:
    return MambaForCausalLM(MambaConfig(vocab_size=24, hidden_size=16, num_hidden_layers=1, state_size=4))


def clip() -> PreTrainedModel:
    part = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return CLIPModel(
        CLIPConfig(
            text_config=part | {"vocab_size": 24},
            vision_config=part | {"image_size": 8, "patch_size": 4},
            projection_dim=8,
        )
    )
