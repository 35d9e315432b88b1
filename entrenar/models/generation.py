"""Drawing text from a decoder, one token at a time, with the keys and values of earlier tokens cached.

A model takes part by ``forward(input_ids, cache=None)``, ``new_cache(batch)`` and ``config.positions``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..array import Array, Generator
from ..autograd import no_grad
from ..autograd.tensor import raw


def generate(
    model: Any, ids: Any, max_new_tokens: int, temperature: float = 1.0, top_k: int | None = None, seed: int = 0
) -> np.ndarray[Any, Any]:
    """The prompt followed by ``max_new_tokens`` drawn tokens, int64, (B, T + n) for ids (B, T) and (T + n,) for (T,).

    temperature: 0 takes the likeliest token; else logits are divided by it.  top_k: draw among the k likeliest only.
    The draws depend on ``seed`` alone, not on the default generator.  A text longer than the model's positions goes on
    from its last ``positions // 2`` tokens, read again from position 0.
    Raises ValueError for an empty prompt, a negative temperature or count, or top_k < 1; IndexError for unknown ids.
    """
    prompt = np.asarray(raw(ids))
    new = list(stream(model, ids, max_new_tokens, temperature, top_k, seed))
    added = np.stack(new, axis=-1) if new else np.empty((*prompt.shape[:-1], 0), np.int64)
    return np.concatenate([prompt.astype(np.int64), added if prompt.ndim == 2 else added.reshape(-1)], axis=-1)


def stream(
    model: Any, ids: Any, max_new_tokens: int, temperature: float = 1.0, top_k: int | None = None, seed: int = 0
) -> Iterator[Array]:
    """As ``generate``, but yields each new token, int64 (B,), as soon as it is drawn."""
    prompt = np.asarray(raw(ids))
    if prompt.ndim not in (1, 2) or prompt.dtype.kind not in "iu" or prompt.size == 0:
        raise ValueError(
            f"generate needs a prompt of at least one token id, shape (T,) or (B, T), got shape "
            f"{prompt.shape} of {prompt.dtype}"
        )
    if not temperature >= 0:
        raise ValueError(f"generate: temperature must be at least 0, got {temperature!r}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"generate: top_k must be at least 1, got {top_k!r}")
    if max_new_tokens < 0:
        raise ValueError(f"generate: max_new_tokens must be at least 0, got {max_new_tokens!r}")
    return _draws(model, np.atleast_2d(prompt).astype(np.int64), max_new_tokens, temperature, top_k, Generator(seed))


def _draws(
    model: Any, seen: Array, count: int, temperature: float, top_k: int | None, random: Generator
) -> Iterator[Array]:
    window = model.config.positions
    was_training = model.training
    feed = seen[:, -window:]
    cache = model.new_cache(len(seen))
    try:
        for _ in range(count):
            model.eval()
            if cache.length + feed.shape[1] > window:  # positions are used up: read the recent half again
                feed, cache = seen[:, -max(window // 2, 1) :], model.new_cache(len(seen))
            with no_grad():
                logits = model(feed, cache=cache).data[:, -1]
            feed = draw(logits, temperature, top_k, random)[:, None]
            seen = np.concatenate([seen[:, -window:], feed], axis=1)
            yield feed[:, 0]
    finally:
        model.train(was_training)


def draw(logits: Array, temperature: float, top_k: int | None, random: Generator) -> Array:
    """One token per row of ``logits`` (B, V), int64 (B,).  Probabilities and their sums are float64."""
    scores = np.asarray(logits, np.float64)
    if temperature == 0:
        return scores.argmax(axis=-1)
    if top_k is not None and top_k < scores.shape[-1]:
        kth = np.partition(scores, -top_k, axis=-1)[:, -top_k, None]
        scores = np.where(scores < kth, -np.inf, scores)
    scores = scores / temperature
    mass = np.cumsum(np.exp(scores - scores.max(axis=-1, keepdims=True)), axis=-1)
    point = random.uniform((len(scores), 1), np.float64) * mass[:, -1:]
    return (mass <= point).sum(axis=-1)  # the first token whose cumulative mass exceeds the point
