"""Weights & Biases, online or offline; never a question for a login."""

from __future__ import annotations

import os
import secrets
import struct
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..array import missing_extra
from .tracker import Tracker

if TYPE_CHECKING:
    from .trainer import Trainer

BLOCK, FILE_HEADER, RECORD_HEADER = 32768, 7, 7  # bytes


class WandB(Tracker):
    """A W&B run; ``options`` go to ``wandb.init`` (entity, group, tags, dir, mode, id ...).

    Without an API key (WANDB_API_KEY, netrc, ``wandb login``) the run is offline, which is told once on stderr;
    ``mode="online"`` without one is an error.  Files are in the run folder, unless ``dir`` or WANDB_DIR says otherwise.
    Checkpoint and state hash are in the run's summary, which has the last ones.  inf and nan are kept.

    A resumed run goes on under the same id, which the run folder's wandb.json holds.  W&B takes a step once and in
    order: steps that it holds beyond the checkpoint stay as they are.  wandb keeps up to 15 s in memory, which a killed
    process loses: up to the checkpoint they are filled in again.  Offline, each process writes a folder of its own,
    offline-run-<time>-<id>, no step in two of them; ``wandb sync`` uploads them.

    WANDB_ERROR_REPORTING is set to false if it is not set: wandb's reports about itself are no part of a run.
    Raises ImportError without wandb (extra ``wandb``).
    """

    name = "wandb"

    def __init__(
        self,
        project: str | None = None,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(config)
        self.project, self.run_name, self.options = project, name, options
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        try:
            import wandb
            from wandb.proto import wandb_internal_pb2
        except ImportError:
            raise missing_extra("wandb", "wandb", "the W&B tracker") from None
        self._wandb: Any = wandb
        self._records: Any = wandb_internal_pb2
        self._told = False

    @classmethod
    def for_run(cls, folder: Path, config: Mapping[str, Any] | None) -> Tracker:
        """Named as the folder; the project is WANDB_PROJECT's, or W&B's own default."""
        return cls(name=folder.name, config=config)

    def _start(self, trainer: Trainer, at: int) -> int:
        options = {"resume": "allow", "reinit": "create_new", "allow_val_change": True, **self.options}
        options.setdefault("settings", self._wandb.Settings(console="off"))  # wandb leaves stdout and stderr alone
        if trainer.folder is not None and "WANDB_DIR" not in os.environ:
            options.setdefault("dir", trainer.folder.path)
        if "dir" in options:
            Path(options["dir"]).mkdir(parents=True, exist_ok=True)
        asked = options.pop("mode", None)
        mode = self._mode(asked)
        run_id = options.pop("id", None) or self._remembered(trainer, at) or secrets.token_hex(4)
        with _nobody_to_ask():
            self._run = self._wandb.init(
                project=self.project,
                name=self.run_name,
                id=run_id,
                config=self._configuration(trainer),
                mode=mode,
                **options,
            )
        self._remember(trainer, run_id)
        if mode != asked and not self._told:
            self._told = True
            self._say(f"no API key: the run is offline; `wandb sync {self._run.settings.sync_dir}` uploads it")
        if not at:
            return 0
        if self._run.offline:
            files = Path(self._run.settings.wandb_dir).glob(f"*run-*-{run_id}*/run-{run_id}.wandb")
            return max((step for file in files for step in self._steps(file)), default=0)
        return max(self._run.starting_step - 1, 0)

    def _mode(self, asked: str | None) -> str | None:
        """The mode to start in: "offline" for want of a key, else the one that was asked for."""
        wandb = self._wandb
        if (asked or wandb.setup().settings.mode) not in ("online", "run"):
            return asked
        if wandb.run is not None:  # a run of the caller's own: login answers nothing while it is active
            key = not wandb.run.offline
        else:
            key = wandb.login(prompt=False, verify=False)
        if not key and asked:
            raise ValueError(f"mode={asked!r} needs an API key: set WANDB_API_KEY or run `wandb login`")
        return asked if key else "offline"

    def _steps(self, path: Path) -> Iterator[int]:
        """The steps of a file of an offline run."""
        for data in whole_records(path.read_bytes()):
            record = self._records.Record.FromString(data)
            if record.HasField("history"):
                yield record.history.step.num

    def _write(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step, commit=True)

    def _note(self, step: int, texts: dict[str, str]) -> None:
        self._run.summary.update(texts)

    def _stop(self) -> None:
        self._run.finish()


def whole_records(data: bytes) -> Iterator[bytes]:
    """The records of a .wandb file up to its end or to the first that is torn.

    A file header, then blocks of 32 KiB of pieces: CRC-32, length (uint16), kind (1 whole, 2 first, 3 middle, 4 last).
    Source: the log format of LevelDB (doc/log_format.md), with zlib's CRC-32 over kind and content.
    """
    place, record = FILE_HEADER, b""
    while True:
        if BLOCK - place % BLOCK < RECORD_HEADER:  # no piece begins in so small a rest
            place += BLOCK - place % BLOCK
        if place + RECORD_HEADER > len(data):
            return
        crc, length, kind = struct.unpack_from("<IHB", data, place)
        piece = data[place + RECORD_HEADER : place + RECORD_HEADER + length]
        if kind not in (1, 2, 3, 4) or zlib.crc32(data[place + 6 : place + 7] + piece) != crc or len(piece) < length:
            return
        place += RECORD_HEADER + length
        record = piece if kind in (1, 2) else record + piece
        if kind in (1, 4):
            yield record


@contextmanager
def _nobody_to_ask() -> Iterator[None]:
    """Inside, standard input is empty and no terminal, so that nothing can wait for an answer."""
    stdin = sys.stdin
    with open(os.devnull, encoding="utf-8") as sys.stdin:
        try:
            yield
        finally:
            sys.stdin = stdin
