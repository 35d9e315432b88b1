"""A character tokenizer: one id per character of the training text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..array import Array
from ..io import DataError, atomic_write

UNKNOWN = "\ufffd"  # the replacement character stands for every character that training did not see


class CharTokenizer:
    """Ids are the places of the characters in ``characters``; id 0 is the unknown character."""

    def __init__(self, characters: Iterable[str]) -> None:
        self.characters = tuple(characters)
        if len(set(self.characters)) != len(self.characters) or any(len(c) != 1 for c in self.characters):
            raise ValueError("CharTokenizer: expected single characters, each once")
        if not self.characters or self.characters[0] != UNKNOWN:
            raise ValueError("CharTokenizer: the first character must be U+FFFD, the unknown one")
        codes = np.array([ord(c) for c in self.characters])
        self._ids = np.zeros(int(codes.max()) + 1, np.int64)  # code point -> id, 0 for unknown
        self._ids[codes] = np.arange(len(codes))

    @classmethod
    def train(cls, texts: Iterable[str]) -> CharTokenizer:
        """The tokenizer of every character in ``texts``, in order of code point."""
        seen: set[str] = set()
        for text in texts:
            seen.update(text)
        seen.discard(UNKNOWN)
        return cls([UNKNOWN, *sorted(seen)])

    @property
    def vocab_size(self) -> int:
        return len(self.characters)

    def encode(self, text: str, unknown: str = "replace") -> Array:
        """Ids of the characters, int64.  unknown: "replace" gives id 0; "error" raises DataError naming the first."""
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
        ids = np.where(codes < len(self._ids), self._ids[np.minimum(codes, len(self._ids) - 1)], 0)
        if unknown == "error" and (missing := np.flatnonzero((ids == 0) & (codes != ord(UNKNOWN)))).size:
            at = int(missing[0])
            raise DataError(f"character {text[at]!r} at {at} is not in the vocabulary of {self.vocab_size} characters")
        if unknown not in ("replace", "error"):
            raise ValueError(f"unknown must be 'replace' or 'error', got {unknown!r}")
        return ids

    def decode(self, ids: Any) -> str:
        """The text of ids.  Raises IndexError for an id outside the vocabulary."""
        array = np.asarray(ids)
        if array.size and not (array.min() >= 0 and array.max() < self.vocab_size):
            raise IndexError(f"decode: ids must be in [0, {self.vocab_size}), got {array.min()} to {array.max()}")
        return "".join(self.characters[i] for i in array.ravel())

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        """The text of ids that come one by one, a character each.  Raises IndexError as ``decode``."""
        return (self.decode(token) for token in ids)

    def save(self, path: str | Path) -> None:
        """Write ``tokenizer.json``, atomically."""
        atomic_write(
            path, json.dumps({"type": "char", "characters": "".join(self.characters)}, ensure_ascii=True, indent=1)
        )

    @classmethod
    def load(cls, path: str | Path) -> CharTokenizer:
        """Read what ``save`` wrote.  Raises DataError naming the file."""
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read as a tokenizer: {error}") from None
        if not isinstance(found, dict) or set(found) != {"type", "characters"} or found["type"] != "char":
            raise DataError(f"{path}: expected the keys type (char) and characters")
        try:
            return cls(found["characters"])
        except (TypeError, ValueError) as error:
            raise DataError(f"{path}: {error}") from None
