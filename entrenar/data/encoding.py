"""Records as examples: which tokens they are, and which of them are trained.  One row of a table per kind of record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from ..array import Array, Generator
from ..io import DataError
from .chat import ChatTemplate, single_bos
from .example import Example, as_example, check_trained
from .fields import Fields, field, text_field
from .formats import Record
from .interface import Tokenizer
from .records import Part, Records

CHUNK = 64  # records that are encoded at once, so that a tokenizer may use all cores

ENCODERS: dict[str, Callable[..., Encoder]] = {}


class Encoder(Protocol):
    """What makes examples of records.  fields: those of a record that it reads."""

    fields: tuple[str, ...]

    def __call__(self, records: Sequence[Record]) -> list[Example]:
        """An example of each record.  Raises DataError naming the place of one that cannot be trained on."""
        ...

    def options(self) -> dict[str, Any]:
        """All that decides the examples of given records, in what JSON can hold; tokenizers by their hash."""
        ...


def encoder_for(fields: Fields, tokenizer: Tokenizer, template: ChatTemplate | None = None, **options: Any) -> Encoder:
    """The encoder of records with such fields (``choose_fields``).  template: of chat messages; options: the encoder's.

    Raises DataError for messages without a template, TypeError for an unknown option.
    """
    if fields.kind == "chat":
        if template is None:
            raise DataError(
                f"field {fields.names['messages']!r} holds messages: they need a chat template, and none is here"
            )
        options = {"template": template, **options}
    return ENCODERS[fields.kind](tokenizer, **fields.names, **options)


def encoder(kind: str) -> Callable[[Any], Any]:
    """Enter a class into ENCODERS."""

    def enter(cls: Any) -> Any:
        ENCODERS[kind] = cls
        return cls

    return enter


class EncodedRecords:
    """The examples of records, encoded as they are read: a source of ``ExampleBatches`` that keeps nothing."""

    def __init__(self, records: Records | Part, encode: Encoder) -> None:
        self.records, self.encode = records, encode

    def __iter__(self) -> Iterator[Example]:
        return (example for example, _ in self.read())

    def read(
        self, place: Sequence[int] | None = None, order: Generator | None = None
    ) -> Iterator[tuple[Example, list[int]]]:
        """The examples from a place on, each with the place after it; see ``Records.read``."""
        chunk: list[tuple[Record, list[int]]] = []
        for pair in self.records.read(place, order, self.encode.fields):
            chunk.append(pair)
            if len(chunk) == CHUNK:
                yield from self._encoded(chunk)
                chunk = []
        yield from self._encoded(chunk)

    def _encoded(self, chunk: list[tuple[Record, list[int]]]) -> Iterator[tuple[Example, list[int]]]:
        examples = self.encode([record for record, _ in chunk]) if chunk else []
        return zip(examples, (after for _, after in chunk), strict=True)


# what stands around a text --------------------------------------------------------------------------------------
def frame(tokenizer: Tokenizer) -> tuple[Array, Array]:
    """The ids that a tokenizer puts before and after every text."""
    bare, whole = tokenizer.encode("a", add_special_tokens=False), tokenizer.encode("a")
    for start in range(len(whole) - len(bare) + 1):
        if np.array_equal(whole[start : start + len(bare)], bare):
            return whole[:start], whole[start + len(bare) :]
    raise DataError("the tokenizer puts its special tokens not around a text but within")


class _Framed:
    """BOS before and EOS after: each as often as it should be, whatever tokenizer, text and options say of it."""

    def __init__(self, tokenizer: Tokenizer, eos: bool) -> None:
        self.tokenizer, self.eos = tokenizer, eos
        self.before, self.after = frame(tokenizer)
        end = tokenizer.eos_token_id
        if eos and end is None:
            raise ValueError("eos=True: the tokenizer names no eos_token")
        if eos and (not len(self.after) or self.after[-1] != end):
            self.after = np.array([*self.after, end])

    def begin(self, ids: Array, place: str) -> Array:
        """The ids with what stands before a text."""
        return single_bos(np.concatenate([self.before, ids]), self.tokenizer.bos_token_id, place)

    def end(self, ids: Array) -> Array:
        """The ids with what stands after a text, unless they end so already."""
        there = len(self.after) and np.array_equal(ids[-len(self.after) :], self.after)
        return ids if there else np.concatenate([ids, self.after])


@encoder("text")
class TextEncoder:
    """A text: what the tokenizer puts before it, its tokens, EOS.  All are trained.

    eos: whether an EOS ends it; by default if the tokenizer has one.
    """

    def __init__(self, tokenizer: Tokenizer, text: str = "text", eos: bool | None = None) -> None:
        self.tokenizer, self.fields = tokenizer, (text,)
        self._framed = _Framed(tokenizer, tokenizer.eos_token_id is not None if eos is None else eos)

    def options(self) -> dict[str, Any]:
        return {"kind": "text", "tokenizer": self.tokenizer.sha256, "fields": self.fields, "eos": self._framed.eos}

    def __call__(self, records: Sequence[Record]) -> list[Example]:
        texts = [text_field(record, self.fields[0]) for record in records]
        encoded = _told(records, lambda: self.tokenizer.encode_batch(texts, add_special_tokens=False), texts)
        return [
            check_trained(Example(self._framed.end(self._framed.begin(ids, record.place)), None, record.place))
            for record, ids in zip(records, encoded, strict=True)
        ]


@encoder("pair")
class PairEncoder:
    """A prompt and its response: the response and the EOS after it are trained, from its first token on.

    The prompt's tokens are those that it has alone, as when a model is asked.  The response's are those that follow
    them in the whole text; where a token would stand across the border, those that it has alone.
    separator: text after each prompt, not trained.  weight: a field with a number, how much this response counts (a
    teacher's log).  eos: whether an EOS ends the response; without one a model never learns to stop.
    Raises ValueError for a tokenizer without an eos_token unless eos is False.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: str = "prompt",
        response: str = "response",
        weight: str | None = None,
        separator: str = "",
        eos: bool = True,
    ) -> None:
        self.tokenizer, self.separator, self.weight = tokenizer, separator, weight
        self.prompt, self.response = prompt, response
        self.fields = (prompt, response) if weight is None else (prompt, response, weight)
        self._framed = _Framed(tokenizer, eos)

    def options(self) -> dict[str, Any]:
        names = {"prompt": self.prompt, "response": self.response, "weight": self.weight}
        how = {"separator": self.separator, "eos": self._framed.eos}
        return {"kind": "pair", "tokenizer": self.tokenizer.sha256, "fields": names, **how}

    def __call__(self, records: Sequence[Record]) -> list[Example]:
        prompts = [text_field(record, self.prompt, empty=True) + self.separator for record in records]
        responses = [text_field(record, self.response) for record in records]
        wholes = [a + b for a, b in zip(prompts, responses, strict=True)]
        texts = [*prompts, *wholes, *responses]
        encoded = _told(records, lambda: self.tokenizer.encode_batch(texts, add_special_tokens=False), wholes)
        n = len(records)
        parts = zip(records, encoded[:n], encoded[n : 2 * n], encoded[2 * n :], strict=True)
        return [self._example(*part) for part in parts]

    def _example(self, record: Record, asked: Array, whole: Array, alone: Array) -> Example:
        place = record.place
        answer = whole[len(asked) :] if np.array_equal(whole[: len(asked)], asked) else alone
        if not len(answer):
            raise DataError(f"{place}: field {self.response!r} has no tokens")
        begun, answer = self._framed.begin(asked, place), self._framed.end(answer)
        if not len(begun):
            raise DataError(f"{place}: nothing stands before the response: no prompt, and the tokenizer puts no BOS")
        weights = np.zeros(len(begun) + len(answer), np.float32)
        weights[len(begun) :] = self._weight(record)
        return check_trained(Example(np.concatenate([begun, answer]), weights, place))

    def _weight(self, record: Record) -> float:
        if self.weight is None:
            return 1.0
        value = field(record, self.weight)
        try:
            number = float(value) if not isinstance(value, bool) else float("nan")
        except (TypeError, ValueError):
            number = float("nan")
        if not 0 <= number < float("inf"):
            raise DataError(f"{record.place}: field {self.weight!r} must be a number of at least 0, got {value!r}")
        return number


@encoder("tokens")
class TokenEncoder:
    """Token ids as they stand in the record, and a weight each if there are any: a log of a teacher with its mask."""

    def __init__(self, tokenizer: Tokenizer, input_ids: str = "input_ids", weights: str | None = None) -> None:
        self.tokenizer, self.ids, self.weights = tokenizer, input_ids, weights
        self.fields = (input_ids,) if weights is None else (input_ids, weights)

    def options(self) -> dict[str, Any]:
        return {"kind": "tokens", "vocab_size": self.tokenizer.vocab_size, "fields": self.fields}

    def __call__(self, records: Sequence[Record]) -> list[Example]:
        return [self._example(record) for record in records]

    def _example(self, record: Record) -> Example:
        ids = _list(record, self.ids)
        if wrong := [n for n in ids if isinstance(n, bool) or not isinstance(n, int)]:
            raise DataError(f"{record.place}: field {self.ids!r} must hold integers, got {wrong[0]!r}")
        if wrong := [n for n in ids if not 0 <= n < self.tokenizer.vocab_size]:
            raise DataError(
                f"{record.place}: field {self.ids!r}: id {wrong[0]} is outside the vocabulary of "
                f"{self.tokenizer.vocab_size} tokens"
            )
        weights = None if self.weights is None else _list(record, self.weights)
        given: Any = np.array(ids, np.int64)
        try:
            return as_example(given if weights is None else (given, np.array(weights, np.float32)), record.place)
        except (TypeError, ValueError) as error:
            raise at_place(record, error) from None


def _list(record: Record, name: str) -> list[Any]:
    value = field(record, name)
    if not isinstance(value, list):
        raise DataError(f"{record.place}: field {name!r} must be a list, got {type(value).__name__}")
    return value


def at_place(record: Record, error: Exception) -> DataError:
    """An error as one of data that names the record's place."""
    return DataError(str(error) if str(error).startswith(record.place) else f"{record.place}: {error}")


def _told(records: Sequence[Record], encode: Callable[[], list[Array]], texts: Sequence[str]) -> list[Array]:
    """What ``encode`` gives; a text that is no UTF-8 is told with the place of its record."""
    try:
        return encode()
    except ValueError as error:
        for record, text in zip(records, texts, strict=True):
            try:
                text.encode()
            except UnicodeEncodeError:
                raise at_place(record, error) from None
        raise
