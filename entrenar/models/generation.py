"""Drawing text from a decoder, one token at a time, with the keys and values of earlier tokens cached."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..array import Array, Generator
from ..autograd import no_grad
from ..autograd.tensor import raw
from ..ops.layers import linear
from .cache import Cache
from .decoder import Decoder
from .inputs import left_padded_positions
from .sampling import Sampling


def generate(
    model: Any,
    input_ids: Any,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
    *,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    stop_tokens: int | Iterable[int] | None = (),
    attention_mask: Any = None,
    pad_token: int | None = None,
) -> np.ndarray[Any, Any]:
    """The prompts followed by at most ``max_new_tokens`` drawn tokens each, int64.

    input_ids: (T,), (B, T), or a list of B sequences of any lengths; the result is (T + n,) or (B, T + n), T the length
    of the longest, shorter prompts padded on the left.  Each row is what its prompt alone gives: padding is not seen,
    moves no position, is not penalised, and row i draws from a Philox stream (seed, i) of its own; only a rotary
    scaling of kind "dynamic" depends on the longest text of a batch, as in transformers.
    temperature, top_k, top_p, min_p, repetition_penalty: see ``Sampling``.  The draws depend on ``seed`` alone, not on
    the default generator.
    stop_tokens: a row ends with the first of them that it draws; then ``pad_token`` follows, until all rows have ended.
    attention_mask: as the ids, 1 for tokens and 0 for padding, for arrays that are padded (on the left) already.
    pad_token: by default the config's pad_token_id, else the first stop token, else the config's eos_token_id.

    A text longer than the model's positions goes on from its last ``positions // 2`` tokens, read again from position
    0; a batch with padding may not be that long.
    Raises TypeError for a model that is no decoder; ValueError for an empty prompt, a value out of range, a mask that
    is not padding on the left, too long a padded batch; IndexError for an id outside the vocabulary.
    """
    job = _Job.checked(model, input_ids, max_new_tokens, seed, stop_tokens, attention_mask, pad_token)
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty)
    new = [row[:, None] for row in job.draws(model, sampling)]
    text = np.concatenate([job.ids, *new], axis=1)
    return text[0] if job.single else text


def stream(
    model: Any,
    input_ids: Any,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
    *,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    stop_tokens: int | Iterable[int] | None = (),
    attention_mask: Any = None,
    pad_token: int | None = None,
) -> Iterator[Array]:
    """As ``generate``, but yields the tokens of each step, int64 (B,), as soon as they are drawn."""
    job = _Job.checked(model, input_ids, max_new_tokens, seed, stop_tokens, attention_mask, pad_token)
    return job.draws(model, Sampling(temperature, top_k, top_p, min_p, repetition_penalty))


@dataclass(frozen=True)
class _Job:
    """What is to be drawn, checked.  ids: (B, T) int64.  mask: (B, T) booleans, None if no row is padded."""

    ids: Array
    mask: Array | None
    single: bool
    count: int
    stop: Array
    pad: int
    randoms: tuple[Generator, ...]

    @classmethod
    def checked(
        cls, model: Any, input_ids: Any, count: Any, seed: int, stop_tokens: Any, mask: Any, pad: int | None
    ) -> _Job:
        """Raises for anything that ``generate`` refuses, before the first draw."""
        if not isinstance(model, Decoder):
            raise TypeError(f"generate needs a causal language model, got {type(model).__name__}")
        size = model.config.vocab_size
        if isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < 0:
            raise ValueError(f"generate: max_new_tokens must be at least 0, an integer, got {count!r}")
        stop = np.atleast_1d(np.asarray(() if stop_tokens is None else _listed(stop_tokens)))
        stop = _in_vocabulary("stop_tokens", stop if stop.size else stop.astype(np.int64), size)
        if pad is not None:
            _in_vocabulary("pad_token", np.asarray(pad), size)
        rows, single = _rows(input_ids)
        lengths = [len(row) for row in rows]
        longest = max(lengths)
        if len(set(lengths)) > 1:
            if mask is not None:
                raise ValueError("generate: attention_mask is for an array (B, T), got sequences of unequal length")
            mask = np.arange(longest) >= longest - np.array(lengths)[:, None]
            filler = _pad_token(model.config, pad, stop)
            rows = [np.concatenate([np.full(longest - len(row), filler), row]) for row in rows]
        ids = np.stack(rows).astype(np.int64)
        if ((ids < 0) | (ids >= size)).any():
            row, place = np.argwhere((ids < 0) | (ids >= size))[0]
            raise IndexError(f"generate: id {ids[row, place]} at index ({row}, {place}) is outside [0, {size})")
        seen = None if mask is None else _padding(mask, ids.shape, single)
        limit = model.config.positions
        if seen is not None and longest + count > limit + 1:  # the last token that is drawn is not read
            raise ValueError(
                f"generate: the longest prompt has {longest} tokens and {count} new ones are asked for, but with "
                f"prompts of unequal length a text may have {limit + 1}: {limit} are read. Give the prompts one by one"
            )
        rest = _pad_token(model.config, pad, stop) if stop.size else 0
        randoms = tuple(Generator(seed, row) for row in range(len(ids)))
        return cls(ids, seen, single, int(count), stop, rest, randoms)

    def draws(self, model: Any, sampling: Sampling) -> Iterator[Array]:
        """The tokens of each step, (B,)."""
        batch, length = self.ids.shape
        window = model.config.positions
        text = np.concatenate([self.ids, np.empty((batch, self.count), np.int64)], axis=1)
        seen, positions = None, None
        if self.mask is not None:
            seen = np.concatenate([self.mask, np.ones((batch, self.count), bool)], axis=1)
            positions = left_padded_positions(seen)
        used = self._used(model.config.vocab_size) if sampling.penalises else None
        ended = np.zeros(batch, bool)
        was_training = model.training
        start = read = max(0, length - window)  # the first token in the cache; the first that is not yet in it
        capacity = min(length + self.count, window)
        cache = model.new_cache(batch, capacity)
        try:
            model.eval()
            for end in range(length, length + self.count):
                if model.training:  # somebody trains it between two tokens
                    model.eval()
                if end - start > window:  # positions are used up: read the recent half again
                    start = read = end - max(window // 2, 1)
                    cache = model.new_cache(batch, capacity)
                logits = _next_logits(
                    model,
                    text[:, read:end],
                    None if seen is None else seen[:, :end],
                    cache,
                    None if positions is None else positions[:, read:end],
                )
                tokens = np.where(ended, self.pad, sampling.draw(logits, self.randoms, used))
                text[:, end], read = tokens, end
                if used is not None:
                    used[np.arange(batch), tokens] = True
                if self.stop.size:
                    ended |= np.isin(tokens, self.stop)
                yield tokens
                if ended.all():
                    return
        finally:
            model.train(was_training)

    def _used(self, size: int) -> Array:
        """Booleans (B, V): the tokens of each prompt, padding apart."""
        used = np.zeros((len(self.ids), size), bool)
        rows, places = np.nonzero(np.ones_like(self.ids, bool) if self.mask is None else self.mask)
        used[rows, self.ids[rows, places]] = True
        return used


def _next_logits(model: Any, ids: Array, mask: Array | None, cache: Cache, positions: Array | None) -> Array:
    """Logits (B, V) of the token after ``ids``: the head sees the last state alone."""
    with no_grad():
        states = model.hidden(ids, mask, cache, positions)
        return linear(states[:, -1], model.head()).data


def _rows(input_ids: Any) -> tuple[list[Array], bool]:
    """The prompts as arrays (T,), and whether one was given without a batch axis."""
    if isinstance(input_ids, (list, tuple)) and any(np.ndim(raw(row)) for row in input_ids):
        rows, single = [np.asarray(raw(row)) for row in input_ids], False
    else:
        given = np.asarray(raw(input_ids))
        if given.ndim not in (1, 2) or given.size == 0:
            rows, single = [given], True
        else:
            rows, single = list(np.atleast_2d(given)), given.ndim == 1
    for n, row in enumerate(rows):
        if row.ndim != 1 or row.dtype.kind not in "iu" or row.size == 0:
            raise ValueError(
                "generate needs prompts of at least one token id, integers of shape (T,) or (B, T) or a list of "
                f"sequences, got shape {row.shape} of {row.dtype}{'' if single else f' for prompt {n}'}"
            )
    return rows, single


def _padding(mask: Any, shape: tuple[int, int], single: bool) -> Array | None:
    """The mask (B, T) as booleans; None if there is no padding."""
    given = np.asarray(raw(mask))
    expected = shape[1:] if single else shape
    if given.shape != expected:
        raise ValueError(f"generate: attention_mask has shape {given.shape}, expected that of the ids, {expected}")
    seen = np.atleast_2d(given).astype(bool)
    if not np.array_equal(seen, np.atleast_2d(given)):
        raise ValueError("generate: attention_mask holds other numbers than 1 (a token) and 0 (padding)")
    if seen.all():
        return None
    wrong = ~seen[:, -1] | (np.diff(seen.astype(np.int8), axis=1) < 0).any(axis=1)
    if wrong.any():
        raise ValueError(
            f"generate: row {int(np.flatnonzero(wrong)[0])} of attention_mask is not padding on the left followed by "
            "at least one token: pad on the left, or give a list of sequences"
        )
    return seen


def _listed(tokens: Any) -> Any:
    """An iterable that is no array as a list."""
    return list(tokens) if isinstance(tokens, Iterable) and not isinstance(tokens, np.ndarray) else tokens


def _in_vocabulary(name: str, ids: Array, size: int) -> Array:
    """The ids, if they are integers of the vocabulary."""
    if ids.dtype.kind not in "iu" or ids.ndim > 1 or (ids.size and not (ids.min() >= 0 and ids.max() < size)):
        raise ValueError(f"generate: {name} must be token ids in [0, {size}), got {ids.tolist()!r}")
    return ids


def _pad_token(config: Any, given: int | None, stop: Array) -> int:
    """What stands where a row has no token."""
    end = getattr(config, "eos_token_id", None)
    ends = (end,) if isinstance(end, int) else tuple(end or ())
    for token in (given, getattr(config, "pad_token_id", None), *stop.tolist(), *ends):
        if token is not None and 0 <= token < config.vocab_size:
            return int(token)
    raise ValueError(
        "generate: prompts of unequal length need pad_token, a token id to fill rows with: the config names neither "
        "pad_token_id nor eos_token_id in its vocabulary"
    )
