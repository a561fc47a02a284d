"""Convert heads between all public formats, with the files that the target's engine wants beside them.

Tensors go over as they are, in their dtype, so that a round trip is bit for bit. Only the native
format knows the project's trees, accuracies and adapters: a base that was trained with its heads is
merged for all others. ``checkpoints.serving`` knows what serving engines want and how they are started.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import torch

from medusa_core.checkpoints import serving
from medusa_core.checkpoints.adapters import apply_adapter
from medusa_core.checkpoints.base import load_base
from medusa_core.checkpoints.files import Layout, layout_of, read_config
from medusa_core.checkpoints.heads import (
    disk_errors,
    heads_for_base,
    public_config,
    read_heads,
    write_config,
    write_file,
    write_heads,
)
from medusa_core.checkpoints.layouts import HeadTensors, to_public, to_vllm
from medusa_core.checkpoints.lm_head import read_lm_head
from medusa_core.checkpoints.locate import (
    as_folder,
    beside_heads,
    embedded_model,
    has_adapter,
    locate,
    locate_model,
    tree_beside,
)
from medusa_core.checkpoints.names import (
    BASE_KEY,
    BESIDE_HEADS,
    CONFIG_NAME,
    EMBEDDED,
    HEADS_NAME,
    INDEX_NAME,
    TOKENIZER_FILES,
    WEIGHTS_NAME,
)
from medusa_core.checkpoints.sources import base_path, locate_heads
from medusa_core.errors import MedusaError, reason_of
from medusa_core.trees.tree import Topology, load_tree

_CHAIN = "drafts a chain of each head's best guess: the tree has no place there"
MERGE_BASE = "--merge-base"
DEFAULT_TREE = "mc_sim_7b_63"  # for TensorRT-LLM, when the heads bring none
_OURS = [CONFIG_NAME, f"{HEADS_NAME}*", f"{WEIGHTS_NAME}*", serving.CHOICES_NAME, *BESIDE_HEADS]


@dataclass(frozen=True)
class ConversionRequest:
    """What to convert, into which format, and with which options."""

    source: str  # folder or hub name
    target: Path
    to: str
    model: str = ""  # the base, where the heads do not name it
    merge_base: str = ""  # folder to write the base to, as these heads know it
    tree: str = ""  # for TensorRT-LLM
    pickled: bool = False  # v1 as .pt
    force: bool = False


@dataclass
class Conversion:
    """A conversion under way: the heads, where they lie, their base, and notes for the user."""

    request: ConversionRequest
    folder: Path
    tensors: HeadTensors
    base: str
    notes: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    def base_folder(self) -> Path:
        """The folder of the base, downloaded if need be. Raises MedusaError."""
        return locate_model(base_path(self.base, self.folder))

    def lm_head(self) -> torch.Tensor:
        """The base's LM head [V, d], checked against the heads. Raises MedusaError when they do not fit."""
        found = read_lm_head(self.base_folder())
        heads_for_base(self.tensors, found, self.folder)
        return found

    def with_lm_head(self) -> HeadTensors:
        """The heads with the LM head they use, one matrix [V, d] where it is the base's."""
        if self.tensors.lm_weight is not None:
            return self.tensors
        own = self.lm_head()
        kept = own.to(self.tensors.block_weight.dtype)
        if not torch.equal(kept.to(own.dtype), own):
            self.notes.append(f"the base's LM head was rounded from {own.dtype} to {kept.dtype}")
        return replace(self.tensors, lm_weight=kept)

    def without_lm_head(self) -> HeadTensors:
        """The heads without last layers, when these are the base's LM head.

        Raises MedusaError that names a head whose last layer is not.
        """
        last = self.tensors.lm_weight
        if last is None:
            return self.tensors
        if self.tensors.token_map is not None:
            short = "heads of a shortened vocabulary have an LM head of their own"
            raise MedusaError(f"{short}: convert them to vllm")
        lm_head = self.lm_head()
        for head, own in enumerate(last if last.ndim == 3 else last[None], start=1):
            if different := int((own != lm_head.to(own.dtype)).any(dim=1).sum()):
                raise MedusaError(
                    f"head {head} has a last layer of its own ({different} of {len(own)} rows differ from "
                    "the base's LM head), which v2 cannot hold: use v1"
                )
        return replace(self.tensors, lm_weight=None)


def convert(request: ConversionRequest) -> Conversion:
    """Convert; return what was done, with ``base`` as the target's config names it.

    Raises MedusaError for heads, a base or a target that cannot be used; the target is then left as it was.
    """
    source = str(embedded_model()) if request.source == EMBEDDED else request.source
    folder = locate_heads(source)
    check_target(request.target, folder, request.force)
    tensors = read_heads(folder)
    work = Conversion(request, folder, tensors, _base_name(request, folder), [*tensors.notes])
    _settle_base(work)
    with staged(request.target) as staging:
        FORMATS[request.to](work, staging)
    return work


def _write_public(tensors: HeadTensors, base: str, out: Path, suffix: str = "safetensors") -> None:
    """Write the public code's files: format v1, or v2 where the LM head is the base's."""
    write_config(out, public_config(tensors, base))
    write_file(to_public(tensors), out / f"{HEADS_NAME}.{suffix}")


def _to_v1(work: Conversion, out: Path) -> None:
    suffix = "pt" if work.request.pickled else "safetensors"
    _write_public(work.with_lm_head(), work.base, out, suffix)


def _to_v2(work: Conversion, out: Path) -> None:
    _write_public(work.without_lm_head(), work.base, out)


def _to_native(work: Conversion, out: Path) -> None:
    write_heads(work.tensors, out, work.base)
    for name in BESIDE_HEADS:
        if file := beside_heads(work.folder, name):
            shutil.copyfile(file, out / name)


def _to_vllm(work: Conversion, out: Path) -> None:
    tensors = work.with_lm_head()
    vocabulary = cast("torch.Tensor", tensors.lm_weight).shape[-2]  # the tensors have one by now
    if tensors.token_map is not None:
        vocabulary = read_config(work.folder).get("vocab_size") or len(work.lm_head())
    base = _servable(work)
    write_config(out, serving.vllm_config(tensors, base, vocabulary))
    write_file(to_vllm(tensors), out / WEIGHTS_NAME)
    work.notes.append(f"vLLM {_CHAIN}")
    work.commands += serving.vllm_commands(base, str(work.request.target.resolve()), tensors.count)


def _to_tgi(work: Conversion, out: Path) -> None:
    # TGI reads heads without last layers only when they have one layer.
    tensors = work.tensors if work.tensors.layers == 1 else work.with_lm_head()
    base = _servable(work)
    _write_public(tensors, base, out)
    try:
        _copy_tokenizer(locate(base, TOKENIZER_FILES), out)
    except MedusaError as error:
        missing = "the base's tokenizer was not copied beside the heads, as TGI's models have it"
        work.notes.append(f"{missing}: {error}")
    work.notes.append(f"TGI {_CHAIN}")
    if as_folder(base):
        work.notes.append(f"TGI loads the base from {base}: in a container it must be mounted at that path")
    work.commands += serving.tgi_commands(str(work.request.target.resolve()), tensors.count)


def _to_trtllm(work: Conversion, out: Path) -> None:
    tensors = work.with_lm_head()
    tree = _tree_for(work)
    base = _servable(work)
    _write_public(tensors, base, out, "pt")
    text = json.dumps(tree.choices)  # as its --medusa_choices reads it
    (out / serving.CHOICES_NAME).write_text(text + "\n", encoding="utf-8")
    work.notes.append(
        "TensorRT-LLM has Medusa in its engine workflow only (examples/medusa), greedy, for bases shaped "
        "like Llama; Qwen2 needs --model_type qwen2 at convert_checkpoint.py"
    )
    work.commands += serving.trtllm_commands(base, str(work.request.target.resolve()), tensors, tree.size - 1)


FORMATS: dict[str, Callable[[Conversion, Path], None]] = {
    "v1": _to_v1,
    "v2": _to_v2,
    "vllm": _to_vllm,
    "tgi": _to_tgi,
    "trtllm": _to_trtllm,
    "native": _to_native,
}


def _base_name(request: ConversionRequest, folder: Path) -> str:
    """What the heads' config calls their base, or what the request says it is."""
    if request.model:
        return request.model
    if layout_of(folder) is Layout.FULL:
        return request.source
    name = read_config(folder).get(BASE_KEY)
    if not isinstance(name, str) or not name:
        raise MedusaError(f"the heads in {folder} do not name their base: give it with --model")
    return name


def _settle_base(work: Conversion) -> None:
    """Merge the base where it was trained with its heads, or say what has to be done."""
    request = work.request
    adapter = has_adapter(work.folder)
    inside = layout_of(work.folder) is Layout.FULL
    if adapter and request.to != "native" and not request.merge_base:
        raise MedusaError(
            f"the heads in {work.folder} belong to their base with the adapter beside them, for which "
            f"{request.to} has no place: give --merge-base DIR, where the merged base is written"
        )
    if request.merge_base:
        if not inside and (request.to == "native" or not adapter):
            why = "native heads keep their adapter" if adapter else "these heads have no adapter"
            raise MedusaError(f"there is nothing to merge, {why}: leave --merge-base out")
        _write_base(work, Path(request.merge_base), adapter)
    elif inside and not request.model:
        work.notes.append(
            f"{work.base} is the base and holds the heads as well; if an engine rejects medusa_head "
            "tensors, --merge-base DIR writes the base without them"
        )


def _write_base(work: Conversion, out: Path, adapter: bool) -> None:
    base = work.base_folder()
    check_target(out, base, work.request.force, what=MERGE_BASE)
    if out.resolve() == work.request.target.resolve():
        raise MedusaError(f"--merge-base {out} is where the heads go: give the base a folder of its own")
    model = load_base(base, dtype="auto")
    if adapter:
        model = apply_adapter(model, work.folder)
    for name in ("medusa_num_heads", "medusa_num_layers"):
        if hasattr(model.config, name):
            delattr(model.config, name)
    with disk_errors():
        model.save_pretrained(out)
    _copy_tokenizer(base, out)
    work.base = str(out)
    work.notes.append(f"the base as these heads know it was written to {out}")


def _tree_for(work: Conversion) -> Topology:
    """The tree asked for, the one made for these heads, or a published one; as deep as there are heads."""
    beside = tree_beside(work.folder, torch.device("cuda"))
    name = work.request.tree or (str(beside) if beside else DEFAULT_TREE)
    tree = load_tree(name)
    if work.request.tree:
        tree.check(work.tensors.count)
    elif not beside:
        work.notes.append(f"the heads bring no tree: {DEFAULT_TREE} is taken; `calibrate` finds a better one")
    return tree.limited(work.tensors.count)


def _servable(work: Conversion) -> str:
    """The base as another program finds it from anywhere: a whole path, or a hub name."""
    if as_folder(base := base_path(work.base, work.folder)):
        work.base = str(locate_model(base).resolve())
    return work.base


def _copy_tokenizer(folder: Path, out: Path) -> None:
    for pattern in [*TOKENIZER_FILES, "*.model"]:
        for file in folder.glob(pattern):
            shutil.copyfile(file, out / file.name)


def check_target(target: Path, source: Path, force: bool, what: str = "DST") -> None:
    """Raise MedusaError when ``target`` is not a folder to write heads from ``source`` to.

    With ``force`` it may hold other heads, but never a model.
    """
    if target.exists() and not target.is_dir():
        raise MedusaError(f"{what} {target} is a file: name a folder")
    if not target.is_dir() or not any(target.iterdir()):
        return
    if target.resolve() == source.resolve():
        raise MedusaError(f"{what} {target} is where this comes from: name another folder")
    if not force:
        raise MedusaError(f"{what} {target} is not empty: name another folder, or use --force")
    if what != MERGE_BASE and _holds_a_model(target):
        raise MedusaError(f"{what} {target} holds a model, which heads must not replace: name another folder")


def _holds_a_model(folder: Path) -> bool:
    if read_config(folder).get("model_type", "medusa") != "medusa":
        return True
    weights = any((folder / name).exists() for name in (WEIGHTS_NAME, INDEX_NAME))
    return weights and layout_of(folder) is not Layout.VLLM


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A folder beside the target that takes its place on success and is removed on failure."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        why = f"cannot write to {target.parent} ({error.strerror})"
        raise MedusaError(f"{why}: name another folder") from error
    try:
        yield staging
        target.mkdir(exist_ok=True)
        for pattern in _OURS:
            for old in target.glob(pattern):
                old.unlink()
        for file in staging.iterdir():
            shutil.move(file, target / file.name)
    except OSError as error:
        why = f"cannot write to {target} ({reason_of(error)})"
        raise MedusaError(f"{why}: free some room, or name another folder") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
