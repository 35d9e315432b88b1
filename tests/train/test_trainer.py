"""The trainer: token-weighted accumulation, skipped steps, validation, stopping."""

from __future__ import annotations

import math

import numpy as np
import pytest

import entrenar as en
from entrenar.data import Batch, TokenBatches, Windows
from entrenar.io import DataError
from entrenar.models import GPT2, GPT2Config
from entrenar.nn import Module, Parameter
from entrenar.optim import SGD, AdamW, Schedule
from entrenar.train import (
    Callback,
    EarlyStopping,
    RunFolder,
    TrainConfig,
    Trainer,
    TrainingFailed,
    state_hash,
)

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


def test_functions_are_callbacks_and_may_skip_an_epoch():
    seen = []

    def watch(trainer, record):
        seen.append((record.step, trainer.batches.epoch))
        return "skip-epoch" if record.step == 2 else "continue"

    t = trainer(config=TrainConfig(max_steps=4), callbacks=[watch])
    per_epoch = -(-(len(TOKENS) - 1) // 8 // 4)
    assert per_epoch > 4
    assert t.fit().stopped is None
    assert seen == [(1, 0), (2, 0), (3, 1), (4, 1)] and t.metrics.epoch == 1


@pytest.mark.parametrize("answer", ["halt", True, 3])
def test_an_answer_that_means_nothing_is_an_error(answer):
    def watch(trainer, record):
        return answer

    with pytest.raises(ValueError, match=rf"watch.on_step answered {answer!r}: expected 'continue'"):
        trainer(callbacks=[watch]).fit()
    with pytest.raises(TypeError, match="callbacks are Callback objects or functions"):
        trainer(callbacks=[Callback])


def test_epochs_can_only_be_skipped_where_there_are_some():
    t = trainer(callbacks=[lambda trainer, record: "skip-epoch"])
    t.batches = iter([next(t.batches)] * 9)
    with pytest.raises(ValueError, match="list_iterator has no skip_epoch"):
        t.fit()


def test_an_epoch_of_batches():
    """Windows of 2, the last with 1; the mean is over tokens; max_steps ends it."""
    t, one = (trainer(config=TrainConfig(max_steps=3, accumulation=2), lr=0.0, optimizer=SGD) for _ in range(2))
    batches = list(Windows(TOKENS[:90], 2, 8))[:5]
    seen = []
    loss, reached = t.train_epoch(batches, lambda record: seen.append(record.step))
    assert seen == [1, 2, 3] and reached and t.reached_max_steps and t.metrics.epoch == 1
    assert loss == pytest.approx(one.validate(batches), rel=1e-6)
    with pytest.raises(ValueError, match="all 3 steps are done"):
        t.train_epoch(batches)
    short = trainer(config=TrainConfig(max_steps=2))
    assert short.train_epoch(batches)[1] and short.step == 2
    loss, reached = trainer(config=TrainConfig(max_steps=9)).train_epoch(batches, lambda record: "stop")
    assert not reached
    with pytest.raises(ValueError, match="no token to train on"):
        trainer().train_epoch([])


def test_data_that_ends_is_told():
    t = trainer(config=TrainConfig(max_steps=9, accumulation=2))
    t.batches = [next(t.batches)] * 5
    with pytest.raises(DataError, match="ended at step 3 of 9: 2 batches were asked for, 1 were left"):
        t.fit()


def test_a_budget_of_tokens_ends_the_run():
    result = trainer(config=TrainConfig(max_steps=50, max_tokens=65)).fit()
    assert result.step == 3 and result.stopped == "96 tokens, the budget, at step 3"


def test_weights_and_masks_of_a_batch_reach_the_loss():
    """A window's loss and gradient are weighted sums over the window's weight, whatever the split (case 98)."""
    ids, targets = TOKENS[:32].reshape(4, 8), TOKENS[1:33].reshape(4, 8)
    weights = np.random.default_rng(0).uniform(0, 2, (4, 8)).astype(np.float32)
    weights[1, :6] = 0
    mask = np.ones((4, 8), bool)
    mask[2, :3] = False
    whole, parts = trainer(lr=0.1, optimizer=SGD), trainer(lr=0.1, optimizer=SGD)
    for t in (whole, parts):
        t.model.to("float64")
    batch = Batch(ids, targets, weights, mask)
    a = whole.train_step([batch])
    b = parts.train_step([Batch(*(field[i : i + 1] for field in batch[:4])) for i in range(4)])
    assert a.tokens == b.tokens == 26
    assert b.loss == pytest.approx(a.loss, rel=1e-12)
    for p, q in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        np.testing.assert_allclose(q.data, p.data, rtol=1e-12, atol=1e-12)
    nll = trainer().model.to("float64").eval().loss(ids, targets, attention_mask=mask, reduction="none").data
    assert a.loss == pytest.approx((nll * weights).sum() / weights.sum(dtype=float), rel=1e-9)


def test_bfloat16_products_and_checkpointed_layers():
    options = dict(max_steps=3, precision="bfloat16", gradient_checkpointing=True)
    t, plain = trainer(config=TrainConfig(**options)), trainer(config=TrainConfig(max_steps=3))
    assert t.model.is_gradient_checkpointing
    t.fit(), plain.fit()
    assert {p.dtype.name for p in t.model.parameters()} == {"float32"}
    assert t.metrics.losses != plain.metrics.losses
    np.testing.assert_allclose(t.metrics.losses, plain.metrics.losses, rtol=2e-2)
    with pytest.raises(TypeError, match="models that have gradient_checkpointing_enable, got Table"):
        Trainer(Table({}), SGD(Table({}).parameters(), lr=1.0), TrainConfig(1, gradient_checkpointing=True))
    with pytest.raises(ValueError, match="Did you mean 'bfloat16'"):
        TrainConfig(1, precision="bf16oat16")


@pytest.mark.parametrize("on_disk", [False, True])
def test_early_stopping_can_leave_the_best_weights(tmp_path, on_disk):
    folder = RunFolder(tmp_path / "run") if on_disk else None
    t = trainer(
        lr=0.3,  # so high that validation soon gets worse
        config=TrainConfig(max_steps=40, eval_every=2),
        val_batches=Windows(TOKENS[:90], 4, 8),
        folder=folder,
        callbacks=[EarlyStopping(3, restore_best=True)],
    )
    result = t.fit()
    assert result.stopped and "EarlyStopping" in result.stopped and result.val_loss > result.best_val_loss
    assert t.validate() == pytest.approx(result.best_val_loss, rel=1e-6)
    if folder:
        fresh = trainer(lr=0.3, folder=folder)
        fresh.resume(folder.latest())
        assert state_hash(fresh) == result.state_hash  # the checkpoint is of the last step


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
