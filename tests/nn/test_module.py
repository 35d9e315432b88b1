"""Module: the tree read off the attributes, strict state dicts, modes, hooks."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import entrenar as en
from entrenar import nn


class Net(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(3, 4)
        self.scale = nn.Parameter(np.ones(4, np.float32))
        self.rest = nn.ModuleList([nn.Linear(4, 5, bias=False), nn.Dropout(0.5)])
        self.register_buffer("seen", np.zeros(2, np.float32))
        self.register_buffer("temporary", np.zeros(1), persistent=False)

    def forward(self, x):
        for layer in self.rest:
            x = layer(self.first(x) * self.scale if layer is self.rest[0] else x)
        return x


def test_names_own_parameters_first_then_children_in_order():
    assert [n for n, _ in Net().named_parameters()] == ["scale", "first.weight", "first.bias", "rest.0.weight"]
    assert [n for n, _ in Net().named_modules()] == ["", "first", "rest", "rest.0", "rest.1"]
    assert list(Net().state_dict()) == ["scale", "seen", "first.weight", "first.bias", "rest.0.weight"]
    assert nn.count_parameters(Net()) == 4 + 12 + 4 + 20


def test_shared_parameter_is_trained_once_and_saved_under_every_name():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    assert [n for n, _ in net.named_parameters()] == ["0.weight", "0.bias", "1.bias"]
    assert "1.weight" in net.state_dict()


def test_state_dict_round_trip_moves_versions():
    a, b = Net(), Net()
    before = b.first.weight.version
    assert b.load_state_dict(a.state_dict()) == ([], [])
    assert b.first.weight.version == before + 1
    for name, value in a.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), b.state_dict()[name].numpy())


def test_every_fault_of_a_state_dict_is_listed_and_nothing_loaded():
    net = Net()
    old = net.first.bias.data.copy()
    state = {n: v.numpy() + 1 for n, v in net.state_dict().items()}
    del state["scale"], state["seen"]
    state["rest.0.weight"] = np.zeros((5, 5), np.float32)
    state["extra"] = np.zeros(1)
    with pytest.raises(nn.StateDictError) as error:
        net.load_state_dict(state)
    for part in ("missing (2): scale, seen", "unexpected (1): extra", "rest.0.weight: shape (5, 5), expected (5, 4)"):
        assert part in str(error.value)
    np.testing.assert_array_equal(net.first.bias.data, old)
    with pytest.raises(nn.StateDictError, match=r"rest\.0\.weight"):  # a wrong shape never loads
        net.load_state_dict(state, strict=False)
    del state["rest.0.weight"]
    report = net.load_state_dict(state, strict=False)
    assert report.unexpected_keys == ["extra"] and "scale" in report.missing_keys
    np.testing.assert_array_equal(net.first.bias.data, old + 1)


def test_integers_do_not_become_weights():
    net = nn.Linear(2, 2)
    with pytest.raises(nn.StateDictError, match="weight: dtype int64, expected float32"):
        net.load_state_dict({"weight": np.zeros((2, 2), np.int64), "bias": np.zeros(2)})


def test_assignments_that_would_lose_parameters_are_errors():
    net = Net()
    with pytest.raises(TypeError, match="scale is a parameter, got Tensor"):
        net.scale = en.zeros(4)
    with pytest.raises(TypeError, match=r"use nn\.ModuleList"):
        net.layers = [nn.Linear(2, 2)]
    with pytest.raises(TypeError, match="is a buffer"):
        net.seen = 3
    with pytest.raises(ValueError, match="already has an attribute 'first'"):
        net.register_buffer("first", np.zeros(1))
    net.scale = None
    assert "scale" not in net.state_dict()


def test_train_eval_apply_zero_grad():
    net = Net()
    x = en.ones(2, 3)
    en.sum(net.eval()(x)).backward()
    assert not net.rest[1].training and net.first.weight.grad is not None
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    kinds = []
    net.train().apply(lambda m: kinds.append(type(m).__name__))
    assert kinds == ["Linear", "Linear", "Dropout", "ModuleList", "Net"] and net.rest[1].training


def test_to_converts_floats_buffers_and_gradients():
    net = Net()
    en.sum(net.eval()(en.ones(2, 3))).backward()
    net.register_buffer("count", np.zeros(1, np.int64))
    net.to("float64")
    assert net.first.weight.dtype == np.float64 == net.first.weight.grad.dtype == net.seen.dtype
    assert net.count.dtype == np.int64
    assert net.to(dtype="bfloat16").scale.dtype == en.bfloat16
    with pytest.raises(TypeError, match="float dtype, got int64"):
        net.to(np.int64)


def test_hooks_replace_and_come_off():
    layer = nn.Identity()
    off_pre = layer.register_forward_pre_hook(lambda m, args: args[0] + 1)
    off = layer.register_forward_hook(lambda m, args, y: y * 10)
    assert layer(en.tensor(1.0)).item() == 20
    off_pre()
    assert layer(en.tensor(1.0)).item() == 10
    off()
    assert layer(en.tensor(1.0)).item() == 1


def test_nodes_are_recorded_under_the_module_path():
    loss = en.sum(Net()(en.ones(2, 3)))
    scopes = {node.scope for node in _nodes(loss)}
    assert {"Net/first", "Net/rest.0"} <= {"/".join(s.split("/")[:2]) for s in scopes}


def _nodes(t):
    from entrenar.autograd.tape import reachable

    return reachable([t.node])


def test_deepcopy_is_independent_and_pickle_is_refused():
    net = Net()
    net.tied = net.scale
    twin = copy.deepcopy(net)
    assert twin.tied is twin.scale and twin.scale is not net.scale
    twin.scale.write(7.0)
    assert net.scale.data[0] == 1
    with pytest.raises(TypeError, match="never pickles"):
        pickle.dumps(net)


def test_containers():
    seq = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(seq) == 3 and isinstance(seq[-1], nn.Linear) and len(seq[:2]) == 2
    assert seq(en.ones(4, 2)).shape == (4, 1)
    seq[1] = nn.Tanh()
    assert "(1): Tanh()" in repr(seq)
    with pytest.raises(TypeError, match="holds Modules, got int"):
        nn.ModuleList([3])


def test_initial_values_follow_pytorch_ranges_and_the_seed():
    en.manual_seed(3)
    a = nn.Linear(100, 50)
    en.manual_seed(3)
    b = nn.Linear(100, 50)
    np.testing.assert_array_equal(a.weight.data, b.weight.data)
    assert 0.095 < abs(a.weight.data).max() <= 0.1 and abs(a.bias.data).max() <= 0.1
    e = nn.Embedding(200, 50)
    assert abs(e.weight.data.std() - 1) < 0.05 and e.weight.dtype == np.float32
    with pytest.raises(ValueError, match="positive integers"):
        nn.Linear(0, 3)
