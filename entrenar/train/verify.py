"""Whether a run is what its configuration gives: it is replayed, and all that was kept is compared, bit for bit."""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..array import default_generator
from ..config import Config
from ..io import DataError
from .callbacks import STOP, Callback, StepRecord
from .checkpoint import Snapshot, recorded_digest, snapshot
from .compare import Finding, differences, located
from .history import phases
from .language import LanguageRun, prepare
from .run_folder import RunFolder
from .sealed import FORMAT, MODEL, STATE, damage, read_state
from .trainer import Trainer

LOG = "training_log.csv"
LOGGED: dict[str, Callable[[StepRecord], str]] = {  # columns of the log
    "train_loss": lambda record: repr(record.loss),
    "val_loss": lambda record: "" if record.val_loss is None else repr(record.val_loss),
    "lr": lambda record: repr(record.lr),
    "grad_norm": lambda record: repr(record.grad_norm),
}


@dataclass
class Verification:
    """What ``verify_run`` found.

    start, end: the steps that were replayed, from after ``start`` on.  equal: (step, what) of all that was compared and
    is equal.  differs: what is intact and not what the replay gives.  damaged: what is not as it was written.  rows:
    lines of the log that are equal.
    """

    start: int = 0
    end: int = 0
    equal: list[tuple[int, str]] = field(default_factory=list)
    differs: list[Finding] = field(default_factory=list)
    damaged: list[Finding] = field(default_factory=list)
    rows: int = 0

    @property
    def exit_status(self) -> int:
        """0 if everything is equal, 1 if an intact file differs from the replay, 3 if files are damaged or missing."""
        return 1 if self.differs else 3 if self.damaged else 0


def verify_run(
    path: Path | str,
    start: int = 0,
    tell: Callable[[str], None] = lambda line: None,
    callbacks: Callable[[int], Iterable[Callback]] = lambda end: (),
) -> Verification:
    """Train a run again from its config.yaml, in memory, and compare it with what its folder holds.

    Compared are every kept checkpoint (weights, optimizer state, data position, generators, metrics), best/, the state
    hash of result.json, tokenizer.json, and the lines of training_log.csv (losses, rates, norms, tokens).  Nothing is
    written.  The replay ends at the first state that differs: what comes later differs for that reason.
    start: begin at the nearest intact checkpoint of a step up to this; 0 replays the whole run.  tell: called with a
    line for each thing that was compared.  callbacks: makes those that are told of the replay's steps, up to an end.
    Raises DataError if there is no run, its text is another, or there is no checkpoint to start from.
    """
    folder = RunFolder(path)
    if not (folder / "config.yaml").exists():
        raise DataError(f"{folder.path}: not a run folder (no config.yaml)")
    replay = _Replay(folder, tell)
    found = replay.found
    begin = found.start = replay.begin(start)
    parts = phases(folder)
    parts = [phase for n, phase in enumerate(parts) if n + 1 == len(parts) or parts[n + 1].start > begin]
    run = prepare(parts[0].config, folder.path, [*callbacks(found.end), replay])
    run.check_data()
    replay.check_tokenizer(run)
    trainer = run.trainer
    trainer.folder = None
    if begin:
        trainer.resume(folder.checkpoint(begin))
    for n, (phase, until) in enumerate(zip(parts, [*(p.start for p in parts[1:]), found.end], strict=True)):
        if n:
            _switch(trainer, phase.config)
        trainer.fit(until)
        if replay.stopped:
            break
    return replay.finish(trainer)


def _switch(trainer: Trainer, config: Config) -> None:
    """Go on as ``config`` says, with weights, optimizer, data and generators as they are."""
    before = default_generator.state()
    other = prepare(config).trainer
    default_generator.set_state(before)
    trainer.config, trainer.schedule = other.config, other.schedule


class _Replay(Callback):
    """Compares each step of a replay with what the folder has of it."""

    def __init__(self, folder: RunFolder, tell: Callable[[str], None]) -> None:
        self.folder, self.tell, self.found = folder, tell, Verification()
        self.stopped = False
        self.pending: list[Finding] = []  # lines of the log that differ, until a state is compared
        self.checkpoints = dict(folder.checkpoints())
        self.damage = {path: damage(path) for path in self.checkpoints.values()}
        self.log = self._log()
        self.formats = [read_state(path)["format"] for path, found in self.damage.items() if not found]
        self.best, self.result = self._best(), self._result()
        for found in self.damage.values():
            for each in found:
                tell(f"damaged  {self._name(each.file)}: {each.text}")
        known = [*self.checkpoints, *self.log, *(facts["step"] for facts in (self.best, self.result) if facts)]
        if not known:
            raise DataError(f"{folder.path}: nothing to verify: no checkpoint, no best/, no result.json, no log")
        self.found.end = max(known)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder.path).as_posix()

    def _log(self) -> dict[int, dict[str, str]]:
        """The lines of the log by step."""
        self.unreadable = True
        try:
            rows = {int(row["step"]): row for row in self.folder.read_log()}
            if rows and not {"step", "tokens", *LOGGED} <= next(iter(rows.values())).keys():
                raise ValueError("a column is missing")
        except (ValueError, KeyError, csv.Error) as error:
            self._damaged(0, self.folder / LOG, "log", f"cannot be read: {type(error).__name__}: {error}")
            return {}
        self.unreadable = False
        return rows

    def _best(self) -> dict[str, Any] | None:
        """state.json of best/, None if there is none to compare."""
        path = self.folder / "best"
        if not path.exists():
            return None
        self.damage[path] = damage(path)
        try:
            return read_state(path)
        except DataError:
            return None

    def _result(self) -> dict[str, Any] | None:
        """result.json, None if there is none to compare."""
        path = self.folder / "result.json"
        try:
            result = json.loads(path.read_bytes())
            if isinstance(result["step"], int) and isinstance(result["state_hash"], str):
                return dict(result)
            text = "expected step and state_hash"
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            text = f"not a result: {type(error).__name__}: {error}"
        self._damaged(0, path, None, text)
        return None

    def begin(self, start: int) -> int:
        """The step of the checkpoint to go on from, 0 for none."""
        if start <= 0:
            return 0
        intact = [step for step, path in self.checkpoints.items() if step <= start and not self.damage[path]]
        if not intact:
            kept = ", ".join(map(str, self.checkpoints)) or "none"
            raise DataError(f"{self.folder.path}: no intact checkpoint of a step up to {start}: there are {kept}")
        return max(intact)

    def check_tokenizer(self, run: LanguageRun) -> None:
        """Whether tokenizer.json is the one that the run writes."""
        path = self.folder / "tokenizer.json"
        with tempfile.TemporaryDirectory() as aside:
            run.tokenizer.save(Path(aside) / path.name)
            expected = (Path(aside) / path.name).read_bytes()
        if not path.exists():
            self._damaged(0, path, None, "is missing")
        elif path.read_bytes() != expected:
            self._damaged(0, path, None, "is not the one that the training text gives")

    # what is found ----------------------------------------------------------------------------------------------
    def _damaged(self, step: int, path: Path, part: str | None, text: str) -> None:
        self.found.damaged.append(Finding(step, self._name(path), part, text))
        self.tell(f"damaged  {self.found.damaged[-1]}")

    def _differs(self, finding: Finding) -> None:
        self.found.differs.append(finding)
        self.tell(f"differs  step {finding.step}: {finding}")

    def _equal(self, step: int, what: str) -> None:
        self.found.equal.append((step, what))
        self.tell(f"equal    step {step}: {what}")

    # the replay -------------------------------------------------------------------------------------------------
    def on_step(self, trainer: Trainer, record: StepRecord) -> str | None:
        """Compare the log's line, then what was saved at this step."""
        step, best = record.step, self.folder / "best"
        if step in self.log:
            self._compare_log(step, {**{k: of(record) for k, of in LOGGED.items()}, "tokens": str(trainer.tokens)})
        wanted: list[tuple[Path, Callable[[Snapshot], Snapshot]]] = []
        if step in self.checkpoints:
            wanted.append((self.checkpoints[step], lambda mine: mine))
        if record.val_loss is not None and self.best is not None and self.best["step"] == step:
            wanted.append((best, lambda mine: _best_of(mine, record.val_loss)))
        result = self.result is not None and self.result["step"] == step
        if not wanted and not result:
            return None
        mine, before = snapshot(trainer), len(self.found.differs)
        for path, part in wanted:
            self._compare(step, path, part(mine))
        if result:
            self._compare_result(step, mine)
        self.stopped = len(self.found.differs) > before
        if not self.stopped:
            for each in self.pending:
                text = f"{each.text}; the state of step {step} is equal, so it is the log that was changed"
                self._damaged(each.step, self.folder / LOG, "log", text)
            self.pending.clear()
        return STOP if self.stopped else None

    def _compare_log(self, step: int, mine: dict[str, str]) -> None:
        theirs = self.log[step]
        wrong = [f"{key} {theirs[key]}, the replay has {mine[key]}" for key in mine if theirs[key] != mine[key]]
        if wrong:
            self.pending.append(Finding(step, LOG, "log", f"step {step}: {'; '.join(wrong)}"))
        else:
            self.found.rows += 1

    def _compare(self, step: int, path: Path, mine: Snapshot) -> None:
        name, harm = self._name(path), self.damage.pop(path)
        if not harm:
            wrong = differences(path, mine)
            for part, text in wrong:
                self._differs(Finding(step, name, part, text))
            if not wrong:
                self._equal(step, f"{name}{f', state {digest[:16]}' if (digest := mine.state.get('hash')) else ''}")
            return
        for each in located(harm, mine):
            self._damaged(step, each.file, each.part, each.text)
        if all(each.file.name != STATE for each in harm) and read_state(path).get("files") != mine.state["files"]:
            self._differs(Finding(step, name, None, "what its state.json records is not what the replay has"))

    def _compare_result(self, step: int, mine: Snapshot) -> None:
        assert self.result is not None
        first = bool(self.formats) and FORMAT not in self.formats
        digest = recorded_digest(mine.files, {**mine.state, "format": 1}) if first else mine.state["hash"]
        if self.result["state_hash"] == digest:
            self._equal(step, f"result.json, state {digest[:16]}")
        else:
            text = f"state_hash {self.result['state_hash'][:16]}, the replay has {digest[:16]}"
            self._differs(Finding(step, "result.json", "state hash", text))

    def finish(self, trainer: Trainer) -> Verification:
        """What was found, once the replay has ended."""
        found, best = self.found, self.folder / "best"
        found.end = trainer.step
        steps = {path: step for step, path in self.checkpoints.items()}
        for path, harm in self.damage.items():  # of steps that were not replayed
            for each in harm:
                self._damaged(steps.get(path, 0), each.file, each.part, each.text)
        if self.pending:  # the rest differ for the same reason
            found.differs.insert(0, self.pending[0])
            self.tell(f"differs  {self.pending[0]}")
        if self.stopped:
            return found
        saved = max([*self.checkpoints, self.result["step"] if self.result else 0])
        missing = sorted({*range(found.start + 1, saved + 1)} - self.log.keys())
        if missing and not self.unreadable:
            text = f"lacks {len(missing)} of its lines, first that of step {missing[0]}"
            self._damaged(missing[0], self.folder / LOG, "log", text)
        metrics = trainer.metrics
        if metrics.best_step and not best.exists():
            self._damaged(metrics.best_step, best, None, "is missing")
        elif self.best is not None and metrics.best_step != self.best["step"]:
            text = f"is of step {self.best['step']}, the replay's best validation is of step {metrics.best_step}"
            self._differs(Finding(self.best["step"], "best", "step", text))
        return found


def _best_of(mine: Snapshot, loss: float | None) -> Snapshot:
    """What best/ would hold."""
    state = {"format": FORMAT, "step": mine.state["step"], "val_loss": loss}
    return Snapshot({MODEL: mine.files[MODEL]}, {**state, "files": {MODEL: mine.state["files"][MODEL]}})
