"""A byte tokenizer: the 256 bytes of UTF-8, and special tokens after them.  Nothing to train, nothing unknown."""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..array import Array
from ..io import DataError, atomic_write
from .interface import Tokenizer, checked_ids, checked_text, tokenizer_file

BYTES = 256
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


class ByteTokenizer(Tokenizer):
    """Id n < 256 is byte n; special token k, in the order given, is 256 + k.

    special_tokens: name -> text, by default bos_token, eos_token and pad_token.  A text that spells one out has it.
    ``encode`` adds none.  Raises ValueError for a special token that is empty or there twice.
    """

    def __init__(self, special_tokens: Mapping[str, str] | None = None) -> None:
        self.special_tokens = dict(SPECIAL if special_tokens is None else special_tokens)
        texts = list(self.special_tokens.values())
        if len(set(texts)) != len(texts) or not all(isinstance(text, str) and text for text in texts):
            raise ValueError(f"ByteTokenizer: special tokens are texts, each once, got {self.special_tokens}")
        self._texts, self._ids = texts, {text: BYTES + n for n, text in enumerate(texts)}
        longest_first = sorted(texts, key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if texts else None
        eos = self.eos_token_id
        self.end_ids = () if eos is None else (eos,)

    def __repr__(self) -> str:
        return f"ByteTokenizer({self.special_tokens})"

    @property
    def vocab_size(self) -> int:
        return BYTES + len(self._texts)

    @property
    def special_ids(self) -> frozenset[int]:
        return frozenset(self._ids.values())

    @property
    def sha256(self) -> str:
        return hashlib.sha256(f"byte {json.dumps(self.special_tokens)}".encode()).hexdigest()

    def token_id(self, name: str) -> int | None:
        return self._ids.get(self.special_tokens.get(name, ""))

    def encode_with_offsets(self, text: str, add_special_tokens: bool = True) -> tuple[Array, Array]:
        ids, starts, lengths, at = [], [], [], 0
        for part in self._split.split(checked_text(text)) if self._split else [checked_text(text)]:
            if part in self._ids:
                ids.append(np.array([self._ids[part]]))
                starts.append(np.array([at]))
                lengths.append(np.array([len(part)]))
            elif part:
                found = np.frombuffer(part.encode(), np.uint8).astype(np.int64)
                ids.append(found)
                starts.append(at + np.cumsum(found & 0xC0 != 0x80) - 1)  # a byte 10xxxxxx goes on with a character
                lengths.append(np.ones(len(found), np.int64))
            at += len(part)
        if not ids:
            return np.zeros(0, np.int64), np.zeros((0, 2), np.int64)
        begins = np.concatenate(starts)
        return np.concatenate(ids), np.stack([begins, begins + np.concatenate(lengths)], axis=1)

    def encode(self, text: str, add_special_tokens: bool = True) -> Array:
        if self._split and self._split.search(checked_text(text)):
            return self.encode_with_offsets(text)[0]
        return np.frombuffer(checked_text(text).encode(), np.uint8).astype(np.int64)

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        return "".join(self.decode_stream(checked_ids(ids, self.vocab_size), skip_special_tokens))

    def decode_stream(self, ids: Iterable[int], skip_special_tokens: bool = False, context: Any = ()) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for token in self._told(checked_ids(context, self.vocab_size), skip_special_tokens):
            if isinstance(token, bytes):
                decoder.decode(token)
            else:
                decoder.reset()
        for token in self._told(ids, skip_special_tokens):
            if isinstance(token, bytes):
                piece = decoder.decode(token)
            else:
                piece = decoder.decode(b"", final=True) + token
                decoder.reset()
            if piece:
                yield piece
        if rest := decoder.decode(b"", final=True):
            yield rest

    def _told(self, ids: Iterable[int], skip: bool) -> Iterator[bytes | str]:
        """Each id as its byte, or as the text of a special token."""
        for token in ids:
            (checked,) = checked_ids(token, self.vocab_size)
            if checked < BYTES:
                yield bytes([checked])
            elif not skip:
                yield self._texts[checked - BYTES]

    def save(self, path: str | Path) -> None:
        content = {"type": "byte", "special_tokens": self.special_tokens}
        atomic_write(tokenizer_file(path), json.dumps(content, ensure_ascii=False, indent=1))

    @classmethod
    def load(cls, path: str | Path) -> ByteTokenizer:
        """Read what ``save(path)`` wrote.  Raises DataError naming the file."""
        path = tokenizer_file(path)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read as a tokenizer: {error}") from None
        if not isinstance(found, dict) or set(found) != {"type", "special_tokens"} or found["type"] != "byte":
            raise DataError(f"{path}: expected the keys type (byte) and special_tokens")
        try:
            return cls(found["special_tokens"])
        except (TypeError, ValueError) as error:
            raise DataError(f"{path}: {error}") from None
