"""The tokenizer of a Hugging Face folder: tokenizer.json, read by ``tokenizers``, and the special tokens it names."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from ..array import Array
from ..io import DataError, atomic_write
from .interface import Tokenizer, checked_ids, checked_text, tokenizer_file

FILE, CONFIG, MAP = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
GENERATION = "generation_config.json"
BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")  # a token that stands for one byte of a character without a token
UNKNOWN = "\ufffd"  # what decoding gives for bytes that are no UTF-8
ADVICE = "transformers writes it: AutoTokenizer.from_pretrained(...).save_pretrained(folder)"


class HFTokenizer(Tokenizer):
    """A tokenizer of the ``tokenizers`` library with what its folder says of special tokens.

    tokenizer: the library's object.  special_tokens: name -> text ("bos_token" -> "<s>").  end_ids: the tokens that
    end a text, as generation_config.json (else config.json) and the tokenizer name them.
    """

    def __init__(
        self, tokenizer: Any, special_tokens: Mapping[str, str] | None = None, end_ids: Iterable[int] = ()
    ) -> None:
        self.tokenizer, self.special_tokens = tokenizer, dict(special_tokens or {})
        tokenizer.no_truncation()  # what a file may ask for, and no text may be cut unasked
        tokenizer.no_padding()
        eos = self.eos_token_id
        self.end_ids = tuple(dict.fromkeys([*end_ids, *([] if eos is None else [eos])]))

    @classmethod
    def load(cls, path: str | Path) -> HFTokenizer:
        """From tokenizer.json of a folder, or from a file.

        Special tokens are those of tokenizer_config.json or special_tokens_map.json beside it, if they are there.
        Tokens that these name and tokenizer.json does not hold are added to it, as transformers does.
        ``clean_up_tokenization_spaces`` is not applied: it takes spaces out of the text.
        Raises DataError naming a file that is missing or broken.
        """
        import tokenizers

        file = tokenizer_file(path)
        content, folder = file_bytes(file), file.parent
        try:
            tokenizer = tokenizers.Tokenizer.from_buffer(content)
        except Exception as error:  # the library has no class of its own for it
            raise DataError(f"{file}: cannot be read as a tokenizer: {error}. {ADVICE}") from None
        config = tokenizer_config(folder)
        _add_tokens(tokenizer, config, folder)
        tokenizer.encode_special_tokens = bool(config.get("split_special_tokens", False))
        return cls(tokenizer, named_tokens(config), _end_ids(folder))

    @cached_property
    def sha256(self) -> str:
        """The hash of tokenizer.json's content and of what is said of special tokens."""
        splits = bool(self.tokenizer.encode_special_tokens)
        beside = json.dumps([self.special_tokens, self.end_ids, splits], sort_keys=True)
        return hashlib.sha256(f"{self.tokenizer.to_str()}\n{beside}".encode()).hexdigest()

    def __repr__(self) -> str:
        return f"HFTokenizer(vocab_size={self.vocab_size}, special_tokens={self.special_tokens})"

    @cached_property
    def vocab_size(self) -> int:
        """The largest id and one, added tokens included.  A model's table may have further rows that no text has."""
        return max(self.tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def token_id(self, name: str) -> int | None:
        """The id of a named special token ("unk_token"), None if the folder does not name it."""
        text = self.special_tokens.get(name)
        found: int | None = None if text is None else self.tokenizer.token_to_id(text)
        return found

    def encode(self, text: str, add_special_tokens: bool = True) -> Array:
        return np.asarray(
            self.tokenizer.encode(checked_text(text), add_special_tokens=add_special_tokens).ids, np.int64
        )

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[Array]:
        found = self.tokenizer.encode_batch_fast(
            [checked_text(t) for t in texts], add_special_tokens=add_special_tokens
        )
        return [np.asarray(encoding.ids, np.int64) for encoding in found]

    def encode_with_offsets(self, text: str, add_special_tokens: bool = True) -> tuple[Array, Array]:
        found = self.tokenizer.encode(checked_text(text), add_special_tokens=add_special_tokens)
        return np.asarray(found.ids, np.int64), np.asarray(found.offsets, np.int64).reshape(-1, 2)

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        """The text of ids, of any shape.  Raises IndexError for an id outside the vocabulary."""
        return str(self.tokenizer.decode(self._checked(ids), skip_special_tokens=skip_special_tokens))

    def decode_stream(self, ids: Iterable[int], skip_special_tokens: bool = False, context: Any = ()) -> Iterator[str]:
        """The text of ids that come one by one, in pieces as early as they are certain.

        No piece holds a part of a character, and joined they are ``decode`` of all ids; what is certain only at the
        end comes last.  context: ids that the text goes on from; then the pieces are what they are followed by.
        Raises IndexError for an id outside the vocabulary.
        """
        pieces = _Pieces(self, skip_special_tokens, self._checked(context))
        for token in ids:
            if piece := pieces.push(self._checked(token)[0]):
                yield piece
        if piece := pieces.rest():
            yield piece

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json and, beside it, tokenizer_config.json, as transformers reads them.

        path: a folder, or a file whose name ends on .json.  Further tokens that end a text go to generation_config.json
        unless there is one: it belongs to the model.
        """
        file = tokenizer_file(path)
        usual = {name: text for name, text in self.special_tokens.items() if name.endswith("_token")}
        config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **usual}
        config["clean_up_tokenization_spaces"] = False
        config["split_special_tokens"] = bool(self.tokenizer.encode_special_tokens)
        if extra := {name: text for name, text in self.special_tokens.items() if name not in usual}:
            config["extra_special_tokens"] = extra
        atomic_write(file, self.tokenizer.to_str(pretty=True))
        atomic_write(file.parent / CONFIG, json.dumps(config, ensure_ascii=False, indent=2) + "\n")
        generation = file.parent / GENERATION
        if not set(self.end_ids) <= {self.eos_token_id} and not generation.exists():
            atomic_write(generation, json.dumps({"eos_token_id": list(self.end_ids)}, indent=2) + "\n")

    def _checked(self, ids: Any) -> list[int]:
        return checked_ids(ids, self.vocab_size)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids that stand for no text."""
        return frozenset(n for n, token in self.tokenizer.get_added_tokens_decoder().items() if token.special)

    @cached_property
    def _falls_back_to_bytes(self) -> bool:
        decoder = self.tokenizer.decoder
        return decoder is not None and b'"ByteFallback"' in decoder.__getstate__()


class _Pieces:
    """The state of ``decode_stream``: ids since the last border, the text of theirs that was given, how many it covers.

    A decoder treats the start of a text in its own way (it drops a space), so a text is never decoded from a border on:
    the piece before it comes along, and what it alone gives is taken off again.
    tokenizers' DecodeStream cuts runs of byte tokens too early: a byte that follows makes another text of them all.
    """

    def __init__(self, tokenizer: HFTokenizer, skip: bool, context: list[int]) -> None:
        self.tokenizer, self.skip = tokenizer, skip
        self.ids = context
        self.given, self.covered = self._text(context), len(context)
        self.in_bytes = False  # within a run of byte tokens, which are decoded together

    def _text(self, ids: list[int]) -> str:
        return str(self.tokenizer.tokenizer.decode(ids, skip_special_tokens=self.skip))

    def push(self, token: int) -> str:
        """The piece that a further token makes certain, perhaps an empty one."""
        self.ids.append(token)
        if self.tokenizer._falls_back_to_bytes and not (self.skip and token in self.tokenizer.special_ids):
            self.in_bytes = bool(BYTE.fullmatch(self.tokenizer.tokenizer.id_to_token(token) or ""))
        if self.in_bytes:
            return ""
        text = self._text(self.ids)
        # of bytes that are no character (yet) only the last "\ufffd" may still become one
        certain = text[:-1] if text.endswith(UNKNOWN) and not self.tokenizer._falls_back_to_bytes else text
        if not certain.startswith(self.given):
            return ""
        piece = certain[len(self.given) :]
        self.given = certain
        if piece and certain is text:
            self.ids = self.ids[self.covered :]
            self.given, self.covered = self._text(self.ids), len(self.ids)
        return piece

    def rest(self) -> str:
        """What was held back."""
        text = self._text(self.ids)
        same = (a == b for a, b in zip(text, self.given, strict=False))
        return text[len(list(takewhile(bool, same))) :]


def tokenizer_config(folder: Path) -> dict[str, Any]:
    """The content of tokenizer_config.json, {} if there is none; tokens of special_tokens_map.json, which older folders
    have, come first.  Raises DataError naming a broken file."""
    config = json_object(folder / CONFIG)
    if "added_tokens_decoder" not in config:  # in newer ones the map is a left-over
        config = {**config, **json_object(folder / MAP)}
    return config


def named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Name -> text of the special tokens of a tokenizer_config.json, what templates call them by."""
    extra = config.get("extra_special_tokens")
    given = {**config, **(extra if isinstance(extra, dict) else {})}
    wanted = {name: _content(value) for name, value in given.items() if name.endswith("_token")}
    if isinstance(extra, dict):
        wanted |= {name: _content(value) for name, value in extra.items()}
    return {name: text for name, text in wanted.items() if text is not None}


def json_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file, {} if there is none.  Raises DataError if it is no JSON object."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: expected an object, got {type(found).__name__}")
    return found


def file_bytes(path: Path) -> bytes:
    """The content of a file that must be there.  Raises DataError naming it."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. {ADVICE}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def _content(value: Any) -> str | None:
    """The text of a token that is given as text or as an object."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _add_tokens(tokenizer: Any, config: Mapping[str, Any], folder: Path) -> None:
    """Make special what a configuration calls special; such a token takes its id from the vocabulary, else the next."""
    listed = config.get("added_tokens_decoder") or {}
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    names = named_tokens(config)
    try:
        wanted = [listed[n] for n in sorted(listed, key=int)]
        wanted += [config.get(n, text) for n, text in names.items()]
        wanted += list(extra) if isinstance(extra, list) else []
        known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        for token in wanted:
            added = _added_token(token, special=not any(token is given for given in listed.values()))
            if added.content not in known:
                tokenizer.add_tokens([added])
                known.add(added.content)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(f"{folder / CONFIG}: its special tokens cannot be read: {error}") from None


def _added_token(token: Any, special: bool) -> Any:
    from tokenizers import AddedToken

    if isinstance(token, str):
        return AddedToken(token, special=True)
    fields = {name: value for name, value in token.items() if name != "__type"}
    return AddedToken(**({**fields, "special": True} if special else fields))


def _end_ids(folder: Path) -> list[int]:
    """eos_token_id of generation_config.json, else of config.json: one id or a list."""
    for name in (GENERATION, "config.json"):
        found = json_object(folder / name).get("eos_token_id")
        if found is None:
            continue
        ids = found if isinstance(found, list) else [found]
        if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in ids):
            raise DataError(f"{folder / name}: eos_token_id must be an id or a list of them, got {found!r}")
        return ids
    return []
