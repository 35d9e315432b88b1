"""Files and folders that are there whole or not at all: written aside, synced, renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

ASIDE = ".writing-"  # names that start so are never read


def sync(path: Path) -> None:
    """Flush a file or a folder's list of names to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def atomic_write(path: str | Path, content: bytes | str | Callable[[BinaryIO], None]) -> None:
    """Write a file so that a reader, or a crash at any moment, sees the old content or the new one, nothing between.

    content: bytes, text (UTF-8), or a function that writes to the open file.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(prefix=ASIDE, dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o644)
        os.replace(aside, target)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    sync(target.parent)


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Fill a folder aside; it takes its name when the body is done, replacing an older one of that name.

    A kill leaves the old folder or the new one; what was being written stays aside and is removed the next time.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f"{ASIDE}{target.name}-*"):
        shutil.rmtree(left, ignore_errors=True)
    aside = Path(tempfile.mkdtemp(prefix=f"{ASIDE}{target.name}-", dir=target.parent))
    try:
        yield aside
        for inside in aside.rglob("*"):
            sync(inside)
        sync(aside)
        os.chmod(aside, 0o755)
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f"{ASIDE}{target.name}-", dir=target.parent))
            os.replace(target, old / target.name)
            os.replace(aside, target)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(aside, target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    sync(target.parent)
