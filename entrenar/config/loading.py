"""From a file and ``a.b=value`` overrides to a Config; every error has file:line and the nearest name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from ..array import nearest
from ..io import ConfigError, yaml as strict_yaml
from .schema import Config

COMMAND_LINE = "command line"


def load_config(path: str | Path, overrides: Iterable[str] = ()) -> Config:
    """Read, override, validate.  overrides: ``section.key=value`` with the value in YAML.

    Raises ConfigError: unknown keys with the nearest known one, wrong types and ranges with the value, all with line.
    """
    document = strict_yaml.load(path)
    value = {} if document.value is None else document.value
    if not isinstance(value, dict):
        raise document.error((), f"expected sections (model, data, ...), got {type(value).__name__}")
    set_by_hand: dict[tuple[Any, ...], str] = {}
    for override in overrides:
        _override(value, override, set_by_hand)
    try:
        return Config.model_validate(_for_pydantic(value))
    except ValidationError as error:
        raise _explained(document, error, value, set_by_hand) from None


def _override(tree: dict[str, Any], override: str, set_by_hand: dict[tuple[Any, ...], str]) -> None:
    name, equals, text = override.partition("=")
    keys = tuple(name.strip().split("."))
    if not equals or not all(keys):
        raise ConfigError(COMMAND_LINE, None, None, f"{override!r}: expected section.key=value")
    here: Any = tree
    for i, key in enumerate(keys[:-1]):
        if here.get(key) is None:
            here[key] = {}
        here = here[key]
        if not isinstance(here, dict):
            raise ConfigError(COMMAND_LINE, None, None, f"{override!r}: {'.'.join(keys[: i + 1])} is no section")
    here[keys[-1]] = strict_yaml.loads(text, f"{COMMAND_LINE}: {name}").value
    set_by_hand[keys] = name


def _for_pydantic(value: Any) -> Any:
    """YAML has lists where the schema has tuples; an empty section is an empty mapping."""
    if isinstance(value, dict):
        return {k: _for_pydantic(v) if v is not None or k not in Config.model_fields else {} for k, v in value.items()}
    return tuple(_for_pydantic(v) for v in value) if isinstance(value, list) else value


def _explained(
    document: strict_yaml.Document, error: ValidationError, value: Any, set_by_hand: dict[tuple[Any, ...], str]
) -> ConfigError:
    """The first fault as a ConfigError at its place."""
    fault = error.errors(include_url=False)[0]
    path = tuple(fault["loc"])
    name = ".".join(str(p) for p in path)
    if fault["type"] == "extra_forbidden":
        message = f"unknown key {name!r}.{nearest(str(path[-1]), _fields(path[:-1]))}"
    else:
        text = fault["msg"].removeprefix("Value error, ")
        got = fault["input"]
        shown = "" if isinstance(got, (dict, BaseModel)) else f", got {got!r}"
        message = f"{name}: {text[0].lower() + text[1:]}{shown}" if name else text
        if isinstance(got, str) and "number" in text and got.lower() not in ("true", "false"):
            message += " (text)"
    for keys, given in set_by_hand.items():
        if keys[: len(path)] == path[: len(keys)] and path:
            return ConfigError(f"{COMMAND_LINE}: {given}", None, None, message)
    return document.error(_known(document, path), message)


def _known(document: strict_yaml.Document, path: Sequence[Any]) -> tuple[Any, ...]:
    end = len(path)
    while end and tuple(path[:end]) not in document.positions:
        end -= 1
    return tuple(path[:end])


def _fields(path: Sequence[Any]) -> list[str]:
    """The known keys of the section at ``path``."""
    section: Any = Config
    for key in path:
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
    return Config.model_json_schema()
