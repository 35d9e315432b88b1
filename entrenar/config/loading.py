"""From a file and ``a.b=value`` overrides to a Config; every error has file:line and the nearest name."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from ..array import nearest
from ..io import ConfigError, yaml as strict_yaml
from ..models.configuration import FieldError
from .aliases import AXOLOTL, read_aliases
from .model import DEFAULT, FROM_TOKENIZER, SECTIONS
from .schema import Config

COMMAND_LINE = "command line"


def load_config(path: str | Path, overrides: Iterable[str] = (), tell: Callable[[str], None] | None = None) -> Config:
    """Read, override, validate.  overrides: ``section.key=value`` with the value in YAML.

    tell: called with a line for each key that stands under axolotl's name; a warning each if None.
    Raises ConfigError: unknown keys with the nearest known one, wrong types and ranges with the value, keys given
    twice, all with line.
    """
    document = strict_yaml.load(path)
    value = {} if document.value is None else document.value
    if not isinstance(value, dict):
        raise document.error((), f"expected sections (model, data, ...), got {type(value).__name__}")
    for told in read_aliases(document, value):
        if tell is None:
            warnings.warn(f"{document.file}: {told}", stacklevel=2)
        else:
            tell(f"{document.file}: {told}")
    set_by_hand: dict[tuple[Any, ...], str] = {}
    for override in overrides:
        _override(value, override, set_by_hand)
    try:
        return Config.model_validate(_for_pydantic(value))
    except ValidationError as error:
        raise _explained(document, error, set_by_hand) from None


def _override(tree: dict[str, Any], override: str, set_by_hand: dict[tuple[Any, ...], str]) -> None:
    name, equals, text = override.partition("=")
    keys = tuple(name.strip().split("."))
    if not equals or not all(keys):
        raise ConfigError(COMMAND_LINE, None, None, f"{override!r}: expected section.key=value")
    for other in set_by_hand:
        if keys[: len(other)] == other or other[: len(keys)] == keys:
            both = name if keys == other else f"{'.'.join(other)} and {name}"
            raise ConfigError(COMMAND_LINE, None, None, f"{both}: given twice, give one value")
    here: Any = tree
    for i, key in enumerate(keys[:-1]):
        if here.get(key) is None:
            here[key] = {}
        here = here[key]
        if not isinstance(here, dict):
            raise ConfigError(COMMAND_LINE, None, None, f"{override!r}: {'.'.join(keys[: i + 1])} is no section")
    here[keys[-1]] = strict_yaml.loads(text, f"{COMMAND_LINE}: {name}").value
    set_by_hand[keys] = name


def _for_pydantic(value: dict[str, Any]) -> dict[str, Any]:
    """YAML has lists where the schema has tuples; an empty section is an empty mapping."""
    return {k: {} if v is None and k in Config.model_fields else _tuples(v) for k, v in value.items()}


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def _explained(
    document: strict_yaml.Document, error: ValidationError, set_by_hand: dict[tuple[Any, ...], str]
) -> ConfigError:
    """The first fault as a ConfigError at its place."""
    fault = error.errors(include_url=False)[0]
    path, family = _without_family(tuple(fault["loc"]))
    cause = fault.get("ctx", {}).get("error")
    places = [path]
    if fault["type"] == "union_tag_invalid":
        tag = str(fault["ctx"]["tag"])
        places = [(*path, "family")]
        message = f"model.family: unknown decoder {tag!r}: known are {sorted(SECTIONS)}.{nearest(tag, SECTIONS)}"
    elif fault["type"] == "extra_forbidden":
        message = f"unknown key {_name(path)!r}{_instead(path, family)}"
    elif isinstance(cause, FieldError):
        named = re.findall(r"\w+", cause.text)  # the other fields that it does not go with, too
        places = [(*path, name) for name in (cause.field, *named)]
        message = f"{_name(places[0])}: {cause.text.removeprefix(cause.field).lstrip(' =')}"
    else:
        text, got = fault["msg"].removeprefix("Value error, "), fault["input"]
        shown = "" if isinstance(got, (dict, BaseModel)) else f", got {got!r}"
        message = f"{_name(path)}: {text[0].lower() + text[1:]}{shown}" if path else text
        if isinstance(got, str) and "number" in text and got.lower() not in ("true", "false"):
            message += " (text)"
    for keys, given in set_by_hand.items():
        if any(place and keys[: len(place)] == place[: len(keys)] for place in places):
            return ConfigError(f"{COMMAND_LINE}: {given}", None, None, message)
    return document.error(next((place for place in places if place in document.positions), places[0]), message)


def _name(path: Sequence[Any]) -> str:
    return ".".join(map(str, path))


def _without_family(path: tuple[Any, ...]) -> tuple[tuple[Any, ...], str | None]:
    """pydantic's path without the architecture that it has after "model", and that."""
    return ((path[0], *path[2:]), path[1]) if path[0:1] == ("model",) and len(path) > 1 else (path, None)


def _instead(path: Sequence[Any], family: str | None) -> str:
    """What could have been meant by the unknown key at ``path``: the architectures that have it, or the nearest one."""
    key = str(path[-1])
    if family and key in FROM_TOKENIZER:
        return ": the tokenizer decides it"
    owners = [name for name, section in SECTIONS.items() if family and key in section.model_fields]
    if owners:
        return f" for family {family!r}, it is one of {', '.join(owners)}"
    if len(path) == 1:
        families = {"model": DEFAULT}
        owners = [f"{top}.{key}" for top in Config.model_fields if key in _fields([top], families.get(top))]
        if owners:
            return f": it is {' or '.join(owners)}"
        return f".{nearest(key, [*_fields([], None), *AXOLOTL])}"
    return f".{nearest(key, _fields(path[:-1], family))}"


def _fields(path: Sequence[Any], family: str | None) -> list[str]:
    """The known keys of the section at ``path``."""
    section: Any = Config
    for key in path:
        if section is Config and family:
            section = SECTIONS[family]
            continue
        found = section.model_fields[key].annotation
        section = next((a for a in (found, *get_args(found)) if isinstance(a, type) and issubclass(a, BaseModel)), None)
        if section is None:
            return []
    return list(section.model_fields)


def dump_config(config: Config) -> str:
    """The complete configuration as YAML: ``load_config`` reads back the same."""
    return strict_yaml.dumps(config.model_dump(mode="json"))


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a configuration file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}
