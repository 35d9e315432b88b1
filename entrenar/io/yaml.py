"""Strict YAML: the scalars of YAML 1.2's core schema, positions kept, everything ambiguous refused.

PyYAML parses; what a scalar means is decided here (PyYAML follows YAML 1.1: 1e-4 is text, 010 is 8, no is False).
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import yaml

from .errors import ConfigError

Position = tuple[int, int]
Key = tuple[Any, ...]
NULL = re.compile(r"~|null|Null|NULL|")
TRUE, FALSE = re.compile(r"true|True|TRUE"), re.compile(r"false|False|FALSE")
INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
BASED = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
SPECIAL = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
UNDERSCORED = re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?")
LEADING_ZERO = re.compile(r"[-+]?0[0-9]+(\.[0-9]*)?")
SEXAGESIMAL = re.compile(r"[-+]?[0-9]+(:[0-9]{1,2})+(\.[0-9]*)?")


_RESOLVER = yaml.resolver.Resolver()  # what PyYAML would tag plain text: any other tag was written by hand


class Document:
    """A parsed document: plain values, and where each stands (path of keys -> line and column, from 1)."""

    def __init__(self, file: str, value: Any, positions: dict[Key, Position]) -> None:
        self.file, self.value, self.positions = file, value, positions

    def error(self, path: Key, message: str) -> ConfigError:
        """A ConfigError at the value of ``path`` (or at the nearest one that stands in the file)."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.positions:
                return ConfigError(self.file, *self.positions[path[:end]], message)
        return ConfigError(self.file, None, None, message)


def load(path: str | Path) -> Document:
    """Read a .yaml, .yml or .json file.  Raises ConfigError with file, line and column."""
    file = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(file, None, None, f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(file, None, None, f"is not UTF-8 text (byte {error.start})") from None
    if file.endswith(".json"):
        try:
            json.loads(text)  # JSON is YAML to the parser below; this refuses what is only YAML
        except json.JSONDecodeError as error:
            raise ConfigError(file, error.lineno, error.colno, error.msg) from None
    return loads(text, file)


def loads(text: str, file: str = "<text>") -> Document:
    """Parse one YAML document.  Raises ConfigError."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = " ".join(str(error.problem or error.context).split())
        if "\\t" in message:
            message += ": indent with spaces"
        raise ConfigError(file, mark.line + 1 if mark else None, mark.column + 1 if mark else None, message) from None
    except yaml.YAMLError as error:
        raise ConfigError(file, None, None, str(error)) from None
    positions: dict[Key, Position] = {}
    return Document(file, None if node is None else _build(node, (), positions, file, ()), positions)


def _place(node: Any) -> Position:
    if node.start_mark is None:  # made for dumping, not read
        return 1, 1
    return node.start_mark.line + 1, node.start_mark.column + 1


def _build(node: Any, path: Key, positions: dict[Key, Position], file: str, above: tuple[int, ...]) -> Any:
    positions[path] = _place(node)
    if id(node) in above:
        raise ConfigError(file, *_place(node), "an anchor that contains itself")
    above = (*above, id(node))
    if isinstance(node, yaml.ScalarNode):
        return scalar(node, file)
    if isinstance(node, yaml.SequenceNode):
        _check_tag(node, "tag:yaml.org,2002:seq", file)
        return [_build(child, (*path, i), positions, file, above) for i, child in enumerate(node.value)]
    _check_tag(node, "tag:yaml.org,2002:map", file)
    made: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key_node, child in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
        if key is None:
            raise ConfigError(file, *_place(key_node), "a key must be plain text")
        line, column = _place(key_node)
        if key in made:
            raise ConfigError(file, line, column, f"key {key!r} stands twice, first in line {lines[key]}")
        lines[key] = line
        made[key] = _build(child, (*path, key), positions, file, above)
        positions[(*path, key)] = (line, column)
    return made


def _check_tag(node: Any, expected: str, file: str) -> None:
    if node.tag != expected:
        raise ConfigError(file, *_place(node), f"tag {node.tag!r} is not allowed")


def scalar(node: Any, file: str) -> Any:
    """The value of one scalar node.  Quoted text is text; what is ambiguous between YAML versions is an error."""
    text = node.value
    if node.style is not None:
        return text
    if node.tag != _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)) and node.tag != "tag:yaml.org,2002:str":
        raise ConfigError(file, *_place(node), f"tag {node.tag!r} is not allowed")
    if NULL.fullmatch(text):
        return None
    if TRUE.fullmatch(text) or FALSE.fullmatch(text):
        return bool(TRUE.fullmatch(text))
    if INTEGER.fullmatch(text):
        return int(text)
    if BASED.fullmatch(text):
        return int(text, 0)
    if FLOAT.fullmatch(text):
        return float(text)
    if text.lower() in SPECIAL:
        return SPECIAL[text.lower()]
    if UNDERSCORED.fullmatch(text):
        raise ConfigError(file, *_place(node), f"{text} is not a number: write {text.replace('_', '')}")
    if LEADING_ZERO.fullmatch(text):
        short = text.lstrip("+-0") or "0"
        raise ConfigError(file, *_place(node), f'{text} is ambiguous: write {short}, or quote it ("{text}") for text')
    if SEXAGESIMAL.fullmatch(text):
        raise ConfigError(file, *_place(node), f'{text} is ambiguous: quote it ("{text}") for text')
    return text


class _Dumper(yaml.SafeDumper):
    """Writes what ``loads`` reads back exactly."""


def _text(dumper: yaml.SafeDumper, value: str) -> Any:
    plain = yaml.ScalarNode("tag:yaml.org,2002:str", value)
    try:
        same = scalar(plain, "") == value and value.strip() == value and value.isprintable()
    except ConfigError:
        same = False
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if same else '"')


def _number(dumper: yaml.SafeDumper, value: float) -> Any:
    text = {math.inf: ".inf", -math.inf: "-.inf"}.get(value, ".nan" if math.isnan(value) else repr(value))
    if "e" in text and "." not in text:  # YAML 1.1 readers want the point: 1e-05 -> 1.0e-05
        text = text.replace("e", ".0e")
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(float, _number)


def dumps(value: Any) -> str:
    """YAML text that ``loads`` reads back as the same value: keys in order, floats exact."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
