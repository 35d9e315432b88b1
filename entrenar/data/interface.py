"""What every tokenizer does, whatever its tokens are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..array import Array


class Tokenizer:
    """Text to ids and back.

    special_tokens: name -> text ("eos_token" -> "</s>").  end_ids: the tokens that end a text, the eos_token among
    them.  A subclass defines what raises NotImplementedError here.
    """

    special_tokens: dict[str, str]
    end_ids: tuple[int, ...]

    @property
    def vocab_size(self) -> int:
        """The largest id and one."""
        raise NotImplementedError(f"{type(self).__name__} does not define vocab_size")

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids that stand for no text."""
        raise NotImplementedError(f"{type(self).__name__} does not define special_ids")

    @property
    def sha256(self) -> str:
        """The hash of all that decides which ids a text has and what they mean: the same for the same tokenizer."""
        raise NotImplementedError(f"{type(self).__name__} does not define sha256")

    def token_id(self, name: str) -> int | None:
        """The id of a named special token ("unk_token"), None if there is none of that name."""
        raise NotImplementedError(f"{type(self).__name__} does not define token_id")

    @property
    def bos_token_id(self) -> int | None:
        """The id of the token that begins a text, None if there is none."""
        return self.token_id("bos_token")

    @property
    def eos_token_id(self) -> int | None:
        """The id of the token that ends a text, None if there is none."""
        return self.token_id("eos_token")

    @property
    def pad_token_id(self) -> int | None:
        """The id of the token that fills rows of a batch, None if there is none."""
        return self.token_id("pad_token")

    def encode(self, text: str, add_special_tokens: bool = True) -> Array:
        """The ids of a text, int64 (T,).

        add_special_tokens: also what the tokenizer puts around every text (a BOS, say).  Special tokens that the text
        spells out are read as such either way.  Raises TypeError for what is no str, ValueError for half a character.
        """
        return self.encode_with_offsets(text, add_special_tokens)[0]

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[Array]:
        """``encode`` of each text, on all cores where the tokenizer can."""
        return [self.encode(text, add_special_tokens) for text in texts]

    def encode_with_offsets(self, text: str, add_special_tokens: bool = True) -> tuple[Array, Array]:
        """``encode``, and for each token where its characters begin and end in the text, int64 (T, 2).

        Tokens of one character cover it all; tokens that are not in the text cover none.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define encode_with_offsets")

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        """The text of ids, of any shape.  Raises IndexError for an id outside the vocabulary."""
        raise NotImplementedError(f"{type(self).__name__} does not define decode")

    def decode_stream(self, ids: Iterable[int], skip_special_tokens: bool = False, context: Any = ()) -> Iterator[str]:
        """The text of ids that come one by one, in pieces as early as they are certain.

        No piece holds a part of a character, and joined they are ``decode`` of all ids.  context: ids that the text
        goes on from; then the pieces are what they are followed by.  Raises IndexError as ``decode``.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define decode_stream")

    def save(self, path: str | Path) -> None:
        """Write ``tokenizer.json``, atomically: into a folder, or as the file if the name ends on .json."""
        raise NotImplementedError(f"{type(self).__name__} does not define save")


def checked_text(text: Any) -> str:
    """The text.  Raises TypeError for what is no str, ValueError for half a character (a lone surrogate)."""
    if not isinstance(text, str):
        raise TypeError(f"encode: expected a str, got {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"encode: {text[error.start]!r} at {error.start} is half of a character (a lone surrogate): no UTF-8"
        ) from None
    return text


def checked_ids(ids: Any, vocab_size: int) -> list[int]:
    """The ids as a list.  Raises TypeError for what is no integer, IndexError for an id outside the vocabulary."""
    array = np.asarray(ids)
    if not array.size:
        return []
    if array.dtype.kind not in "iu":
        raise TypeError(f"decode: ids must be integers, got {array.dtype}")
    wrong = (array < 0) | (array >= vocab_size)
    if wrong.any():
        raise IndexError(f"decode: id {array[wrong].flat[0]} is outside the vocabulary of {vocab_size} tokens")
    listed: list[int] = array.ravel().tolist()
    return listed


def tokenizer_file(path: str | Path) -> Path:
    """Where ``save(path)`` writes: the file if the name ends on .json, else tokenizer.json of the folder."""
    path = Path(path)
    return path if path.suffix == ".json" else path / "tokenizer.json"
