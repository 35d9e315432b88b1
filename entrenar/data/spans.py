"""Where in a conversation the assistant speaks, exactly: by the template's marks, or by the texts of its beginnings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..array import Array
from ..io import DataError
from .chat import MARKS, ChatTemplate, marking

Span = tuple[int, int]
ADVICE = "mark what the assistant says in the template: {% generation %}...{% endgeneration %}"


def assistant_spans(
    template: ChatTemplate, messages: Sequence[Mapping[str, Any]], **names: Any
) -> tuple[str, list[Span]]:
    """The text of a conversation and where the assistant's words begin and end in it, in characters.

    A template's ``{% generation %}`` marks say it.  Without them: what assistant message k adds is the text of the
    first k + 1 messages beyond that of the first k with the prompt for an answer.  Taken only if each of these texts
    begins with the one before it and the whole with them all; and, where the template writes no prompt for an answer,
    if the words of the message come first.  names: variables of the template.
    Raises DataError where the texts do not show it, and errors as ``ChatTemplate.render``'s.
    """
    return _by_marks(template, messages, names) if template.marked else _by_beginnings(template, messages, names)


def _by_marks(template: ChatTemplate, messages: Any, names: Mapping[str, Any]) -> tuple[str, list[Span]]:
    text = template.render(messages, **names)
    with marking():
        marked = template.render(messages, **names)
    begin, end = MARKS
    spans: list[Span] = []
    plain, length, start = [], 0, None
    for piece in re.split(f"([{begin}{end}])", marked):
        if piece not in MARKS:
            plain.append(piece)
            length += len(piece)
        elif (piece == begin) != (start is None):
            raise DataError(f"{template.file}: its marks of generation are nested")
        elif start is None:
            start = length
        else:
            spans.append((start, length))
            start = None
    if "".join(plain) != text or start is not None:
        raise DataError(f"{template.file}: it changes the text that it marks as generation (by a filter, say)")
    return text, [span for span in spans if span[0] < span[1]]


def _by_beginnings(template: ChatTemplate, messages: Any, names: Mapping[str, Any]) -> tuple[str, list[Span]]:
    def unclear(why: str) -> DataError:
        return DataError(
            f"{template.file}: no marks show what of messages[{n}] the assistant says, and {why}: {ADVICE}"
        )

    text, spans = template.render(messages, **names), []
    for n, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        if n == 0:
            raise unclear("it is the first message")
        try:
            before = template.render(messages[:n], **names)
            asked = template.render(messages[:n], add_generation_prompt=True, **names)
            answered = template.render(messages[: n + 1], **names)
        except ValueError as error:
            raise unclear(f"the messages before it cannot be rendered alone ({error})") from None
        if not (asked.startswith(before) and answered.startswith(asked) and text.startswith(answered)):
            raise unclear("the text of the messages before it, with the prompt for an answer, is no part of the whole")
        if asked == before:
            content = message.get("content")
            words = content.strip() if isinstance(content, str) else ""
            if not words or not answered[len(asked) :].lstrip().startswith(words):
                raise unclear("the template has no prompt for an answer and does not begin it with the content")
        spans.append((len(asked), len(answered)))
    return text, spans


def overlapping(offsets: Array, spans: Sequence[Span]) -> list[tuple[int, int]]:
    """For each span of characters the tokens (first, last + 1) that hold any of it; offsets: (T, 2).

    As transformers' ``return_assistant_tokens_mask`` counts them.
    """
    found = []
    for begin, end in spans:
        inside = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > begin))
        if inside.size:
            found.append((int(inside[0]), int(inside[-1]) + 1))
    return found
