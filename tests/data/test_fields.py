"""The fields of records: chosen by name, and what is missing is told with what is there."""

import pytest

from entrenar.data import Record, choose_fields
from entrenar.data.fields import Fields, text_field
from entrenar.io import DataError


def first(*names):
    return Record("data.jsonl:1", dict.fromkeys(names, "x"))


@pytest.mark.parametrize(
    ("names", "given", "expected"),
    [
        (["id", "text"], {}, Fields("text", {"text": "text"})),
        (["messages", "tools"], {}, Fields("chat", {"messages": "messages", "tools": "tools"})),
        (["prompt", "response"], {}, Fields("pair", {"prompt": "prompt", "response": "response"})),
        (["input_ids", "weights"], {}, Fields("tokens", {"input_ids": "input_ids", "weights": "weights"})),
        (["text", "messages"], {"kind": "chat"}, Fields("chat", {"messages": "messages"})),
        (["text", "messages"], {"text": "text"}, Fields("text", {"text": "text"})),
        (["content"], {"text": "content"}, Fields("text", {"text": "content"})),
        (["q", "a", "text"], {"prompt": "q", "response": "a"}, Fields("pair", {"prompt": "q", "response": "a"})),
        (["prompt", "a"], {"response": "a"}, Fields("pair", {"prompt": "prompt", "response": "a"})),
        (["text"], {"text": None}, Fields("text", {"text": "text"})),
        (
            ["prompt", "response", "w"],
            {"weight": "w"},
            Fields("pair", {"prompt": "prompt", "response": "response", "weight": "w"}),
        ),
    ],
)
def test_which_fields(names, given, expected):
    assert choose_fields(first(*names), **given) == expected


@pytest.mark.parametrize(
    ("names", "given", "told"),
    [
        (["TEXT", "id"], {}, r"no field is 'text', .*: found \['TEXT', 'id'\]\. Did you mean 'TEXT'\?"),  # case 168
        (["TEXT", "id"], {"kind": "text"}, r"no field 'text': found \['TEXT', 'id'\]\. Did you mean 'TEXT'\?"),
        (["Message"], {}, r"found \['Message'\]\. Did you mean 'Message'\?"),
        (["conversation"], {"kind": "chat"}, r"no field 'messages': found \['conversation'\]\.$"),
        (["prompt", "completion"], {"prompt": "prompt"}, r"no field 'response': found \['completion', 'prompt'\]"),
        (["text"], {"text": "txet"}, r"no field 'txet': found \['text'\]\. Did you mean 'text'\?"),
        (["text", "messages"], {}, r"this may be chat and text: give the kind"),
        (["text", "prompt"], {"text": "text", "prompt": "prompt"}, r"this may be prompt \(pair\) and text \(text\)"),
        (["text"], {"kind": "text", "prompt": "text"}, r"records of kind 'text' have no field 'prompt'"),
        (["prompt", "response"], {"weight": "w"}, r"no field 'w'"),
    ],
)
def test_a_missing_field_is_told_with_those_found(names, given, told):
    with pytest.raises(DataError, match=rf"data\.jsonl:1: .*{told}") as caught:
        choose_fields(first(*names), **given)
    assert caught.value.exit_status == 3


def test_unknown_kinds_and_fields():
    with pytest.raises(ValueError, match=r"kind 'chats': expected .*Did you mean 'chat'"):
        choose_fields(first("text"), "chats")
    with pytest.raises(TypeError, match=r"unknown field 'promt'.*Did you mean 'prompt'"):
        choose_fields(first("text"), promt="x")


def test_a_field_that_is_no_text():
    record = Record("a:3", {"n": 3, "none": None, "empty": "", "text": "x"})
    assert text_field(record, "text") == "x" and text_field(record, "empty", empty=True) == ""
    for name, told in (("n", "must be text, got int"), ("none", "got NoneType"), ("empty", "is empty")):
        with pytest.raises(DataError, match=f"a:3: field '{name}' {told.replace('got', '.*got')}"):
            text_field(record, name)
