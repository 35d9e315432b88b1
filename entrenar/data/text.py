"""Text from files: which files, which of them are held out, and what was left out."""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

from ..io import DataError

STDLIB = "stdlib"  # a root that is on every machine with Python: the running interpreter's standard library
SKIPPED = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test", "lib2to3"}
LEAST = 2_000_000  # bytes of the standard library that must be there


@dataclass
class TextFiles:
    """Text files under a root, split by the hash of their path.

    train, held_out: (path relative to the root, text), sorted by path.  skipped: files that are not UTF-8.
    """

    root: str
    train: list[tuple[str, str]] = field(default_factory=list)
    held_out: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def train_text(self) -> str:
        return "".join(text for _, text in self.train)

    @property
    def held_out_text(self) -> str:
        return "".join(text for _, text in self.held_out)


def is_held_out(path: str, fraction: float) -> bool:
    """True for about ``fraction`` of all paths: sha256 of the path decides, so adding a file moves no other."""
    digest = hashlib.sha256(path.encode()).digest()
    return int.from_bytes(digest[:8], "big") < fraction * 2**64


def read_texts(root: str, pattern: str = "**/*.py", held_out: float = 0.05, max_bytes: int | None = None) -> TextFiles:
    """Read the files under ``root`` that match a glob pattern.

    root: a folder, or "stdlib".  held_out: the share of files kept for validation.  max_bytes: stop, in an order
    given by the hash of the paths, before the total would pass this; None reads all.
    Raises DataError if there is no such folder or text, or nothing on one side of the split.
    """
    folder = Path(sysconfig.get_paths()["stdlib"]) if root == STDLIB else Path(root)
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder (data.root)")
    paths = sorted(
        p for p in folder.glob(pattern) if p.is_file() and not (SKIPPED & set(p.relative_to(folder).parts[:-1]))
    )
    names = {p.relative_to(folder).as_posix(): p for p in paths}
    if root == STDLIB and (size := sum(p.stat().st_size for p in paths)) < LEAST:
        raise DataError(f"{folder}: the standard library has only {size:,} bytes of source here, {LEAST:,} are needed")
    order = sorted(names, key=lambda n: hashlib.sha256(n.encode()).digest()[8:])
    files, total, chosen = TextFiles(root), 0, {}
    for name in order:
        size = names[name].stat().st_size
        if max_bytes is not None and total + size > max_bytes:
            continue
        total += size
        chosen[name] = names[name]
    for name in sorted(chosen):
        try:
            text = chosen[name].read_text(encoding="utf-8")
        except UnicodeDecodeError:
            files.skipped.append(name)
            continue
        (files.held_out if is_held_out(name, held_out) else files.train).append((name, text))
    for side, part in (("training", files.train), ("validation", files.held_out)):
        if not any(text for _, text in part):
            raise DataError(
                f"{folder}: no {side} text among {len(chosen)} files that match {pattern!r} (held_out={held_out}, "
                f"max_bytes={max_bytes}, {len(files.skipped)} not UTF-8)"
            )
    return files
