"""The two facts about AdamW that implementations disagree on, and SGD by hand."""

from __future__ import annotations

import numpy as np
import pytest

import entrenar as en
from entrenar.optim import SGD, Adam, AdamW, decay_groups, set_lr


def stepped(make, value, gradient, **options):
    p = en.tensor(np.array([value]), requires_grad=True)
    p.grad = en.tensor(np.array([gradient]))
    make([p], **options).step()
    return p.item()


def test_decay_is_first_and_on_the_old_weights():
    assert stepped(AdamW, 1.0, 1.0, lr=0.1, weight_decay=0.1) == pytest.approx(0.89, abs=1e-8)


def test_eps_stands_outside_the_corrected_root():
    moved = -stepped(AdamW, 0.0, 1e-8, lr=1.0, eps=1e-8, weight_decay=0.0)
    assert moved == pytest.approx(0.5, rel=1e-9)


def test_adam_couples_its_decay():
    assert stepped(Adam, 1.0, 0.0, lr=0.1, weight_decay=0.5) == pytest.approx(0.9, abs=1e-7)


def test_sgd_momentum_and_nesterov():
    for nesterov, expected in ((False, [-0.1, -0.29, -0.561]), (True, [-0.19, -0.461, -0.8049])):
        p = en.tensor(np.array([0.0]), requires_grad=True)
        opt = SGD([p], lr=0.1, momentum=0.9, nesterov=nesterov)
        for value in expected:  # v = 1, 1.9, 2.71
            p.grad = en.tensor(np.array([1.0]))
            opt.step()
            assert p.item() == pytest.approx(value, rel=1e-12)
    with pytest.raises(ValueError, match="needs a momentum"):
        SGD([p], nesterov=True)


def test_set_lr_keeps_the_ratio_of_groups():
    a, b = (en.tensor([1.0], requires_grad=True) for _ in range(2))
    opt = AdamW([{"params": a}, {"params": b, "lr": 0.4}], lr=0.1)
    set_lr(opt, 0.05, peak=0.1)
    assert [g["lr"] for g in opt.param_groups] == [0.05, 0.2]


def test_decay_groups_spare_vectors():
    net = en.nn.Linear(2, 3)
    groups = decay_groups(net.named_parameters(), 0.1)
    assert [(g["params"][0][0], g["weight_decay"]) for g in groups] == [("weight", 0.1), ("bias", 0.0)]
    assert AdamW(groups).param_groups[0]["names"] == ["weight"]
