"""TensorBoard: event files, with the messages and checksums of tensorboardX.

An event file is a sequence of records: length (uint64, little-endian), its masked CRC-32C, a serialized Event, its
masked CRC-32C.  They are written here, not through tensorboardX's SummaryWriter, which keeps events in memory (a killed
run loses them), names two files of one second alike, and blocks the training for good once its thread met a full disk.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..array import missing_extra
from .tracker import Tracker, WholeRecords

if TYPE_CHECKING:
    from .trainer import Trainer

PREFIX = "events.out.tfevents."


class TensorBoard(Tracker):
    """Scalars under the names in VALUES and texts, in event files in ``folder``, which is one run for TensorBoard.

    A process adds one event file.  It begins with a session start at the step that comes next, at which TensorBoard
    drops what older files hold from that step on (``purge_step``): a resumed run has no step twice, and a run from step
    0 hides an older one in the same folder.  Values are stored as float32, as TensorBoard has them; inf and nan are
    kept.

    Raises ImportError without tensorboardX (extra ``tensorboard``).
    """

    name = "tensorboard"

    def __init__(self, folder: str | Path, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(config)
        self.folder = Path(folder)
        try:
            from tensorboardX import summary
            from tensorboardX.proto import event_pb2, summary_pb2
            from tensorboardX.record_writer import masked_crc32c
        except ImportError:
            raise missing_extra("tensorboardX", "tensorboard", "the TensorBoard tracker") from None
        self._events: Any = event_pb2
        self._summaries: Any = summary_pb2
        self._texts, self._crc = summary.text, masked_crc32c
        self._configured: str | None = None  # what the next update brings along

    @classmethod
    def for_run(cls, folder: Path, config: Mapping[str, Any] | None) -> Tracker:
        """In the folder tensorboard."""
        return cls(folder / "tensorboard", config)

    def _start(self, trainer: Trainer, at: int) -> int:
        self._configured = json.dumps(self._configuration(trainer), indent=1, default=str)
        self.folder.mkdir(parents=True, exist_ok=True)
        older = [path.name.removeprefix(PREFIX).partition(".")[0] for path in self.folder.glob(f"{PREFIX}*")]
        # TensorBoard reads the files in the order of their names: this one is the last, whatever the clock says
        stamp = max([int(time.time()), *(int(text) + 1 for text in older if text.isdecimal())])
        self._file = WholeRecords(self.folder / f"{PREFIX}{stamp:010d}.{socket.gethostname()}")
        self._event(file_version="brain.Event:2")
        start = self._events.SessionLog(status=self._events.SessionLog.START)
        self._event(step=at + 1, session_log=start)
        return at if older else 0  # nothing was buffered: what older files lack, nobody wrote

    def _write(self, step: int, values: dict[str, float]) -> None:
        shown = [self._summaries.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        if self._configured is not None:
            shown += self._texts("config", f"```json\n{self._configured}\n```").value
        self._event(step=step, summary=self._summaries.Summary(value=shown))
        self._configured = None

    def _note(self, step: int, texts: dict[str, str]) -> None:
        shown = [value for name, text in texts.items() for value in self._texts(name, text).value]
        self._event(step=step, summary=self._summaries.Summary(value=shown))

    def _stop(self) -> None:
        self._file.close()

    def _event(self, **fields: Any) -> None:
        event = self._events.Event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(event))
        crcs = [struct.pack("<I", self._crc(part)) for part in (length, event)]
        self._file.append(length + crcs[0] + event + crcs[1])
