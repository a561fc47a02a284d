"""Tiny random TokenSwift heads, and drafting by them slowly and obviously."""

from __future__ import annotations

from dataclasses import replace

import tiny
import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from medusa_core.drafters.tokenswift.draft import TokenSwiftDraft
from medusa_core.drafters.tokenswift.heads import TokenSwiftHeads
from medusa_core.engine import Engine

HEADS = 3


def random_tokenswift(model: PreTrainedModel, count: int = HEADS, seed: int = 0) -> TokenSwiftHeads:
    """Heads with random weights, norms included."""
    lm_head, norm = model.get_output_embeddings().weight, model.model.norm.weight
    heads = TokenSwiftHeads.fresh(lm_head, norm, count, model.config.rms_norm_eps)
    return tiny.randomised(heads, seed)


def with_tokenswift(engine: Engine) -> Engine:
    """The engine with such heads in addition to its other drafters."""
    draft = TokenSwiftDraft(random_tokenswift(engine.target.model))
    return replace(engine, drafts={**engine.drafts, "tokenswift": draft})


@torch.no_grad()
def hidden_before_norm(model: PreTrainedModel, tokens: torch.Tensor) -> torch.Tensor:
    """[B, T, d]: the output of the last layer, taken from the layer itself."""
    kept = []
    hook = model.model.layers[-1].register_forward_hook(lambda _, __, output: kept.append(output))
    model(tokens, use_cache=False)
    hook.remove()
    return kept[0]


@torch.no_grad()
def slow_guesses(heads: TokenSwiftHeads, hidden: torch.Tensor, model: PreTrainedModel) -> list[torch.Tensor]:
    """Logits [V] of the model and of one head after the other, from a hidden state [d]."""

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return weight * x / (x.pow(2).mean() + model.config.rms_norm_eps).sqrt()

    lm_head = model.get_output_embeddings().weight
    found = [lm_head @ norm(hidden, model.model.norm.weight)]
    for head in range(heads.count):
        hidden = hidden + heads.linear[head] @ norm(hidden, heads.before[head])
        found.append(lm_head @ norm(hidden, heads.after[head]))
    return found


class SlowPart:
    """The rows that a draft sees, chosen and read in every step from the whole text, by transformers."""

    def __init__(self, model: PreTrainedModel, budget: int, sinks: int) -> None:
        self.model, self.budget, self.sinks = model, budget, sinks
        self.selected = 0  # rows of the text when rows were last chosen
        self.ranked: list[list[list[int]]] = []  # for each layer and key-value head

    @torch.no_grad()
    def hidden(self, text: list[int], root: int) -> torch.Tensor:
        """The input of the final norm at ``root`` after ``text``: [d]."""
        whole = DynamicCache()
        states = self.model(torch.tensor([text]), cache=whole, output_hidden_states=True)
        length = len(text)
        if length > self.budget and (not self.selected or length - self.selected > self.budget - self.sinks):
            self.selected = length
            self.ranked = [self._best(layer, states, whole) for layer in range(len(whole.layers))]
        part = DynamicCache()
        for number, layer in enumerate(whole.layers):
            rows = self._rows(number, length, layer.keys.shape[1])[None, :, :, None]
            index = rows.expand(1, -1, -1, layer.keys.shape[3])
            part.update(layer.keys.gather(2, index), layer.values.gather(2, index), number)
        kept: list[torch.Tensor] = []
        hook = self.model.model.layers[-1].register_forward_hook(lambda _, __, out: kept.append(out))
        place = torch.tensor([[length]])
        self.model(torch.tensor([[root]]), position_ids=place, cache=part)
        hook.remove()
        return kept[0][0, -1]

    def _rows(self, layer: int, length: int, heads: int) -> torch.Tensor:
        if length <= self.budget:
            return torch.arange(length).expand(heads, -1)
        new = length - self.selected
        rows = [[*best[: self.budget - new], *range(self.selected, length)] for best in self.ranked[layer]]
        return torch.tensor(rows)

    def _best(self, number: int, states: object, whole: DynamicCache) -> list[list[int]]:
        layer, keys = self.model.model.layers[number], whole.layers[number].keys[0]
        normed = layer.input_layernorm(states.hidden_states[number][:, -1:])
        query = layer.self_attn.q_proj(normed).view(1, 1, -1, keys.shape[-1]).transpose(1, 2)
        angles = self.model.model.rotary_emb(normed, torch.tensor([[keys.shape[1] - 1]]))
        query = apply_rotary_pos_emb(query, query, *angles)[0][0, :, 0]
        group = len(query) // len(keys)
        found = []
        for head, rows in enumerate(keys):
            scores = (rows @ query[head * group : (head + 1) * group].T).sum(dim=1).tolist()
            others = sorted(range(self.sinks, len(scores)), key=lambda row: -scores[row])
            found.append([*range(self.sinks), *others][: self.budget])
        return found
