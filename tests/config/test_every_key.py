"""What holds for every key there is (cases 169, 171, 172, 175), and what the schema says of each."""

from __future__ import annotations

import json
import re
import typing

import pytest
from pydantic import BaseModel

from entrenar.config import Config, json_schema, load_config
from entrenar.config.model import ABOUT, SECTIONS
from entrenar.io import ConfigError

FAMILY = "qwen2"  # it has most


def parts(annotation):
    """The types that an annotation is made of, but not of what is in a list or mapping."""
    if typing.get_origin(annotation) in (tuple, dict):
        return set()
    inner = [a for a in typing.get_args(annotation) if not isinstance(a, str)]
    return {annotation} if not inner else set().union(*map(parts, inner))


def walk(section, path=()):
    """(path, field) of every key below a section that is not a section itself."""
    for key, field in section.model_fields.items():
        sections = [a for a in parts(field.annotation) if isinstance(a, type) and issubclass(a, BaseModel)]
        if (*path, key) == ("model",):
            yield from walk(SECTIONS[FAMILY], ("model",))
        elif sections:
            yield from walk(sections[0], (*path, key))
        else:
            yield (*path, key), field


KEYS = dict(walk(Config))
IDS = [".".join(path) for path in KEYS]
TYPES = {path: parts(field.annotation) for path, field in KEYS.items()}
NUMBERS = [path for path in KEYS if {int, float} & TYPES[path]]
FLOATS = [path for path in KEYS if float in TYPES[path]]
assert len(NUMBERS) > 30 and len(FLOATS) > 10


def text_of(path, value, again=None):
    """YAML that sets one key, the family first where the key is the model's; the line and column of the key."""
    lines = [f"model: {{family: {FAMILY}}}"] if path[0] != "model" else []
    for depth, part in enumerate(path[:-1]):
        lines.append(f"{'  ' * depth}{part}:")
        if part == "model":
            lines.append(f"  family: {FAMILY}")
    pad = "  " * (len(path) - 1)
    if path == ("model", "family"):
        lines = ["model:"]
    lines.append(f"{pad}{path[-1]}: {value}")
    place = len(lines), len(pad) + 1
    if again is not None:
        lines.append(f"{pad}{path[-1]}: {again}")
    return "\n".join(lines) + "\n", place


def fault(tmp_path, text):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError) as found:
        load_config(tmp_path / "c.yaml")
    assert found.value.exit_status == 2
    return found.value


@pytest.mark.parametrize("path", KEYS, ids=IDS)
@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("010", 'write 10, or quote it ("010")'),
        ("12:30", 'quote it ("12:30")'),
        ("1_000", "write 1000"),
        ("-007", "is ambiguous"),
        ("!!python/name:os.system", "is not allowed"),
        ("[1, 2", "expected"),
        ("*nowhere", "undefined alias"),
    ],
)
def test_what_is_ambiguous_or_no_yaml_is_refused_at_its_place(tmp_path, path, value, advice):
    text, (line, _) = text_of(path, value)
    error = fault(tmp_path, text)
    assert advice in str(error) and error.line in (line, line + 1) and error.column


@pytest.mark.parametrize("path", KEYS, ids=IDS)
def test_a_key_that_stands_twice_is_told_with_both_lines(tmp_path, path):
    text, (line, column) = text_of(path, "1", again="2")
    error = fault(tmp_path, text)
    assert (error.line, error.column) == (line + 1, column)
    assert f"key {path[-1]!r} stands twice, first in line {line}" in str(error)


@pytest.mark.parametrize("path", KEYS, ids=IDS)
def test_a_misspelt_key_is_told_with_the_right_one(tmp_path, path):
    wrong = path[-1] + "x"
    text, (line, column) = text_of((*path[:-1], wrong), "1")
    error = fault(tmp_path, text)
    assert (error.line, error.column) == (line, column)
    assert f"unknown key {'.'.join((*path[:-1], wrong))!r}. Did you mean {path[-1]!r}?" in str(error)


@pytest.mark.parametrize("path", KEYS, ids=IDS)
def test_a_tab_is_told_with_its_place(tmp_path, path):
    text, _ = text_of(path, "1")
    lines = text.split("\n")
    at = next(n for n, line in enumerate(lines) if line.startswith("  "))
    lines[at] = lines[at].replace("  ", "\t", 1)
    error = fault(tmp_path, "\n".join(lines))
    assert error.line == at + 1 and error.column and "indent with spaces" in str(error)


@pytest.mark.parametrize("path", NUMBERS, ids=[".".join(path) for path in NUMBERS])
@pytest.mark.parametrize("value", ["1e-4x", "many", "yes", "true", '"1"', "[1]", "{a: 1}", ".nan", ".inf"])
def test_a_number_is_a_number(tmp_path, path, value):
    text, (line, column) = text_of(path, value)
    error = fault(tmp_path, text)
    assert (error.line, error.column) == (line, column) and ".".join(path) in str(error)


@pytest.mark.parametrize("path", FLOATS, ids=[".".join(path) for path in FLOATS])
def test_floats_in_every_spelling(tmp_path, path):
    for text, value in (("1e-4", 1e-4), ("1.5E-1", 0.15), (".5", 0.5), ("2e-1", 0.2), ("1.e-3", 1e-3)):
        (tmp_path / "c.yaml").write_text(text_of(path, text)[0])
        found = load_config(tmp_path / "c.yaml")
        for part in path:
            found = getattr(found, part)
        assert found == value and type(found) is float


def test_json_is_told_with_its_place(tmp_path):
    path = tmp_path / "c.json"
    for text, place in (
        ('{"data": {"seq_len": 4,}}', ":1:2"),
        ('{"data":\n {"seq_len" 4}}', ":2:13"),
        ("{'data': 1}", ":1:2"),
        ('{"data": {"seq_len": 4, "seq_len": 5}}', ":1:25: key 'seq_len' stands twice, first in line 1"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=re.escape(f"c.json{place}")):
            load_config(path)
    path.write_text('{"optimizer": {"lr": 1E-4}}')
    assert load_config(path).optimizer.lr == 1e-4


def test_every_key_is_described():
    assert [path for path, field in KEYS.items() if not field.description] == []
    assert [name for name, field in Config.model_fields.items() if not field.description] == []
    assert set(ABOUT) <= {key for section in SECTIONS.values() for key in section.model_fields}


def test_the_schema_judges_as_the_configuration_does(tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    judge = jsonschema.Draft202012Validator(json_schema())
    judge.check_schema(json_schema())
    good = [{}, {"model": {"family": "llama", "hidden_size": 64}}, json.loads(Config().model_dump_json())]
    good += [{"optimizer": {"lr": 1, "betas": [0.9, 0.95]}}, {"data": {"max_bytes": None}}]
    bad = [{"modle": {}}, {"data": {"seqlen": 4}}, {"optimizer": {"lr": 0}}, {"optimizer": {"lr": "1e-4"}}]
    bad += [{"model": {"family": "llama", "n_embd": 64}}, {"optimizer": {"betas": [0.9]}}, {"data": {"held_out": 1}}]
    bad += [{"model": {"family": "bert"}}, {"training": {"sample": {"top_k": 0}}}, {"training": {"seed": -1}}, []]
    for value, right in [*((v, True) for v in good), *((v, False) for v in bad)]:
        (tmp_path / "c.json").write_text(json.dumps(value))
        assert judge.is_valid(value) is right, value
        if right:
            load_config(tmp_path / "c.json")
        else:
            with pytest.raises(ConfigError):
                load_config(tmp_path / "c.json")
