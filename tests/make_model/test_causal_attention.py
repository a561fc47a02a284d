"""Attention in blocks of queries, against torch's own."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tiny import build_model, tiny_config
from torch.nn import functional as F

from tools.make_model.causal_attention import BLOCK, _Backward, causal_attention, register


@pytest.mark.sample
@pytest.mark.parametrize("tokens", [1, 7, BLOCK, BLOCK + 1, 2 * BLOCK + 5])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (3, 1)])
def test_results_and_gradients_are_those_of_torch(tokens, heads, kv_heads):
    torch.manual_seed(tokens)
    sizes = (heads, kv_heads, kv_heads)
    inputs = [torch.randn(2, n, tokens, 8, dtype=torch.float64, requires_grad=True) for n in sizes]
    ours = causal_attention(*inputs, 0.3)
    theirs = F.scaled_dot_product_attention(*inputs, is_causal=True, enable_gqa=True, scale=0.3)
    torch.testing.assert_close(ours, theirs)
    grad = torch.randn_like(ours)
    for ours_of, theirs_of in zip(
        torch.autograd.grad(ours, inputs, grad), torch.autograd.grad(theirs, inputs, grad), strict=True
    ):
        torch.testing.assert_close(ours_of, theirs_of, rtol=1e-5, atol=1e-5)  # sums of keys are float32


def test_a_model_trains_with_it_as_with_torchs_own():
    model = build_model(tiny_config()).train().requires_grad_(True)
    tokens = torch.randint(0, model.config.vocab_size, (2, 40))
    losses, grads = [], []
    for name in ("sdpa", register()):
        model.set_attn_implementation(name)
        loss = model(tokens, labels=tokens).loss
        model.zero_grad()
        loss.backward()
        losses.append(loss.detach())
        grads.append(model.model.layers[0].self_attn.k_proj.weight.grad.clone())
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(grads[0], grads[1])


def test_bfloat16_under_autocast_stays_close():
    model = build_model(tiny_config()).train().requires_grad_(True)
    tokens = torch.randint(0, model.config.vocab_size, (2, 40))
    exact = model(tokens).logits
    model.set_attn_implementation(register())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = model(tokens).logits
    assert (rounded - exact).abs().max() < 0.05 * exact.abs().max()


def test_threads_share_the_backward_pass():
    sizes = ((2, 6, 2 * BLOCK + 5, 8), (2, 2, 2 * BLOCK + 5, 8), (2, 2, 2 * BLOCK + 5, 8))
    inputs = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]
    result = causal_attention(*inputs, 0.3)
    grad = torch.randn_like(result)
    threads, grads = torch.get_num_threads(), []
    for count in (1, 3):
        torch.set_num_threads(count)
        try:
            grads.append(torch.autograd.grad(result, inputs, grad, retain_graph=True))
            assert torch.get_num_threads() == count
            with ThreadPoolExecutor(1) as later:
                assert later.submit(torch.get_num_threads).result() == count
        finally:
            torch.set_num_threads(threads)
    for alone, shared in zip(*grads, strict=True):
        torch.testing.assert_close(alone, shared, rtol=1e-5, atol=1e-5)


def test_no_further_gradient_is_recorded_in_the_threads(monkeypatch):
    recorded = []
    add = _Backward.add

    def watched(self, block, of_keys, of_values):
        add(self, block, of_keys, of_values)
        recorded.append((torch.is_grad_enabled(), of_keys.requires_grad, self.of_queries.requires_grad))

    monkeypatch.setattr(_Backward, "add", watched)
    inputs = [torch.randn(1, n, 3 * BLOCK, 8, requires_grad=True) for n in (4, 2, 2)]
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        causal_attention(*inputs, 0.3).sum().backward()
    finally:
        torch.set_num_threads(threads)
    assert set(recorded) == {(False, False, False)}
