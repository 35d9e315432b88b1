"""Trackio, into its local database."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..array import missing_extra
from .tracker import Tracker

if TYPE_CHECKING:
    from .trainer import Trainer

ELSEWHERE = ("space_id", "server_url", "dataset_id", "bucket_id")


class Trackio(Tracker):
    """A run in Trackio's local database (TRACKIO_DIR, by default in the Hugging Face cache); nobody is asked anything.

    ``options`` go to ``trackio.init``; those that log elsewhere are refused (``trackio sync`` publishes a project).
    ``name`` is the run's and should be its own in the project; None takes the run folder's and a random suffix.
    Checkpoint and state hash are a row of their own at their step.  inf and nan are kept.

    A resumed run goes on under the same name, which the run folder's trackio.json holds.  Trackio writes twice a
    second: what a killed process had not written is filled in up to the checkpoint; rows beyond it stay and are not
    repeated.  What Trackio fails to write, it tells by a warning, once; the end counts what is missing.

    Raises ImportError without trackio (extra ``trackio``), ValueError for an option that logs elsewhere.
    """

    name = "trackio"

    def __init__(
        self, project: str, name: str | None = None, config: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(config)
        if refused := [option for option in ELSEWHERE if options.get(option) is not None]:
            raise ValueError(f"trackio: {refused[0]}={options[refused[0]]!r}: this tracker logs locally only")
        self.project, self.run_name, self.options = project, name, options
        try:
            import trackio
            from trackio.sqlite_storage import SQLiteStorage
            from trackio.utils import get_storage_mode
        except ImportError:
            raise missing_extra("trackio", "trackio", "the Trackio tracker") from None
        self._trackio: Any = trackio
        self._storage: Any = SQLiteStorage
        self._storage_mode = get_storage_mode

    @classmethod
    def for_run(cls, folder: Path, config: Mapping[str, Any] | None) -> Tracker:
        """In the project entrenar."""
        return cls("entrenar", config=config)

    def _start(self, trainer: Trainer, at: int) -> int:
        for variable in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
            if os.environ.get(variable):
                raise ValueError(f"{variable} is set, and this tracker logs locally only: unset it")
        folder = "run" if trainer.folder is None else trainer.folder.path.name
        name = self.run_name or self._remembered(trainer, at) or f"{folder}-{secrets.token_hex(4)}"
        self._readable = self._storage_mode() == "sqlite"  # the other mode's files are read by Trackio's dashboard only
        with redirect_stdout(sys.stderr):  # a run's stdout is its own
            if self._readable:
                self._storage.init_db(self.project)  # raises; trackio.init would warn and lose every row
            self._run = self._trackio.init(
                self.project,
                name=name,
                config=self._configuration(trainer),
                resume="allow" if at else "never",
                **{"embed": False, **self.options},
            )
        self._remember(trainer, name)
        if not self._readable:
            return at
        self._rows = self._storage.get_log_count(self.project, run_id=self._run.id)
        return self._storage.get_max_step_for_run(self.project, run_id=self._run.id) or 0

    def _write(self, step: int, values: dict[str, float]) -> None:
        self._log(step, values)

    def _note(self, step: int, texts: dict[str, str]) -> None:
        self._log(step, texts)

    def _log(self, step: int, row: Mapping[str, Any]) -> None:
        self._run.log(dict(row), step=step)
        if self._readable:
            self._rows += 1

    def _stop(self) -> None:
        with redirect_stdout(sys.stderr):
            if self._trackio.context_vars.current_run.get() is self._run:
                self._trackio.finish()
        if self._readable:
            missing = self._rows - self._storage.get_log_count(self.project, run_id=self._run.id)
            if missing > 0:
                self._failed(missing, f"somewhere up to step {self._last}, as trackio warned")
