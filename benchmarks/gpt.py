"""What the GPT cases share: sizes, the weights and batches that every library starts from, the count of FLOP."""

from __future__ import annotations

import dataclasses
import itertools
import math
import string
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Config:
    """A GPT-2 (pre-LN, tied head, GELU by tanh) and a training step of it: AdamW, gradients clipped to norm 1."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    batch: int
    length: int
    dropout: float = 0.0
    lr: float = 3e-4
    weight_decay: float = 0.01
    clip: float = 1.0
    eps: float = 1e-5  # of layer norms
    text: bool = False  # batches of the standard library's source text by character, instead of random ones

    @property
    def parameters(self) -> int:
        """How many weights, the tied head counted once."""
        return sum(math.prod(shape) for shape in shapes(self).values())

    @property
    def flops(self) -> float:
        """Model FLOP of a step: 6 per weight and token, 12 layers length width per token for attention
        (Chowdhery et al. 2022, appendix B; causal attention isn't halved).
        """
        tokens = self.batch * self.length
        return tokens * (6.0 * self.parameters + 12.0 * self.layers * self.length * self.width)


CHAR = Config(vocabulary=100, width=384, layers=6, heads=6, batch=8, length=256)
GPT2 = Config(vocabulary=50257, width=768, layers=12, heads=12, batch=4, length=256)


def shapes(c: Config) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights, as in GPT-2's published file: matrices are (in, out)."""
    block: dict[str, tuple[int, ...]] = {
        "ln_1.weight": (c.width,),
        "ln_1.bias": (c.width,),
        "attn.c_attn.weight": (c.width, 3 * c.width),
        "attn.c_attn.bias": (3 * c.width,),
        "attn.c_proj.weight": (c.width, c.width),
        "attn.c_proj.bias": (c.width,),
        "ln_2.weight": (c.width,),
        "ln_2.bias": (c.width,),
        "mlp.c_fc.weight": (c.width, 4 * c.width),
        "mlp.c_fc.bias": (4 * c.width,),
        "mlp.c_proj.weight": (4 * c.width, c.width),
        "mlp.c_proj.bias": (c.width,),
    }
    return {
        "wte.weight": (c.vocabulary, c.width),
        "wpe.weight": (c.length, c.width),
        **{f"h.{n}.{name}": shape for n in range(c.layers) for name, shape in block.items()},
        "ln_f.weight": (c.width,),
        "ln_f.bias": (c.width,),
    }


def weights(c: Config) -> dict[str, np.ndarray]:
    """GPT-2's initialisation (Radford et al. 2019, section 2.3), the same in every library."""
    rng = np.random.default_rng(0)
    found = {}
    for name, shape in shapes(c).items():
        if len(shape) == 1:
            found[name] = np.full(shape, 0.0 if name.endswith("bias") else 1.0, np.float32)
        else:
            scale = 0.02 / math.sqrt(2 * c.layers) if "c_proj" in name else 0.02
            found[name] = rng.standard_normal(shape, np.float32) * np.float32(scale)
    return found


def batches(c: Config, count: int = 4) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Ids and the ids that follow them, (batch, length) each: ``count`` random batches in turn, so that the loss falls;
    or other windows of real text without end.
    """
    rng = np.random.default_rng(1)
    texts = (
        windows(c, rng) if c.text else itertools.cycle(rng.integers(0, c.vocabulary, (count, c.batch, c.length + 1)))
    )
    return ((np.ascontiguousarray(t[:, :-1]), np.ascontiguousarray(t[:, 1:])) for t in texts)


def windows(c: Config, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """(batch, length + 1) ids of printable ASCII, from random places of the standard library's source text."""
    from entrenar.data import read_texts

    if c.vocabulary != len(string.printable):
        raise ValueError(f"the text has {len(string.printable)} kinds of characters, not {c.vocabulary}")
    number = {character: n for n, character in enumerate(string.printable)}
    text = read_texts("stdlib", max_bytes=4_000_000).train_text
    ids = np.array([number[character] for character in text if character in number])
    while True:
        starts = rng.integers(0, len(ids) - c.length, c.batch)
        yield np.stack([ids[start : start + c.length + 1] for start in starts])


def learned(step: Callable[[], float], count: int, last: int = 20) -> dict[str, Any]:
    """The mean loss of the last of ``count`` steps."""
    return {f"mean loss of steps {count - last + 1} to {count}": float(np.mean([step() for _ in range(count)][-last:]))}


def losses(step: Callable[[], float], count: int) -> dict[str, Any]:
    """The losses of the next steps, by number, so that each is compared by itself."""
    return {f"loss {i}": step() for i in range(count)}
