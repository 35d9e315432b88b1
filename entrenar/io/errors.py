"""Errors of files: each names the file, and its exit status on the command line."""

from __future__ import annotations

from ..array import EntrenarError


class ConfigError(EntrenarError, ValueError):
    """A configuration that cannot be used; prints as ``file:line:column: message``."""

    exit_status = 2

    def __init__(self, file: str, line: int | None, column: int | None, message: str) -> None:
        self.file, self.line, self.column, self.message = str(file), line, column, message
        place = "".join(f":{n}" for n in (line, column) if n is not None)
        super().__init__(f"{file}{place}: {message}")


class DataError(EntrenarError, ValueError):
    """A data or model file that cannot be used, or too little data."""

    exit_status = 3
