"""The trackers by name, and the one that needs no other library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..array import nearest
from ..io import atomic_write
from .tensorboard_events import TensorBoard
from .tracker import VALUES, Tracker, WholeRecords
from .trackio_run import Trackio
from .wandb_run import WandB

if TYPE_CHECKING:
    from .trainer import Trainer

HEADER = ",".join(("step", *VALUES))


class CSVLog(Tracker):
    """A row per update in the CSV file ``path``, for a trainer without a run folder (which has training_log.csv).

    Columns: step and VALUES; floats as they are, so that they read back exactly (inf and nan as Python reads them);
    an empty field is a value that the update lacks.  No text, no configuration.  A resumed run drops the rows after its
    checkpoint.  A run from step 0 does not start on a file that has rows already.
    """

    name = "csv"

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = Path(path)

    @classmethod
    def for_run(cls, folder: Path, config: Mapping[str, Any] | None) -> Tracker:
        """In updates.csv."""
        return cls(folder / "updates.csv")

    def _start(self, trainer: Trainer, at: int) -> int:
        *lines, torn = self.path.read_text(encoding="utf-8").split("\n") if self.path.exists() else [""]
        if lines and lines[0] != HEADER:
            raise ValueError(f"{self.path}: not a log of this kind: expected the columns {HEADER}, found {lines[0]!r}")
        rows = [(self._step(number, line), line) for number, line in enumerate(lines[1:], 2)]
        if rows and not at:
            raise FileExistsError(
                f"{self.path} holds steps {rows[0][0]} to {rows[-1][0]} of a run, and this one begins at step 0: "
                "resume that run, name another file, or remove this one"
            )
        kept = [(step, line) for step, line in rows if step <= at]
        if torn or not lines or len(kept) < len(rows):
            atomic_write(self.path, "".join(f"{line}\n" for line in (HEADER, *(line for _, line in kept))))
        self._file = WholeRecords(self.path)
        return kept[-1][0] if kept else 0

    def _step(self, number: int, line: str) -> int:
        fields = line.split(",")
        if len(fields) != 1 + len(VALUES) or not fields[0].isdecimal():
            raise ValueError(f"{self.path}, line {number}: not a row of this log: {line!r}")
        return int(fields[0])

    def _write(self, step: int, values: dict[str, float]) -> None:
        fields = [str(step), *(repr(values[name]) if name in values else "" for name in VALUES)]
        self._file.append((",".join(fields) + "\n").encode())

    def _stop(self) -> None:
        self._file.close()


TRACKERS: dict[str, type[Tracker]] = {each.name: each for each in (CSVLog, TensorBoard, Trackio, WandB)}


def make_trackers(names: Iterable[str], folder: str | Path, config: Mapping[str, Any] | None = None) -> list[Tracker]:
    """The trackers of these names (keys of TRACKERS) for a run in ``folder``.

    Raises ValueError for a name that is unknown or given twice, ImportError that names the extra to install.
    """
    made: dict[str, Tracker] = {}
    for name in names:
        if name not in TRACKERS:
            raise ValueError(f"unknown tracker {name!r}: known are {sorted(TRACKERS)}.{nearest(name, TRACKERS)}")
        if name in made:
            raise ValueError(f"tracker {name!r} is given twice")
        made[name] = TRACKERS[name].for_run(Path(folder), config)
    return list(made.values())
