"""Schedules by value, and what bad ones get."""

from __future__ import annotations

import math

import numpy as np
import pytest

from entrenar.optim import Schedule, run_schedule


def test_cosine_between_peak_and_floor():
    s = run_schedule("cosine", 1.0, total_steps=10, warmup_steps=2, floor=0.2)
    expected = [0.5, 1.0] + [0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi * k / 8)) for k in range(8)]
    np.testing.assert_allclose([s.lr(k) for k in range(10)], expected, rtol=1e-15)


def test_linear():
    s = run_schedule("linear", 1.0, total_steps=4)
    np.testing.assert_allclose([s.lr(k) for k in range(6)], [1.0, 0.75, 0.5, 0.25, 0.0, 0.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cosin", 0.1, 5), "unknown schedule 'cosin'.*Did you mean 'cosine'"),
        (("cosine", -0.1, 5), "peak must be a finite number"),
        (("cosine", 0.1, -5), "decay_steps must be an integer of at least 0, got -5"),
        (("cosine", 0.1, 5, 1.5), "warmup_steps must be an integer"),
        (("cosine", 0.1, 5, 0, 2.0), "floor is a fraction"),
    ],
)
def test_bad_schedules(arguments, message):
    with pytest.raises(ValueError, match=message):
        Schedule(*arguments)


def test_warm_up_is_at_most_30_percent_of_a_run():
    assert run_schedule("cosine", 0.1, 10, 3).warmup_steps == 3
    with pytest.raises(ValueError, match="at most 3"):
        run_schedule("cosine", 0.1, 10, 4)
    with pytest.raises(ValueError, match="count from 0"):
        Schedule("cosine", 0.1, 5).lr(-1)
