"""Layers, a GPT-2 and memory exchange with PyTorch."""

import numpy as np
import pytest
import torch

import entrenar as en

RNG = np.random.default_rng(0)
LAYERS = [
    (lambda: en.nn.Linear(5, 3), lambda: torch.nn.Linear(5, 3), (2, 4, 5)),
    (lambda: en.nn.LayerNorm(5), lambda: torch.nn.LayerNorm(5), (2, 4, 5)),
    (lambda: en.nn.Conv2d(3, 4, 3, padding=1), lambda: torch.nn.Conv2d(3, 4, 3, padding=1), (2, 3, 6, 5)),
]


@pytest.mark.parametrize(("ours", "theirs", "shape"), LAYERS)
def test_a_layer_takes_pytorchs_weights_and_gives_the_same(ours, theirs, shape):
    mine, other = ours(), theirs()
    mine.load_state_dict({name: value.numpy() for name, value in other.state_dict().items()})
    x = RNG.normal(size=shape).astype(np.float32)
    a, b = en.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    y, z = mine(a), other(b)
    (y * y).sum().backward()
    (z * z).sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-5)
    for (name, p), q in zip(mine.named_parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-4, err_msg=name)


def gpt2(w, ids, config):
    """GPT-2 (Radford et al. 2019) written out in PyTorch from a state dict."""
    F = torch.nn.functional
    width, heads = config.n_embd, config.n_head
    norm = lambda x, name: F.layer_norm(x, (width,), w[f"{name}.weight"], w[f"{name}.bias"], config.layer_norm_epsilon)
    project = lambda x, name: x @ w[f"{name}.weight"] + w[f"{name}.bias"]
    b, t = ids.shape
    x = w["wte.weight"][ids] + w["wpe.weight"][:t]
    for i in range(config.n_layer):
        q, k, v = project(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").split(width, -1)
        q, k, v = (s.view(b, t, heads, -1).transpose(1, 2) for s in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, width)
        x = x + project(a, f"h.{i}.attn.c_proj")
        hidden = F.gelu(project(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate="tanh")
        x = x + project(hidden, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def test_gpt2_logits_and_gradients():
    config = en.models.GPT2Config(vocab_size=23, n_positions=9, n_embd=16, n_layer=2, n_head=4)
    model = en.models.GPT2(config).eval()
    for p in model.parameters():
        p.data = RNG.normal(size=p.shape) * 0.2
    weights = {
        name.removeprefix("transformer."): torch.tensor(p.data, requires_grad=True)
        for name, p in model.named_parameters()
    }
    ids = RNG.integers(0, 23, (2, 9))
    logits = gpt2(weights, torch.tensor(ids), config)
    np.testing.assert_allclose(model(ids).data, logits.detach().numpy(), rtol=1e-10, atol=1e-10)
    targets = RNG.integers(0, 23, (2, 9))
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(targets).flatten()).backward()
    model.loss(ids, targets).backward()
    for name, p in model.named_parameters():
        expected = weights[name.removeprefix("transformer.")].grad.numpy()
        np.testing.assert_allclose(p.grad.data, expected, rtol=1e-8, atol=1e-11, err_msg=name)


def test_memory_is_shared_both_ways():
    ours = en.tensor(np.arange(6.0).reshape(2, 3))
    theirs = torch.from_dlpack(ours)
    theirs[0, 0] = 7.0
    assert ours.data[0, 0] == 7
    back = en.from_dlpack(torch.arange(4.0))
    assert back.tolist() == [0, 1, 2, 3]
    shared = torch.zeros(3)
    view = en.from_dlpack(shared)
    shared += 1
    assert view.tolist() == [1, 1, 1]
