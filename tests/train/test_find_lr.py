"""The learning rate range test: its rates, its suggestion, where it ends, and that it leaves no trace."""

import numpy as np
import pytest

import entrenar as en
from entrenar.nn import Module, Parameter
from entrenar.optim import SGD, AdamW
from entrenar.train import RunFolder, TrainConfig, Trainer, find_lr, state_hash


class Bowl(Module):
    """Its loss per token is x**2 / 2 + 1, whatever the data; plain descent diverges above a rate of 2."""

    def __init__(self):
        super().__init__()
        self.x = Parameter(np.array(3.0))

    def loss(self, ids, targets, reduction):
        noise = en.default_generator.uniform((), np.float64)
        return (self.x * self.x * 0.5 + 1.0 + 0.0 * noise) * float(ids.size)


class Counted:
    """Batches that know how many were taken."""

    def __init__(self):
        self.taken = 0

    def __iter__(self):
        while True:
            self.taken += 1
            yield np.zeros((1, 2), int), np.zeros((1, 2), int)

    def state_dict(self):
        return {"taken": self.taken}

    def load_state_dict(self, state):
        self.taken = state["taken"]


def trainer(optimizer=SGD, model=None, **options):
    model = model or Bowl()
    return Trainer(
        model, optimizer(model.named_parameters(), lr=0.3), TrainConfig(10, 2, max_grad_norm=0.0), Counted(), **options
    )


def test_rates_grow_exponentially_and_the_steepest_fall_is_suggested():
    t = trainer()
    suggested, lrs, losses = sweep = find_lr(t, 1e-3, 100.0, 60, smoothing=0.0)
    np.testing.assert_allclose(lrs, np.geomspace(1e-3, 100, 60)[: len(lrs)])
    assert sweep.suggested == suggested
    x, expected = 3.0, []
    for lr in lrs:
        expected.append(x * x / 2 + 1)
        x -= lr * x
    np.testing.assert_allclose(losses, expected)
    slopes = np.gradient(losses, np.log(lrs))
    assert suggested == lrs[slopes.argmin()] and 0.02 < suggested < 1
    assert len(lrs) < 60 and losses[-1] > 4 * min(losses) >= losses[-2]  # it diverged, and the sweep ended


def test_nothing_is_left_of_it(tmp_path):
    t = trainer(AdamW, folder=RunFolder(tmp_path / "run"))
    stream = iter(t.batches)
    t.train_step([next(stream), next(stream)])
    t.model.eval()
    before, metrics, random = state_hash(t), t.metrics, en.default_generator.state()
    find_lr(t, steps=20)
    assert state_hash(t) == before and t.metrics is metrics and len(metrics.losses) == 1
    assert en.default_generator.state() == random and t.schedule is None and t.step == 1
    assert not t.model.training and t.model.x.grad is None and t.batches.taken == 2
    assert not (tmp_path / "run").exists()


def test_groups_keep_their_ratio():
    model = Bowl()
    model.y = Parameter(np.array(1.0))
    seen = []
    t = trainer(model=model)
    t.optimizer = SGD([{"params": [("x", model.x)]}, {"params": [("y", model.y)], "lr": 0.03}], lr=0.3)
    step = t.train_step
    t.train_step = lambda window: (step(window), seen.append([g["lr"] for g in t.optimizer.param_groups]))[0]
    find_lr(t, 1e-3, 1e-1, 10)
    np.testing.assert_allclose([a / b for a, b in seen], 10)


def test_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    find_lr(trainer(), steps=20).plot(tmp_path / "lr.svg", tmp_path / "lr.png")
    assert "<svg" in (tmp_path / "lr.svg").read_text() and (tmp_path / "lr.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(min_lr=0.0), "0 < min_lr < max_lr"),
        (dict(min_lr=1.0, max_lr=0.1), "0 < min_lr < max_lr"),
        (dict(max_lr=float("nan")), "0 < min_lr < max_lr"),
        (dict(steps=9), "at least 10"),
        (dict(steps=20.0), "steps"),
        (dict(smoothing=1.0), r"\[0, 1\)"),
        (dict(min_lr=50.0, max_lr=60.0), "fails after 2 steps"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        find_lr(trainer(), **options)
    with pytest.raises(ValueError, match="no batches"):
        find_lr(Trainer(Bowl(), SGD(Bowl().named_parameters(), lr=0.1), TrainConfig(1)))
