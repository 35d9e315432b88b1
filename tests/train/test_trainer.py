"""The trainer: token-weighted accumulation, skipped steps, validation, stopping."""

from __future__ import annotations

import math

import numpy as np
import pytest

import entrenar as en
from entrenar.data import TokenBatches, Windows
from entrenar.models import GPT2, GPT2Config
from entrenar.nn import Module, Parameter
from entrenar.optim import SGD, AdamW, Schedule
from entrenar.train import Callback, EarlyStopping, TrainConfig, Trainer, TrainingFailed

TOKENS = np.random.default_rng(0).integers(0, 13, 600)


def trainer(dropout=0.0, config=None, optimizer=AdamW, lr=1e-2, **options):
    en.manual_seed(1)
    model = GPT2(
        GPT2Config(
            vocab_size=13,
            n_positions=8,
            n_embd=12,
            n_layer=1,
            n_head=2,
            embd_pdrop=dropout,
            resid_pdrop=dropout,
            attn_pdrop=dropout,
        )
    )
    return Trainer(
        model,
        optimizer(model.named_parameters(), lr=lr),
        config or TrainConfig(max_steps=4),
        TokenBatches(TOKENS, 4, 8, seed=2),
        **options,
    )


class Table(Module):
    """One logit per token of a vocabulary of 2; its loss is what the test says."""

    def __init__(self, losses):
        self.w, self.losses = Parameter(np.zeros(())), losses

    def loss(self, ids, targets, reduction):
        assert reduction == "sum"
        return sum(
            (
                self.losses[int(i)] + self.w * int(i)
                for i, t in zip(ids.ravel(), targets.ravel(), strict=True)
                if t != -100
            ),
            start=self.w * 0.0,
        )


def test_window_is_weighted_by_tokens():
    """Case 95: micro-batches with token losses [4] and [1, 1, 1] have the mean 1.75, not 2.5."""
    model = Table({4: 4.0, 1: 1.0})
    seen = {}
    model.w.register_hook(lambda g: seen.__setitem__("total", seen.get("total", 0) + g.item()))
    t = Trainer(model, SGD(model.parameters(), lr=1.0), TrainConfig(max_steps=1, max_grad_norm=0.0))
    first = (np.array([[4, 1, 1]]), np.array([[0, -100, -100]]))
    second = (np.array([[1, 1, 1]]), np.array([[0, 0, 0]]))
    record = t.train_step([first, second])
    assert record.loss == pytest.approx(1.75, rel=1e-12) and record.tokens == 4
    assert model.w.item() == pytest.approx(-7 / 4, rel=1e-12)


@pytest.mark.parametrize("split", [1, 2, 4])
def test_gradient_and_loss_do_not_depend_on_the_split(split):
    ids, targets = (TOKENS[:32].reshape(4, 8), TOKENS[1:33].reshape(4, 8).copy())
    targets[0, 2:] = -100
    whole, parts = trainer(lr=0.1, optimizer=SGD), trainer(lr=0.1, optimizer=SGD)
    for t in (whole, parts):
        t.model.to("float64")
    a = whole.train_step([(ids, targets)])
    b = parts.train_step(list(zip(np.split(ids, split), np.split(targets, split), strict=True)))
    assert b.loss == pytest.approx(a.loss, rel=1e-12) and b.grad_norm == pytest.approx(a.grad_norm, rel=1e-10)
    for p, q in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        np.testing.assert_allclose(q.data, p.data, rtol=1e-12, atol=1e-12)


def test_a_window_of_ignored_targets_changes_nothing():
    t = trainer()
    before = [p.data.copy() for p in t.model.parameters()]
    ids = TOKENS[:8].reshape(1, 8)
    record = t.train_step([(ids, np.full_like(ids, -100))])
    assert (record.loss, record.tokens, record.skipped) == (0.0, 0, False)
    for p, old in zip(t.model.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.data, old)


def test_a_gradient_that_is_not_finite_is_skipped_and_counted():
    t = trainer()
    t.model.ln_f.bias.write(np.nan)
    before = t.model.wte.weight.data.copy()
    record = t.train_step([next(t.batches)])
    assert record.skipped and not math.isfinite(record.loss) and t.metrics.skipped == 1
    np.testing.assert_array_equal(t.model.wte.weight.data, before)
    assert not t.optimizer.state


def test_a_run_whose_gradients_stay_not_finite_fails():
    t = trainer(config=TrainConfig(max_steps=50, max_skipped=3))
    t.model.ln_f.bias.write(np.nan)
    with pytest.raises(
        TrainingFailed, match=r"3 updates in a row were skipped at step 3: loss nan, the gradient of wte\.weight"
    ):
        t.fit()


def test_clipping_limits_the_step_and_reports_the_norm_before():
    free = trainer(optimizer=SGD, lr=1.0, config=TrainConfig(4, max_grad_norm=0.0))
    tight = trainer(optimizer=SGD, lr=1.0, config=TrainConfig(4, max_grad_norm=0.01))
    start = [p.data.copy() for p in tight.model.parameters()]
    batch = next(free.batches)
    norms = [t.train_step([batch]).grad_norm for t in (free, tight)]
    assert norms[0] == norms[1] > 0.01
    moved = math.sqrt(
        sum(
            float(((p.data - s).astype(float) ** 2).sum()) for p, s in zip(tight.model.parameters(), start, strict=True)
        )
    )
    assert moved == pytest.approx(0.01, rel=1e-4)


def test_learning_rate_of_each_update():
    t = trainer(schedule=Schedule("linear", 0.1, decay_steps=4, warmup_steps=4), config=TrainConfig(max_steps=6))
    t.fit()
    assert t.metrics.learning_rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.075])


def test_fit_learns_and_validates():
    tokens = np.tile(np.arange(13), 60)
    t = trainer(config=TrainConfig(max_steps=60, eval_every=20), val_batches=Windows(tokens, 4, 8))
    t.batches = TokenBatches(tokens, 4, 8)
    result = t.fit()
    assert [s for s, _ in t.metrics.val_losses] == [20, 40, 60]
    assert result.val_loss < 0.5 < t.metrics.losses[0] and result.best_val_loss == t.metrics.best
    assert result.step == 60 and result.stopped is None


def test_validation_is_over_tokens_and_without_dropout():
    t = trainer(dropout=0.5)
    batches = list(Windows(TOKENS[:90], 4, 8))
    assert t.validate(batches) == t.validate(batches) and t.model.training
    sums = [t.model.eval().loss(i, y, reduction="sum").item() for i, y in batches]
    assert t.validate(batches) == pytest.approx(sum(sums) / sum(y.size for _, y in batches), rel=1e-12)
    with pytest.raises(ValueError, match="no validation token"):
        trainer().validate()


def test_callbacks_may_stop_a_run():
    class Watch(Callback):
        def __init__(self):
            self.seen = []

        def on_step(self, trainer, record):
            self.seen.append(record.step)
            return "stop" if record.step == 3 else None

    watch = Watch()
    result = trainer(config=TrainConfig(max_steps=50), callbacks=[watch]).fit()
    assert watch.seen == [1, 2, 3] and result.stopped == "stopped by Watch at step 3"


def test_early_stopping_counts_validations_without_progress():
    t = trainer()
    stop = EarlyStopping(patience=2, min_delta=0.1)
    answers = []
    for step, loss in enumerate([3.0, 2.95, 2.5, 2.49, 2.6]):
        t.metrics.record_validation(step, loss)
        answers.append(stop.on_validation(t, loss))
    assert answers == [None, None, None, None, "stop"]


def test_metrics():
    m = trainer().metrics
    for step, loss in enumerate([4.0, 2.0, 3.0], 1):
        m.record(step, loss, 0.1)
    assert m.avg(2) == 2.5 and m.avg(10) == 3.0 and m.is_improving()
    for step, loss in ((1, 3.0), (2, 2.0), (3, 2.5)):
        m.record_validation(step, loss)
    assert (m.best, m.best_step) == (2.0, 2) and not m.is_improving() and m.is_improving(patience=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_steps": 0}, "max_steps must be an integer of at least 1"),
        ({"max_steps": 2, "keep": 0}, "keep"),
        ({"max_steps": 2, "max_grad_norm": -1.0}, "max_grad_norm"),
        ({"max_steps": 2, "accumulation": 1.5}, "accumulation"),
    ],
)
def test_bad_configurations(options, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**options)
