"""From errors to messages and exit statuses: 0 done, 1 failed, 2 usage or configuration, 3 data, 130 or 143 signal."""

from __future__ import annotations

import functools
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn, TypeVar

import typer

F = TypeVar("F", bound=Callable[..., Any])
FAILED, INTERRUPTED, TERMINATED = 1, 130, 143


class State:
    """Options that stand before the command."""

    verbose: bool = False
    quiet: bool = False
    json: bool = False
    no_color: bool = False


STATE = State()


def guarded(command: F) -> F:
    """The command with its errors told on stderr, without a traceback unless ``-v``, and its exit status."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        before = _watch_sigterm()
        try:
            return command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt:
            _end("interrupted", INTERRUPTED)
        except BrokenPipeError:
            sys.stderr.close()  # whoever read us has gone; nothing more can be said
            raise typer.Exit(FAILED) from None
        except BaseException as error:
            status = getattr(error, "exit_status", None)  # ConfigError, DataError, Interrupted say theirs
            if status is None and not isinstance(error, Exception):
                raise
            if STATE.verbose:
                traceback.print_exc()
            _end(str(error) if status else f"error: {_told(error)}", status or FAILED)
        finally:
            if before is not None:
                signal.signal(signal.SIGTERM, before)

    return run  # type: ignore[return-value]


def _told(error: BaseException) -> str:
    """The message of an error; its type too where that is not the word for a wrong value."""
    text = str(error) or "no message"
    return text if type(error) in (ValueError, ImportError, OSError) else f"{type(error).__name__}: {text}"


def _end(message: str, status: int) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(status) from None


def _watch_sigterm() -> Any:
    """Outside the training loop, which has its own way, SIGTERM ends a command with 143."""
    if threading.current_thread() is not threading.main_thread():
        return None

    def terminated(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    return signal.signal(signal.SIGTERM, terminated)
