"""Rotary positions (Su et al. 2021) with the rescalings for longer texts that published configurations name.

Pair i of a head's ``dims`` turning elements has the inverse frequency w_i = base^(-2i / dims) (Su et al. eq. 15) and at
position m is turned by m w_i.  A scaling, named and parametrised as in Hugging Face's config.json, changes w:

- linear: w / factor (Chen et al. 2023, position interpolation);
- dynamic: for n > N positions, N = max_positions, the base becomes base (factor n / N - factor + 1)^(dims / (dims - 2))
  (NTK-aware, Peng et al. 2023, YaRN, sec. 3.1, with the scale of sec. 3.3); up to N nothing changes;
- llama3: wave lengths over N / low_freq_factor are interpolated (w / factor), those under N / high_freq_factor stay,
  and in between w is blended linearly in N w / 2 pi (Llama 3.1, ``apply_scaling`` of its reference code);
- yarn: w / factor below ``beta_slow`` turns in N positions, w above ``beta_fast``, a linear ramp over i between
  (sec. 3.2), and cos and sin times an attention factor, 0.1 ln(factor) + 1 unless given (sec. 3.4).

N is original_max_position_embeddings for llama3 and yarn.  All of it is float64.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..array import Array, nearest
from ..autograd.tensor import raw

_LENGTH = "original_max_position_embeddings"
_YARN = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate", _LENGTH)
# type -> (keys that must be there, keys that may be)
SCALINGS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "default": ((), ()),
    "linear": (("factor",), ()),
    "dynamic": (("factor",), ()),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor"), (_LENGTH,)),
    "yarn": (("factor",), _YARN),
}


@dataclass(frozen=True)
class Rotary:
    """The angles of one model's rotary positions.

    dims: how many elements of a head turn, even.  base: rope_theta.  max_positions: max_position_embeddings.
    scaling: {"rope_type": ..., and that type's keys}, "type" in older files; a null is a key left out, but yarn's
    "factor": null is max_positions / original_max_position_embeddings.  The latter is max_positions unless given.
    Raises ValueError for an unknown type, an unknown or missing key or a value out of range, TypeError for a value of
    the wrong type, each naming it.
    """

    dims: int
    base: float = 10000.0
    scaling: Mapping[str, Any] | None = None
    max_positions: int = 2048

    def __post_init__(self) -> None:
        for name in ("dims", "max_positions"):
            _check_integer(f"Rotary: {name}", getattr(self, name))
        _check_number("Rotary: base (rope_theta)", self.base)
        if self.dims % 2:
            raise ValueError(f"Rotary: dims={self.dims} elements cannot be paired: expected an even number")
        if self.scaling is not None:
            _mapping("Rotary: scaling", self.scaling)
            object.__setattr__(self, "scaling", dict(self.scaling))  # a later change of the caller's is not seen
        kind, given = self.kind, self.parameters
        check_scaling(kind, given)
        if kind == "dynamic" and self.dims < 4:
            raise ValueError(f"rotary scaling 'dynamic' needs dims of at least 4, got {self.dims}")
        if kind == "yarn" and self.base <= 1:
            raise ValueError(f"rotary scaling 'yarn' needs a base (rope_theta) over 1, got {self.base!r}")

    @property
    def kind(self) -> str:
        """The type of the scaling, "default" without one."""
        return scaling_type(self.scaling or {})

    @property
    def parameters(self) -> dict[str, Any]:
        """The scaling's keys and values without its type and without nulls; yarn's null factor filled in."""
        given = {k: v for k, v in (self.scaling or {}).items() if k not in ("type", "rope_type")}
        if self.kind == "yarn" and "factor" in given and given["factor"] is None:
            length = given.get(_LENGTH)
            given["factor"] = (
                1.0 if length is None else self.max_positions / _check_integer(f"rotary scaling: {_LENGTH}", length)
            )
        return {k: v for k, v in given.items() if v is not None}

    @cached_property
    def inverse(self) -> Array:
        """The inverse frequencies (dims / 2,) in radians per position, up to max_positions positions."""
        w = inverse_frequencies(self.dims, self.base)
        given, kind = self.parameters, self.kind
        if kind == "linear":
            return w / given["factor"]
        original = given.get(_LENGTH, self.max_positions)
        if kind == "llama3":
            return _llama3(w, given, original)
        if kind == "yarn":
            return _yarn(w, given, original, self.base)
        return w

    @cached_property
    def attention_factor(self) -> float:
        """What cos and sin are multiplied by: 1, except for yarn."""
        given = self.parameters
        if self.kind != "yarn":
            return 1.0
        if "attention_factor" in given:
            return float(given["attention_factor"])
        factor, both = given["factor"], [given.get(key, 0.0) for key in ("mscale", "mscale_all_dim")]
        if all(both):  # DeepSeek-V2's: the score's part of it is in its softmax scale
            return mscale(factor, both[0]) / mscale(factor, both[1])
        return mscale(factor)

    def frequencies(self, longest: int) -> Array:
        """The inverse frequencies (dims / 2,) when ``longest`` positions are in play."""
        if self.kind != "dynamic" or longest <= self.max_positions:
            return self.inverse
        factor, dims = self.parameters["factor"], self.dims
        stretch = factor * longest / self.max_positions - (factor - 1)
        return inverse_frequencies(dims, self.base * stretch ** (dims / (dims - 2)))

    def tables(self, positions: Any, longest: int | None = None) -> tuple[Array, Array]:
        """(cos, sin) for ``rope``: positions' shape + (dims / 2,), float64, times the attention factor.

        positions: integers or floats of any shape.  longest: how many positions are in play, which decides the
        frequencies of "dynamic"; the largest position + 1 if None.  Nothing is remembered between calls: keys that were
        cached under a shorter text keep their frequencies, as in transformers, whose module also keeps the longest
        text's for the next one unless that is shorter than max_positions.
        """
        at = np.asarray(raw(positions), np.float64)
        if longest is None:
            longest = int(at.max(initial=0.0)) + 1
        angles = at[..., None] * self.frequencies(longest)
        return np.cos(angles) * self.attention_factor, np.sin(angles) * self.attention_factor


def rotary_from_config(config: Mapping[str, Any], base: float = 10000.0) -> Rotary:
    """The Rotary that the fields of a Hugging Face config.json describe, in the older form or in transformers 5's.

    Older: rope_theta and rope_scaling {"type" or "rope_type": ..., ...}; newer: rope_parameters {"rope_type": ...,
    "rope_theta": ..., ...}.  Either may hold partial_rotary_factor; dims is that part of head_dim, or of
    hidden_size / num_attention_heads, rounded down.  A field given twice with two values is an error.
    base: the architecture's rope_theta where the file has none.  Raises as Rotary does.
    """
    fields = rotary_fields(config)
    theta, share, given = fields["rope_theta"], fields["partial_rotary_factor"], dict(fields["rope_scaling"] or {})
    kind = scaling_type(given)
    if kind in ("llama3", "yarn") and config.get(_LENGTH) is not None:
        given[_LENGTH] = config[_LENGTH]  # transformers gives this place priority
    length = config.get("max_position_embeddings")
    if length is None and (kind == "dynamic" or (kind in ("llama3", "yarn") and given.get(_LENGTH) is None)):
        raise ValueError(f"config: rotary scaling {kind!r} needs max_position_embeddings, which is missing")
    share = 1.0 if share is None else share
    if _check_number("config: partial_rotary_factor", share) > 1:
        raise ValueError(f"config: partial_rotary_factor must be at most 1, got {share!r}")
    return Rotary(
        dims=int(_head_dim(config) * share),
        base=base if theta is None else theta,
        scaling=given or None,
        **({} if length is None else {"max_positions": length}),
    )


def rotary_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """rope_theta, partial_rotary_factor and rope_scaling of a config.json in either form, None where it has none.

    Raises ValueError for a field given twice with two values, TypeError for a scaling that is no mapping.
    """
    given: dict[str, Any] = {}
    for name in ("rope_scaling", "rope_parameters"):
        part = {} if config.get(name) is None else _mapping(f"config: {name}", config[name])
        for key, value in part.items():
            if given.setdefault(key, value) != value:
                raise ValueError(
                    f"config: rope_scaling and rope_parameters disagree on {key!r}: {given[key]!r}, {value!r}"
                )
    for name in ("rope_theta", "partial_rotary_factor"):
        outer = config.get(name)
        if given.get(name) is None:
            given[name] = outer
        elif outer is not None and outer != given[name]:
            raise ValueError(f"config: {name} is {outer!r}, but {given[name]!r} in the rotary parameters")
    theta, share = given.pop("rope_theta"), given.pop("partial_rotary_factor")
    return {"rope_theta": theta, "partial_rotary_factor": share, "rope_scaling": given or None}


def inverse_frequencies(dims: int, base: float) -> Array:
    """base^(-2i / dims) for i < dims / 2 (Su et al. 2021, eq. 15), float64."""
    return float(base) ** (-np.arange(0, dims, 2) / dims)


def mscale(factor: float, weight: float = 1.0) -> float:
    """YaRN's sqrt(1 / t) = 0.1 weight ln(factor) + 1, 1 for factors up to 1 (Peng et al. 2023, sec. 3.4)."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def _llama3(w: Array, given: Mapping[str, Any], original: int) -> Array:
    low, high = given["low_freq_factor"], given["high_freq_factor"]
    turns = original * w / (2 * math.pi)  # in the original context; the wave length is original / turns
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1 - kept) * w / given["factor"] + kept * w


def _yarn(w: Array, given: Mapping[str, Any], original: int, base: float) -> Array:
    dims = 2 * w.size

    def place(turns: float) -> float:
        """The i, not an integer, whose frequency makes so many turns in the original context."""
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = place(given.get("beta_fast", 32)), place(given.get("beta_slow", 1))
    if given.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dims - 1)
    width = last - first if last != first else 0.001  # transformers' way around a division by 0
    interpolated = np.clip((np.arange(w.size) - first) / width, 0.0, 1.0)
    return interpolated * w / given["factor"] + (1 - interpolated) * w


# checks -------------------------------------------------------------------------------------------------------
def scaling_type(scaling: Mapping[str, Any]) -> str:
    """The "rope_type" (older: "type") of a scaling, "default" if it names none but is empty.

    Raises ValueError for an unknown one, for two that differ, and for keys without a type; TypeError for no string.
    """
    named = [scaling[key] for key in ("rope_type", "type") if scaling.get(key) is not None]
    if not named:
        if any(value is not None for value in scaling.values()):
            raise ValueError(f"rotary scaling {dict(scaling)!r} has no 'rope_type': expected one of {sorted(SCALINGS)}")
        return "default"
    if not isinstance(named[0], str):
        raise TypeError(f"rotary scaling: rope_type must be a string, got {named[0]!r}")
    if named[-1] != named[0]:
        raise ValueError(f"rotary scaling: rope_type is {named[0]!r}, but type is {named[1]!r}: leave one out")
    if named[0] not in SCALINGS:
        raise ValueError(
            f"unknown rotary scaling {named[0]!r}: known are {sorted(SCALINGS)}.{nearest(named[0], SCALINGS)}"
        )
    return named[0]


def check_scaling(kind: str, given: Mapping[str, Any]) -> None:
    """Raise unless ``given`` are the keys and values of a scaling of this kind."""
    needed, optional = SCALINGS[kind]
    for key in given:
        if key not in needed + optional:
            raise ValueError(
                f"rotary scaling {kind!r} has no key {key!r}: known are {sorted(needed + optional)}."
                f"{nearest(key, needed + optional)}"
            )
    for key in needed:
        if key not in given:
            raise ValueError(f"rotary scaling {kind!r} needs {key!r}, which is missing: got {dict(given)!r}")
    for key, value in given.items():
        name = f"rotary scaling {kind!r}: {key}"
        if key == "truncate":
            if not isinstance(value, bool):
                raise TypeError(f"{name} must be true or false, got {value!r}")
        elif key == _LENGTH:
            _check_integer(name, value)
        else:
            _check_number(name, value, zero=key.startswith("mscale"))  # 0 is how some files leave it out
    if kind == "llama3" and not given["low_freq_factor"] < given["high_freq_factor"]:
        low, high = given["low_freq_factor"], given["high_freq_factor"]
        raise ValueError(f"rotary scaling 'llama3': low_freq_factor={low!r} must be below high_freq_factor={high!r}")
    if kind == "yarn" and not given.get("beta_slow", 1) <= given.get("beta_fast", 32):
        slow, fast = given.get("beta_slow", 1), given.get("beta_fast", 32)
        raise ValueError(f"rotary scaling 'yarn': beta_slow={slow!r} must be at most beta_fast={fast!r}")


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping or null, got {value!r}")
    return value


def _check_integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a positive integer, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return int(value)


def _check_number(name: str, value: Any, zero: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a positive number, got {value!r}")
    if not (0 < value <= sys.float_info.max or (zero and value == 0)):
        raise ValueError(f"{name} must be a positive number, got {value!r}")
    return float(value)


def _head_dim(config: Mapping[str, Any]) -> int:
    if config.get("head_dim") is not None:
        return _check_integer("config: head_dim", config["head_dim"])
    for name in ("hidden_size", "num_attention_heads"):
        if config.get(name) is None:
            raise ValueError(
                f"config: {name} is missing: a head's width is head_dim or hidden_size / num_attention_heads"
            )
    width, heads = (_check_integer(f"config: {name}", config[name]) for name in ("hidden_size", "num_attention_heads"))
    return width // heads
