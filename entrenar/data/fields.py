"""Which fields of a record are the text, chosen by name from the first record, before anything else is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..array import nearest
from ..io import DataError
from .formats import Record

# what a record may hold, by the names its fields have unless they are given; optional ones may be missing
KINDS: dict[str, tuple[str, ...]] = {
    "text": ("text",),
    "chat": ("messages",),
    "pair": ("prompt", "response"),
    "tokens": ("input_ids",),
}
OPTIONAL: dict[str, tuple[str, ...]] = {"text": (), "chat": ("tools",), "pair": ("weight",), "tokens": ("weights",)}


class Fields(NamedTuple):
    """What kind of record it is, and the name of each of its fields: {"prompt": "question", "response": "answer"}."""

    kind: str
    names: dict[str, str]


def choose_fields(first: Record, kind: str | None = None, **names: str | None) -> Fields:
    """The kind of the records and their fields, from the first of them.

    kind: a key of KINDS; by default the one whose fields are there.  names: other names of its fields (text="content",
    prompt="question", response="answer", messages=, input_ids=, tools=, weight=, weights=).
    Raises DataError listing the fields found, with the nearest name, if one is missing or two kinds are there;
    ValueError for an unknown kind, TypeError for an unknown field.
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind {kind!r}: expected one of {list(KINDS)}.{nearest(kind, KINDS)}")
    given = {role: name for role, name in names.items() if name is not None}
    roles = {role: k for k in KINDS for role in (*KINDS[k], *OPTIONAL[k])}
    for role in given:
        if role not in roles:
            raise TypeError(f"choose_fields: unknown field {role!r}: known are {list(roles)}.{nearest(role, roles)}")
    kinds = {kind} if kind else {roles[role] for role in given}
    if not kinds:
        kinds = {k for k, needed in KINDS.items() if set(needed) <= set(first.fields)}
    if len(kinds) > 1:
        named = sorted((roles[role], role) for role in given if roles[role] in kinds)
        told = " and ".join(f"{role} ({k})" for k, role in named) or " and ".join(sorted(kinds))
        raise DataError(f"{first.place}: this may be {told}: give the kind. Found {sorted(first.fields)}")
    if not kinds:
        every = [name for needed in KINDS.values() for name in needed]
        wanted = "'text', 'messages', 'prompt' and 'response', or 'input_ids'"
        close = next((told for name in every if (told := closest(name, first.fields))), "")
        raise DataError(f"{first.place}: no field is {wanted}: found {sorted(first.fields)}.{close}")
    chosen = kinds.pop()
    known = (*KINDS[chosen], *OPTIONAL[chosen])
    if wrong := [role for role in given if role not in known]:
        raise DataError(
            f"{first.place}: records of kind {chosen!r} have no field {wrong[0]!r}: known are {list(known)}"
        )
    found = {role: given.get(role, role) for role in KINDS[chosen]}
    for role in OPTIONAL[chosen]:
        if role in given or role in first.fields:
            found[role] = given.get(role, role)
    for name in found.values():
        field(first, name)
    return Fields(chosen, found)


def field(record: Record, name: str) -> Any:
    """A field of a record.  Raises DataError listing those found, with the nearest name."""
    try:
        return record.fields[name]
    except KeyError:
        found = sorted(record.fields)
        raise DataError(f"{record.place}: no field {name!r}: found {found}.{closest(name, found)}") from None


def text_field(record: Record, name: str, empty: bool = False) -> str:
    """A field that holds text.  Raises DataError for anything else, and for no text at all unless ``empty``."""
    value = field(record, name)
    if not isinstance(value, str):
        raise DataError(f"{record.place}: field {name!r} must be text, got {type(value).__name__}")
    if not value and not empty:
        raise DataError(f"{record.place}: field {name!r} is empty")
    return value


def closest(name: str, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?``, whatever the case of the letters."""
    folded = {str(other).casefold(): str(other) for other in known}
    if told := nearest(name.casefold(), folded):
        near = told.removeprefix(" Did you mean '").removesuffix("'?")
        return f" Did you mean {folded.get(near, near)!r}?"
    return ""
