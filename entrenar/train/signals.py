"""Ending a run in good order: the first SIGINT or SIGTERM asks, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupted(BaseException):
    """A run ended early on a signal, after its checkpoint was written; ``exit_status`` is 128 + the signal's number."""

    def __init__(self, signum: int, checkpoint: str | None) -> None:
        where = f"; checkpoint {checkpoint}" if checkpoint else ""
        super().__init__(f"interrupted by {signal.Signals(signum).name}{where}")
        self.signum, self.exit_status = signum, 128 + signum


class SignalWatch:
    """While entered, SIGINT and SIGTERM set ``pending`` instead of ending the process; a second one ends it at once.

    Outside the main thread, where Python cannot handle signals, it does nothing.
    """

    HANDLED = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.pending: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> SignalWatch:
        self.pending = None
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on_signal) for number in self.HANDLED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.pending is not None:
            os._exit(128 + number)  # files are written to temporary names first: nothing half-written is left in place
        self.pending = number
