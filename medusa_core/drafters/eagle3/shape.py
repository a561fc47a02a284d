"""The sizes of an EAGLE-3 draft model, by its config.json.

V vocabulary · V' draft vocabulary · d hidden size · H query heads · G key-value heads · D head size
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from medusa_core.checkpoints.files import require_rope_factors, whole_number
from medusa_core.drafters.eagle3 import FEATURES
from medusa_core.errors import MedusaError
from medusa_core.model.features import BEFORE_NORM

FEATURE_KEY = "eagle_aux_hidden_state_layer_ids"  # vLLM's name
EMBEDDING = "embed_tokens.weight"  # the target's, which some files repeat
ACTIVATION = "silu"
_NESTED = "eagle_config"  # SGLang, SpecForge and NVIDIA put settings of EAGLE-3 there
_LAYER_CONFIG = "transformer_layer_config"  # speculators puts the sizes of the layer there
_KIND, _OWN_KIND = "speculators_model_type", "eagle3"
# Keys of drafters that fill a block of masked places in one pass: DFlash, P-EAGLE and others like them.
_MASKS = ("dflash_config", "mask_token_id", "ptd_token_id", "pard_token")
_FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


@dataclass(frozen=True)
class DraftShape:
    """What the config of a draft model says; ``layers`` is None where it leaves the features to the rule."""

    hidden: int
    intermediate: int
    heads: int
    key_heads: int
    head_size: int
    vocabulary: int
    draft_vocabulary: int
    norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    context: int = 2048
    layers: tuple[int, ...] | None = None
    norm_before_residual: bool = False  # the normed features, not the features, are added behind attention
    norm_before_fc: bool = False  # one norm over the three hidden states together
    fc_norm: bool = False  # one norm for each of them
    norm_output: bool = False  # the next row reads the layer's output behind the last norm

    @classmethod
    def like(cls, model: Any, vocabulary: int) -> DraftShape:
        """A layer with the sizes of a model's own layers, by its config for text."""
        heads, rope = model.num_attention_heads, dict(getattr(model, "rope_parameters", None) or {})
        return cls(
            hidden=model.hidden_size,
            intermediate=model.intermediate_size,
            heads=heads,
            key_heads=getattr(model, "num_key_value_heads", None) or heads,
            head_size=getattr(model, "head_dim", None) or model.hidden_size // heads,
            vocabulary=vocabulary,
            draft_vocabulary=vocabulary,
            norm_eps=getattr(model, "rms_norm_eps", 1e-6),
            rope_theta=float(rope.get("rope_theta") or getattr(model, "rope_theta", None) or 10000.0),
            context=model.max_position_embeddings,
        )

    @classmethod
    def of(cls, config: dict[str, Any]) -> DraftShape:
        """The sizes from the contents of config.json, in the public layout or that of speculators.

        Raises MedusaError for a size that is missing or impossible, and for a layer of another kind.
        """
        _require_own_kind(config)
        require_rope_factors(config)
        config = _flat(config)
        hidden, heads = whole_number(config, "hidden_size"), whole_number(config, "num_attention_heads")
        layers = whole_number(config, "num_hidden_layers", 1)
        if layers != 1:
            raise MedusaError(f"num_hidden_layers is {layers}: EAGLE-3 drafts with one layer")
        if config.get("hidden_act", ACTIVATION) != ACTIVATION:
            raise MedusaError(f"hidden_act is {config['hidden_act']!r}: the draft layer has {ACTIVATION}")
        _require_plain_layer(config, hidden)
        rope = config.get("rope_parameters") or {}
        if not isinstance(rope, dict):
            raise MedusaError(f"rope_parameters is {rope!r}, not an object")
        vocabulary = whole_number(config, "vocab_size")
        return cls(
            hidden=hidden,
            intermediate=whole_number(config, "intermediate_size"),
            heads=heads,
            key_heads=whole_number(config, "num_key_value_heads", heads),
            head_size=whole_number(config, "head_dim", max(hidden // heads, 1)),
            vocabulary=vocabulary,
            draft_vocabulary=whole_number(config, "draft_vocab_size", vocabulary),
            norm_eps=_number(config, "rms_norm_eps", 1e-6),
            rope_theta=_number({**rope, **config}, "rope_theta", 10000.0),
            rope_scaling=_scaling(config.get("rope_scaling") or rope),
            context=whole_number(config, "max_position_embeddings", 2048),
            layers=_layers(config),
            **{name: _flag(config, name) for name in _FLAGS},
        )

    @property
    def maps_tokens(self) -> bool:
        """Whether the draft vocabulary is a part of the target's."""
        return self.draft_vocabulary != self.vocabulary

    @property
    def cache_row(self) -> int:
        """Numbers kept of each token of the text: its key, its value and its fused features."""
        return 2 * self.key_heads * self.head_size + self.hidden

    def config(self) -> dict[str, Any]:
        """The content of its config.json, in the public layout."""
        config: dict[str, Any] = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "num_hidden_layers": 1,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.key_heads,
            "head_dim": self.head_size,
            "hidden_act": ACTIVATION,
            "rms_norm_eps": self.norm_eps,
            "rope_theta": self.rope_theta,
            "rope_scaling": self.rope_scaling,
            "max_position_embeddings": self.context,
            "tie_word_embeddings": False,
            "vocab_size": self.vocabulary,
            "draft_vocab_size": self.draft_vocabulary,
        }
        config |= {name: True for name in _FLAGS if getattr(self, name)}
        return config if self.layers is None else config | {FEATURE_KEY: list(self.layers)}


def feature_layers(count: int) -> tuple[int, ...]:
    """Which of ``count`` layers' inputs are fused where a config does not say.

    The public rule, 2, n // 2 and n - 3, needs seven layers to name three places, and leaves out the top of a
    model that is hardly deeper. In a smaller one they lie above a third, two thirds and all of its layers.
    """
    return (2, count // 2, count - 3) if count >= 7 else (count // 3, 2 * count // 3, count)


def states_read(layers: tuple[int, ...], count: int) -> tuple[int, ...]:
    """``layers`` of a model of ``count`` as ``Features`` name their states.

    Number ``count`` is the output of the last layer, as in vLLM; transformers' last hidden state is normed.
    """
    return tuple(BEFORE_NORM if layer == count else layer for layer in layers)


def is_speculator(config: dict[str, Any]) -> bool:
    """Whether a config is that of a trained drafter in EAGLE-3's layout or in a related one.

    The latter are recognised so that the error can say why they are not read.
    """
    return any(name in config for name in ("draft_vocab_size", _KIND, _MASKS[0]))


def _require_own_kind(config: dict[str, Any]) -> None:
    """Raise MedusaError for another method's drafter, whose sizes would otherwise be reported as wrong."""
    kind = config.get(_KIND, _OWN_KIND)
    if kind != _OWN_KIND:
        raise MedusaError(f"{_KIND} is {kind!r}: of the drafters in this layout only {_OWN_KIND!r} is read")
    for name in _MASKS:
        if config.get(name) is not None:
            raise MedusaError(
                f"it has {name}, so it drafts a block of masked tokens in one pass, as DFlash and P-EAGLE "
                "do: here EAGLE-3's layer is read, which goes on from its own output"
            )


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """A config of speculators in the public layout; any other as it is."""
    layer = config.get(_LAYER_CONFIG)
    if layer is None:
        return config
    if not isinstance(layer, dict):
        raise MedusaError(f"{_LAYER_CONFIG} is {layer!r}, not an object")
    if config.get("norm_before_residual") is None:
        raise MedusaError(
            "norm_before_residual is missing, and programs that read this layout differ in what they take "
            "then: write true or false"
        )
    return layer | config


def _require_plain_layer(config: dict[str, Any], hidden: int) -> None:
    """Raise MedusaError for a layer that computes something else than the public one."""
    width = config.get("target_hidden_size")
    if width not in (None, hidden):
        raise MedusaError(
            f"target_hidden_size is {width}, hidden_size {hidden}: such a layer has an embedding of its own "
            "width, here it shares the model's"
        )
    for name in ("attention_bias", "mlp_bias"):
        if config.get(name):
            raise MedusaError(f"{name} is {config[name]!r}: the draft layer here has no biases")
    rope = config.get("rope_parameters")
    part = {**config, **(rope if isinstance(rope, dict) else {})}.get("partial_rotary_factor")
    if part not in (None, 1):
        raise MedusaError(f"partial_rotary_factor is {part!r}: the draft layer here rotates whole heads")
    for name in config.get("layer_types") or ():
        if name != "full_attention":
            raise MedusaError(f"layer_types has {name!r}: the draft layer here sees the whole text")
    if _nested(config).get("use_aux_hidden_state") is False:
        raise MedusaError(f"use_aux_hidden_state is false: EAGLE-3 reads {FEATURES} hidden states")


def _nested(config: dict[str, Any]) -> dict[str, Any]:
    nested = config.get(_NESTED)
    return nested if isinstance(nested, dict) else {}


def _flag(config: dict[str, Any], name: str) -> bool:
    value = _nested(config).get(name, config.get(name))
    if value is not None and type(value) is not bool:
        raise MedusaError(f"{name} is {value!r}: it must be true or false")
    return bool(value)


def _layers(config: dict[str, Any]) -> tuple[int, ...] | None:
    """The layers whose inputs are fused; an empty list leaves them to the rule, as in vLLM."""
    # Nested numbers are those of layers whose outputs are read: SGLang adds one to them, too.
    layers, shift = config.get(FEATURE_KEY), 0
    if not layers:
        layers, shift = _nested(config).get(FEATURE_KEY), 1
    if not layers:
        return None
    if not isinstance(layers, list) or len(layers) != FEATURES or not all(type(one) is int for one in layers):
        raise MedusaError(f"{FEATURE_KEY} is {layers!r}: name {FEATURES} layers by their numbers")
    return tuple(one + shift for one in layers)


def _scaling(rope: Any) -> dict[str, Any] | None:
    """How rotations are scaled, None where they are not."""
    if not isinstance(rope, dict):
        return None
    kind = rope.get("rope_type") or rope.get("type") or "default"
    # Older versions of transformers called the kind "type".
    return None if kind == "default" else {**rope, "rope_type": kind}


def _number(config: dict[str, Any], name: str, default: float) -> float:
    value = config.get(name)
    value = default if value is None else value
    if type(value) not in (int, float) or not 0 < value <= sys.float_info.max:
        raise MedusaError(f"{name} is {value!r}: it must be a number above 0")
    return float(value)
