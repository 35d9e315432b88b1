"""Gradient checkpointing: the same bits from less memory, in every architecture."""

import numpy as np
import pytest

import entrenar as en
from entrenar.models import MODELS, build
from entrenar.train.summary import kept_bytes

WIDE = dict(vocab_size=32, hidden_size=32, intermediate_size=96, num_hidden_layers=12, num_attention_heads=4)
OPTIONS = {
    "gpt2": dict(vocab_size=32, n_positions=32, n_embd=32, n_layer=12, n_head=4),  # with its dropout of 0.1
    "bert": WIDE,
}
IDS, TARGETS = np.random.default_rng(0).integers(1, 32, (2, 4, 32))


@pytest.fixture(params=sorted(MODELS))
def model(request):
    en.manual_seed(0)
    return build(request.param, OPTIONS.get(request.param, {**WIDE, "num_key_value_heads": 2})).train()


def loss_of(model):
    en.manual_seed(5)
    if hasattr(model, "loss"):
        return model.loss(IDS, TARGETS)
    return (model(IDS) ** 2).mean()


def gradients(model):
    model.zero_grad()
    loss = loss_of(model)
    after = en.default_generator.state()
    loss.backward()
    assert en.default_generator.state() == after
    return loss.item(), {name: p.grad.numpy().copy() for name, p in model.named_parameters() if p.grad is not None}


def test_the_same_bits_from_a_third_of_the_activations(model):
    plain, expected = gradients(model)
    kept = kept_bytes(loss_of(model), model)
    model.gradient_checkpointing_enable()
    assert model.is_gradient_checkpointing
    loss, found = gradients(model)
    assert loss == plain and found.keys() == expected.keys()
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    assert kept_bytes(loss_of(model), model) < kept / 3
    model.gradient_checkpointing_disable()
    assert not model.is_gradient_checkpointing and kept_bytes(loss_of(model), model) == kept


def test_generation_and_hooks_are_as_before(model):
    model.gradient_checkpointing_enable()
    layers = next(m for m in model.modules() if type(m).__name__ == "Layers")
    seen = []
    layers[3].register_forward_hook(lambda module, args, y: seen.append(y.shape))
    loss_of(model).backward()
    assert seen == [(4, 32, 32)] * 2  # forward, and again in backward
    if hasattr(model, "generate"):
        text = model.generate([1, 2, 3], 4, temperature=0)
        model.gradient_checkpointing_disable()
        np.testing.assert_array_equal(model.generate([1, 2, 3], 4, temperature=0), text)
