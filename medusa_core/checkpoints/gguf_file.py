"""A Llama-like model as a GGUF file, which llama.cpp reads.

The ``gguf`` package writes it tensor by tensor, so that the weights are in memory once. The file has no
vocabulary: llama.cpp takes and gives token ids.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from medusa_core.checkpoints.base import load_base
from medusa_core.checkpoints.locate import embedded_model, locate_model
from medusa_core.checkpoints.names import EMBEDDED
from medusa_core.errors import MedusaError, reason_of
from medusa_core.files import whole_file

SUFFIX = ".gguf"
Q8_0 = "Q8_0"  # 8 bits a number, and a scale for each 32 of a row
KINDS = {"bf16": "BF16", "f16": "F16", "f32": "F32", "q8_0": Q8_0}  # by the flag's value
# Types of matrices as GGUF names them, other than those in blocks.
_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# llama.cpp's architecture by the model type that transformers knows.
_ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
# Scalings of rotary positions that multiply each frequency by a constant and do nothing else.
_SCALINGS = ("linear", "llama3")


def type_of(dtype: torch.dtype) -> str:
    return next(name for name, known in _DTYPES.items() if known == dtype)


def convert_to_gguf(source: str, target: Path, kind: str, *, force: bool = False) -> None:
    """Write the base ``source``, a folder or hub name, to the file ``target``, whole or not at all.

    ``kind`` is one of ``KINDS``. Raises MedusaError for a base that llama.cpp would compute otherwise, and
    for a file that is there or cannot be written.
    """
    if target.suffix != SUFFIX:
        raise MedusaError(f"DST {target} is not the name of a GGUF file: let it end in {SUFFIX}")
    if target.exists() and not (force and target.is_file()):
        raise MedusaError(f"DST {target} is there already: name another file, or use --force")
    folder = embedded_model() if source == EMBEDDED else locate_model(source)
    model = GgufModel.of(load_base(folder, dtype="auto"), KINDS[kind])
    try:
        with whole_file(target) as new:
            model.write(new)
    except OSError as error:
        raise MedusaError(f"cannot write {target} ({reason_of(error)}): name another file") from error


@dataclass(frozen=True)
class GgufModel:
    """What a file will hold."""

    gguf: ModuleType
    architecture: str
    settings: dict[str, Any]  # by the names that the package's writer has for them
    tensors: dict[str, torch.Tensor]  # by their names in the file
    paired: dict[str, int]  # heads of the tensors whose rows change places
    kind: str

    @classmethod
    def of(cls, model: Any, kind: str) -> GgufModel:
        """The file's content for ``model``, shaped like transformers' causal LM, with matrices of ``kind``.

        Raises MedusaError where llama.cpp would compute something else, and where gguf is not installed.
        """
        try:
            import gguf  # noqa: PLC0415 - optional
        except ImportError as error:
            raise MedusaError("GGUF files need the gguf package: pip install gguf") from error
        config = model.config
        architecture = _architecture(config)
        numbers = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
        names = gguf.get_tensor_name_map(numbers[architecture], config.num_hidden_layers)
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        tensors, paired = {}, {}
        for name, tensor in model.named_parameters():  # an LM head that is the embedding is not listed again
            new = names.get_name(name, try_suffixes=(".weight", ".bias"))
            if new is None:
                raise MedusaError(f"llama.cpp's {architecture} has no place for {name}: use another model")
            tensors[new] = tensor.detach()
            layer = name.split(".")[-2]
            if architecture == "llama" and layer in heads:
                paired[new] = heads[layer]
        if (factors := _rotary_factors(model, architecture)) is not None:
            tensors["rope_freqs.weight"] = factors
        return cls(gguf, architecture, _settings(config), tensors, paired, kind)

    def digest(self) -> str:
        """A hash of its settings and tensors, equal for equal files."""
        found = hashlib.blake2b(digest_size=12)
        about = [self.architecture, self.settings, self.kind, list(self.tensors), list(self.paired.items())]
        found.update(json.dumps(about).encode())
        for tensor in self.tensors.values():
            found.update(_bytes(tensor).data)
        return found.hexdigest()

    def write(self, file: Path) -> None:
        """Write the file. Raises OSError."""
        writer = self.gguf.GGUFWriter(file, self.architecture)
        for name, value in self.settings.items():
            getattr(writer, f"add_{name}")(value)
        writer.add_file_type(
            self.gguf.LlamaFileType["ALL_F32" if self.kind == "F32" else f"MOSTLY_{self.kind}"]
        )
        writer.add_quantization_version(self.gguf.GGML_QUANT_VERSION)
        writer.add_tokenizer_model("none")
        for name, tensor in self.tensors.items():
            number = self.gguf.GGMLQuantizationType[self._kind_of(tensor)]
            block, size = self.gguf.GGML_QUANT_SIZES[number]
            nbytes = tensor.numel() // block * size
            writer.add_tensor_info(name, tensor.shape, np.dtype(np.float32), nbytes, raw_dtype=number)
        try:
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for name, tensor in self.tensors.items():
                writer.write_tensor_data(self._encoded(_in_pairs(tensor, self.paired.get(name))))
        finally:
            writer.close()

    def _kind_of(self, tensor: torch.Tensor) -> str:
        """Its kind in the file: vectors keep every bit; rows that do not fill blocks are not quantized."""
        if tensor.ndim == 1:
            return "F32"
        block, _ = self.gguf.GGML_QUANT_SIZES[self.gguf.GGMLQuantizationType[self.kind]]
        return "F16" if tensor.shape[-1] % block else self.kind

    def _encoded(self, tensor: torch.Tensor) -> np.ndarray:
        kind = self._kind_of(tensor)
        if kind in _DTYPES:
            return _bytes(tensor.to(_DTYPES[kind]))
        return self.gguf.quantize(tensor.float().cpu().numpy(), self.gguf.GGMLQuantizationType[kind])


def _architecture(config: Any) -> str:
    """llama.cpp's name for a model's architecture. Raises MedusaError where it would compute otherwise."""
    kind = config.model_type
    if kind not in _ARCHITECTURES:
        raise MedusaError(f"{kind} is not written as GGUF: use one of {', '.join(_ARCHITECTURES)}")
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None) if kind == "mistral" else None
    if window or kinds - {"full_attention"}:
        raise MedusaError("llama.cpp lets such a model see the whole text, and this one has a window")
    activation = getattr(config, "hidden_act", "silu")
    if activation != "silu":
        raise MedusaError(f"llama.cpp's {_ARCHITECTURES[kind]} has silu, and this model {activation}")
    return _ARCHITECTURES[kind]


def _settings(config: Any) -> dict[str, Any]:
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return {
        "vocab_size": config.vocab_size,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "head_count": config.num_attention_heads,
        "head_count_kv": config.num_key_value_heads,
        "key_length": size,
        "value_length": size,
        "rope_dimension_count": size,
        "rope_freq_base": _rotation(config)["rope_theta"],
        "layer_norm_rms_eps": config.rms_norm_eps,
    }


def _rotation(config: Any) -> dict[str, Any]:
    return getattr(config, "rope_parameters", None) or {"rope_theta": config.rope_theta}


def _rotary_factors(model: Any, architecture: str) -> torch.Tensor | None:
    """Divisors of the frequencies in llama.cpp [D / 2], None where nothing is scaled. Raises MedusaError."""
    rotation = _rotation(model.config)
    kind = rotation.get("rope_type", "default")
    if rotation.get("partial_rotary_factor", 1) != 1:
        raise MedusaError("llama.cpp rotates whole heads, and this model a part of each")
    if kind == "default":
        return None
    if kind not in _SCALINGS or architecture != "llama":
        raise MedusaError(f"rotary positions of the kind {kind} are not written as GGUF for {architecture}")
    frequencies = model.model.rotary_emb.inv_freq.float()
    exponents = torch.arange(len(frequencies), device=frequencies.device).float() / len(frequencies)
    return 1 / (rotation["rope_theta"] ** exponents * frequencies)


def _in_pairs(tensor: torch.Tensor, heads: int | None) -> torch.Tensor:
    """Reorder rows: llama.cpp rotates the numbers 2 i and 2 i + 1 of a head, transformers i and i + D / 2."""
    if heads is None:
        return tensor
    return tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    return tensor.cpu().contiguous().view(torch.uint8).numpy()
