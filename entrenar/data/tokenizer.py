"""A character tokenizer: one id per character of the training text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..array import Array
from ..io import DataError, atomic_write
from .interface import Tokenizer, checked_ids, tokenizer_file

UNKNOWN = "\ufffd"  # the replacement character stands for every character that training did not see


class CharTokenizer(Tokenizer):
    """Ids are the places of the characters in ``characters``; id 0 is the unknown character.  No special tokens."""

    def __init__(self, characters: Iterable[str]) -> None:
        self.special_tokens, self.end_ids = {}, ()
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

    @property
    def special_ids(self) -> frozenset[int]:
        return frozenset()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(("char" + "".join(self.characters)).encode("utf-8", "surrogatepass")).hexdigest()

    def token_id(self, name: str) -> int | None:
        return None

    def encode(self, text: str, add_special_tokens: bool = True, *, unknown: str = "replace") -> Array:
        """Ids of the characters, int64.  unknown: "replace" gives id 0; "error" raises DataError naming the first."""
        if not isinstance(text, str):
            raise TypeError(f"encode: expected a str, got {type(text).__name__}")
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
        ids = np.where(codes < len(self._ids), self._ids[np.minimum(codes, len(self._ids) - 1)], 0)
        if unknown == "error" and (missing := np.flatnonzero((ids == 0) & (codes != ord(UNKNOWN)))).size:
            at = int(missing[0])
            raise DataError(f"character {text[at]!r} at {at} is not in the vocabulary of {self.vocab_size} characters")
        if unknown not in ("replace", "error"):
            raise ValueError(f"unknown must be 'replace' or 'error', got {unknown!r}")
        return ids

    def encode_with_offsets(self, text: str, add_special_tokens: bool = True) -> tuple[Array, Array]:
        starts = np.arange(len(text))
        return self.encode(text), np.stack([starts, starts + 1], axis=1)

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        return "".join(self.characters[i] for i in checked_ids(ids, self.vocab_size))

    def decode_stream(self, ids: Iterable[int], skip_special_tokens: bool = False, context: Any = ()) -> Iterator[str]:
        return (self.decode(token) for token in ids)

    def save(self, path: str | Path) -> None:
        content = {"type": "char", "characters": "".join(self.characters)}
        atomic_write(tokenizer_file(path), json.dumps(content, ensure_ascii=True, indent=1))

    @classmethod
    def load(cls, path: str | Path) -> CharTokenizer:
        """Read what ``save(path)`` wrote.  Raises DataError naming the file."""
        path = tokenizer_file(path)
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
