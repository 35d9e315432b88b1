"""What a run's configuration was before it was resumed with another one: changes.json, and the run in phases."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ..config import Config, load_config
from ..io import DataError
from .run_folder import RunFolder

FILE = "changes.json"


class Phase(NamedTuple):
    """From the update after step ``start`` on, ``config`` was in force."""

    start: int
    config: Config


def record_change(folder: RunFolder, step: int, new: Config) -> None:
    """Note what differs from config.yaml, which ``new`` will replace, if anything does: resumed from step ``step``."""
    old, now = (json.loads(config.model_dump_json()) for config in (load_config(folder / "config.yaml"), new))
    before: dict[str, dict[str, Any]] = {}
    for section, keys in old.items():
        if changed := {key: value for key, value in keys.items() if now[section][key] != value}:
            before[section] = changed
    if before:
        entries = [*_entries(folder), {"step": step, "before": before}]
        folder.write(FILE, json.dumps(entries, indent=1) + "\n")


def phases(folder: RunFolder) -> list[Phase]:
    """The configurations of a run, first to last; the first starts at 0.  Raises DataError for a damaged file."""
    config = load_config(folder / "config.yaml")
    entries = _entries(folder)
    configs = [config]
    for entry in reversed(entries):
        then = json.loads(configs[-1].model_dump_json())
        for section, keys in entry["before"].items():
            then[section].update(keys)
        configs.append(Config.model_validate_json(json.dumps(then)))
    found = [Phase(0, configs[-1])]
    for entry, config in zip(entries, reversed(configs[:-1]), strict=True):
        while len(found) > 1 and found[-1].start > entry["step"]:  # resumed from before an earlier change
            found.pop()
        found.append(Phase(entry["step"], config))
    return found


def _entries(folder: RunFolder) -> list[dict[str, Any]]:
    path = folder / FILE
    if not path.exists():
        return []
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        if all(set(entry) == {"step", "before"} and isinstance(entry["step"], int) for entry in entries):
            return list(entries)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    raise DataError(f"{path}: expected a list of {{step, before}}")
