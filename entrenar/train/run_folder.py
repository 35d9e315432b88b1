"""The folder of a run: configuration, tokenizer, summary, log, picture, checkpoints.

config.yaml  tokenizer.json  model_summary.json  training_log.csv  loss.svg  loss.png  checkpoints/step-<N>/  best/
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
from pathlib import Path
from typing import Any

from ..autograd.tensor import raw
from ..io import ASIDE, DataError, atomic_write, load_tensors
from ..nn import Module
from .callbacks import StepRecord
from .metrics import MetricsTracker
from .sealed import FORMAT, MODEL, STATE, contents, read_state, tensor_digests, write_sealed

COLUMNS = ("step", "train_loss", "val_loss", "lr", "grad_norm", "tokens", "ms_per_step")
STEP = re.compile(r"step-([0-9]+)")


class RunFolder:
    """``path`` as the place of one run; nothing is created until something is written."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def occupied(self) -> bool:
        """True if there is something here that a new run would spoil: a checkpoint, or weights worth keeping."""
        return bool(self.checkpoints()) or (self / "best").exists()

    def clear_log(self) -> None:
        """Drop the log of a run that ended before its first checkpoint."""
        (self / "training_log.csv").unlink(missing_ok=True)

    def write(self, name: str, content: str) -> Path:
        """Write a text file of the folder, atomically."""
        atomic_write(self / name, content)
        return self / name

    # log --------------------------------------------------------------------------------------------------------
    def log(self, record: StepRecord, tokens: int) -> None:
        """Append one update to training_log.csv; floats as they are, so that they read back exactly."""
        path = self / "training_log.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        row = [
            record.step,
            repr(record.loss),
            "" if record.val_loss is None else repr(record.val_loss),
            repr(record.lr),
            repr(record.grad_norm),
            tokens,
            f"{record.seconds * 1000:.3f}",
        ]
        with path.open("a", encoding="utf-8", newline="") as file:
            if file.tell() == 0:
                file.write(",".join(COLUMNS) + "\n")
            file.write(",".join(str(v) for v in row) + "\n")

    def restore(self, metrics: MetricsTracker, step: int) -> None:
        """Read the log up to ``step`` into ``metrics`` and drop what a run that was killed wrote after it."""
        kept = [row for row in self.read_log() if int(row["step"]) <= step]
        for row in kept:
            metrics.record(int(row["step"]), float(row["train_loss"]), float(row["lr"]))
            if row["val_loss"]:
                metrics.val_losses.append((int(row["step"]), float(row["val_loss"])))
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
        self.write("training_log.csv", text.getvalue())

    def read_log(self) -> list[dict[str, str]]:
        """The rows of training_log.csv that are whole; none if there is no file."""
        path = self / "training_log.csv"
        if not path.exists():
            return []
        with path.open(encoding="utf-8", newline="") as file:
            return [
                row
                for row in csv.DictReader(file)
                if None not in row.values() and row["step"].isdigit() and row["ms_per_step"]
            ]

    # checkpoints ------------------------------------------------------------------------------------------------
    def checkpoint(self, step: int) -> Path:
        """Where the checkpoint of ``step`` is or will be."""
        return self / "checkpoints" / f"step-{step}"

    def checkpoints(self) -> list[tuple[int, Path]]:
        """(step, folder) of the checkpoints, oldest step first."""
        folder = self / "checkpoints"
        found = ((STEP.fullmatch(p.name), p) for p in folder.iterdir()) if folder.is_dir() else ()
        return sorted((int(match.group(1)), path) for match, path in found if match)

    def latest(self) -> Path:
        """The checkpoint of the highest step.  Raises DataError if there is none."""
        found = self.checkpoints()
        if not found:
            raise DataError(f"{self.path}: no checkpoint to go on from (expected {self / 'checkpoints'}/step-<N>)")
        return found[-1][1]

    def rotate(self, keep: int) -> None:
        """Remove all but the ``keep`` checkpoints of the highest steps.  A folder loses its name before its files."""
        for step, path in self.checkpoints()[:-keep]:
            aside = path.with_name(f"{ASIDE}old-{step}")
            shutil.rmtree(aside, ignore_errors=True)
            os.replace(path, aside)
            shutil.rmtree(aside, ignore_errors=True)

    # best -------------------------------------------------------------------------------------------------------
    def save_best(self, model: Module, step: int, loss: float) -> None:
        """Keep the weights of the best validation so far in best/."""
        files = {MODEL: {name: raw(tensor) for name, tensor in model.state_dict().items()}}
        about = contents(files, {MODEL: tensor_digests(files[MODEL])})
        write_sealed(self / "best", files, {"format": FORMAT, "step": step, "val_loss": loss, "files": about})

    def weights(self, which: str = "best") -> tuple[dict[str, Any], dict[str, Any]]:
        """(weights, state) to use the model with: "best" (the last checkpoint if there is none) or "last".

        Raises DataError if the folder holds neither.
        """
        best = self / "best"
        path = best if which == "best" and (best / STATE).exists() else self.latest()
        arrays, _ = load_tensors(path / MODEL)
        return arrays, read_state(path)
