"""Conversations as examples: what the assistant says is trained, to the token that ends its turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..array import Array
from ..io import DataError
from .chat import ChatTemplate, single_bos
from .encoding import at_place, encoder
from .example import Example, check_trained
from .fields import field
from .formats import Record
from .interface import Tokenizer
from .spans import assistant_spans, overlapping


@encoder("chat")
class ChatEncoder:
    """A conversation as its template writes it: what the assistant says is trained, each turn to its end-of-turn token.

    What is said comes from the template's marks, or, without them, from the texts of the conversation's beginnings
    (``assistant_spans``).  A turn ends on the special token that ends what is marked (blanks after it are not trained),
    else on an end token right after it.
    end_tokens: texts of end-of-turn tokens beside those of ``tokenizer.end_ids``.  tools: the field with a list of
    tools.  names: variables of the template.
    Raises ValueError for an end token that the tokenizer does not have.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        messages: str = "messages",
        tools: str | None = None,
        end_tokens: Sequence[str] = (),
        names: Mapping[str, Any] | None = None,
    ) -> None:
        self.tokenizer, self.template, self.tools, self.names = tokenizer, template, tools, dict(names or {})
        self.messages, self.fields = messages, (messages,) if tools is None else (messages, tools)
        self.end_tokens, ends = tuple(end_tokens), set(tokenizer.end_ids)
        for text in end_tokens:
            ids = tokenizer.encode(text, add_special_tokens=False)
            if len(ids) != 1:
                raise ValueError(f"end token {text!r}: expected one token of the tokenizer, it has {len(ids)}")
            ends.add(int(ids[0]))
        self._ends, self._special = ends, ends | tokenizer.special_ids

    def options(self) -> dict[str, Any]:
        names = {"messages": self.messages, "tools": self.tools}
        template = [self.template.source, self.template.special_tokens, self.names]
        how = {"template": template, "end_tokens": self.end_tokens}
        return {"kind": "chat", "tokenizer": self.tokenizer.sha256, "fields": names, **how}

    def __call__(self, records: Sequence[Record]) -> list[Example]:
        return [self._example(record) for record in records]

    def _example(self, record: Record) -> Example:
        names = self.names if self.tools is None else {**self.names, "tools": record.fields.get(self.tools)}
        try:
            text, spans = assistant_spans(self.template, field(record, self.messages), **names)
            ids, offsets = self.tokenizer.encode_with_offsets(text, add_special_tokens=False)
        except (TypeError, ValueError) as error:
            raise at_place(record, error) from None
        kept = single_bos(ids, self.tokenizer.bos_token_id, self.template.file)
        ids, offsets = kept, offsets[len(ids) - len(kept) :]
        weights = np.zeros(len(ids), np.float32)
        for turn, (first, end) in enumerate(overlapping(offsets, spans)):
            weights[first : self._turn_end(ids, offsets, text, first, end, f"{record.place}: turn {turn}")] = 1
        return check_trained(Example(ids, weights, record.place))

    def _turn_end(self, ids: Array, offsets: Array, text: str, first: int, end: int, place: str) -> int:
        """One after the last trained token of a turn whose tokens are first ... end - 1."""
        last = end - 1
        while last > first and ids[last] not in self._special and text[slice(*offsets[last])].isspace():
            last -= 1
        if ids[last] in self._special:
            return last + 1
        if end < len(ids) and ids[end] in self._ends:
            return end + 1
        said, after = text[slice(*offsets[end - 1])], text[slice(*offsets[end])] if end < len(ids) else ""
        raise DataError(
            f"{place} of the assistant ends on {said!r}, before {after!r}: on no end-of-turn token, so the model would "
            "never learn to stop. Mark that token in the template with what is said, or name it in end_tokens"
        )
