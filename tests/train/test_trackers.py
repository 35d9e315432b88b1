"""Trackers: each step once, whatever stops the run; failures that end no training; what needs no other library."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import entrenar as en
from entrenar.data import TokenBatches, Windows
from entrenar.nn import Embedding, Module
from entrenar.optim import SGD
from entrenar.train import (
    TRACKERS,
    Callback,
    CSVLog,
    RunFolder,
    StepRecord,
    Tracker,
    TrackerError,
    TrainConfig,
    Trainer,
    make_trackers,
)
from entrenar.train.tracker import VALUES, WholeRecords

TOKENS = np.random.default_rng(0).integers(0, 7, 60)


class Bigram(Module):
    """The smallest model with a loss."""

    def __init__(self):
        super().__init__()
        self.logits = Embedding(7, 7)

    def loss(self, ids, targets, reduction="sum"):
        return en.cross_entropy(self.logits(ids), targets, reduction=reduction)


def trainer(folder, steps, *callbacks, **config):
    en.manual_seed(0)
    model = Bigram()
    return Trainer(
        model,
        SGD(model.parameters(), lr=0.1),
        TrainConfig(steps, eval_every=2, **config),
        TokenBatches(TOKENS, 2, 4, seed=0),
        Windows(TOKENS, 4, 4, 2),
        folder=None if folder is None else RunFolder(folder),
        callbacks=callbacks,
    )


class InMemory(Tracker):
    """What a library would hold; it loses what it has not flushed, and keeps what is beyond a checkpoint."""

    name = "memory"

    def __init__(self, config=None, broken=(), fails_to_start=False):
        super().__init__(config)
        self.rows, self.notes, self.configs, self.stops = [], [], [], 0
        self.broken, self.fails_to_start = broken, fails_to_start

    def _start(self, trainer, at):
        if self.fails_to_start:
            raise OSError("no room")
        self.configs.append(self._configuration(trainer))
        return max((step for step, _ in self.rows), default=0) if at else 0

    def _write(self, step, values):
        if step in self.broken:
            raise OSError(f"step {step} does not fit")
        self.rows.append((step, values))

    def _note(self, step, texts):
        self.notes.append((step, texts))

    def _stop(self):
        self.stops += 1

    @property
    def steps(self):
        return [step for step, _ in self.rows]


class Killed(BaseException):
    """The process is gone."""


class KillAt(Callback):
    def __init__(self, step):
        self.step = step

    def on_step(self, trainer, record):
        if record.step == self.step:
            raise Killed


def read(path):
    with path.open(newline="") as file:
        return [{k: None if v == "" else float(v) for k, v in row.items()} for row in csv.DictReader(file)]


# values ---------------------------------------------------------------------------------------------------------
def test_an_update_is_written_with_its_values(tmp_path):
    tracker = InMemory()
    t = trainer(tmp_path, 3, tracker)
    t.fit()
    assert tracker.steps == [1, 2, 3] and tracker.stops == 1
    for n, (_, values) in enumerate(tracker.rows):
        wanted = [name for name in VALUES if name != "val_loss" or n]  # validated after steps 2 and 3
        assert list(values) == wanted
        assert values["loss"] == t.metrics.losses[n] and values["lr"] == 0.1
        assert values["tokens"] == 8 * (n + 1) and values["skipped"] == 0
        assert 0 < values["tokens_per_s"] < math.inf and 0 < values["grad_norm"] < math.inf
    assert [(step, values["val_loss"]) for step, values in tracker.rows[1:]] == t.metrics.val_losses
    step, texts = tracker.notes.pop()
    assert not tracker.notes and step == 3
    assert texts["checkpoint"] == str(RunFolder(tmp_path).latest()) and len(texts["state_hash"]) == 64


def record(step, **values):
    return StepRecord(**{"step": step, "loss": 1.0, "lr": 0.1, "grad_norm": 2.0, "tokens": 8, "seconds": 0.5, **values})


def test_a_rate_needs_time_and_a_step_counts_once(tmp_path):
    t, tracker = trainer(None, 3), InMemory()
    tracker.on_start(t)
    t.tokens = 40
    tracker.on_step(t, record(1))
    tracker.on_step(t, record(1, loss=3.0))  # nothing new: the step is there
    tracker.on_step(t, record(2, seconds=0.0, skipped=True, loss=math.nan, grad_norm=math.inf))
    assert tracker.steps == [1, 2]
    assert tracker.rows[0][1] == {
        "loss": 1.0,
        "lr": 0.1,
        "grad_norm": 2.0,
        "tokens": 40,
        "tokens_per_s": 16.0,
        "skipped": 0,
    }
    values = tracker.rows[1][1]
    assert "tokens_per_s" not in values and values["skipped"] == 1
    assert math.isnan(values["loss"]) and values["grad_norm"] == math.inf
    for _ in range(2):
        tracker.on_checkpoint(t, "step-2", "abc")
    assert len(tracker.notes) == 1


def test_configuration():
    t = trainer(None, 3)
    for given, wanted in ((None, 3), ({"max_steps": "mine"}, "mine")):
        tracker = InMemory(given)
        tracker.on_start(t)
        assert tracker.configs[0]["max_steps"] == wanted
    with pytest.raises(TypeError, match="memory: config must be a mapping or None, got list"):
        InMemory([1])


# resuming -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("flushed", [0, 2, 4, 5])
def test_a_killed_run_goes_on_with_each_step_once(tmp_path, flushed):
    """Checkpoint at step 4, killed in step 6, the tracker's library wrote only the first steps."""
    whole = InMemory()
    trainer(tmp_path / "whole", 8, whole).fit()
    tracker = InMemory()
    with pytest.raises(Killed):
        trainer(tmp_path / "run", 8, tracker, KillAt(6), save_every=4).fit()
    del tracker.rows[flushed:]
    rest = trainer(tmp_path / "run", 8, tracker, save_every=4)
    rest.resume(rest.folder.latest())
    rest.fit()
    assert tracker.steps == list(range(1, 9))
    for (_, got), (_, want) in zip(tracker.rows, whole.rows, strict=True):
        assert {**got, "tokens_per_s": 0} == {**want, "tokens_per_s": 0}  # filled-in ones too, val_loss included
        assert 0 < got["tokens_per_s"] < math.inf


def test_a_skipped_update_is_filled_in_as_one(tmp_path):
    t = trainer(tmp_path, 3)
    t.folder.log(record(1, grad_norm=math.inf), 8)
    t.folder.log(record(2), 16)
    t.step = 2
    tracker = InMemory()
    tracker.on_start(t)
    assert [values["skipped"] for _, values in tracker.rows] == [1, 0]
    assert [values["tokens_per_s"] for _, values in tracker.rows] == [16.0, 16.0]


def test_pauses_and_epochs_of_ones_own(tmp_path):
    tracker = InMemory()
    t = trainer(tmp_path, 6, tracker)
    t.fit(until=2)
    t.fit(until=4)
    assert tracker.steps == [1, 2, 3, 4] and tracker.stops == 2
    t.train_epoch([next(t.batches)])  # tells no start
    t.train_epoch([next(t.batches)])
    assert tracker.steps == [1, 2, 3, 4, 5, 6] and tracker.stops == 2
    tracker.close()
    tracker.close()
    assert tracker.stops == 3


# failures -------------------------------------------------------------------------------------------------------
def test_a_failing_start_ends_the_run_and_names_the_tracker(tmp_path):
    t = trainer(tmp_path, 3, InMemory(fails_to_start=True))
    with pytest.raises(TrackerError, match="memory: cannot start: OSError: no room"):
        t.fit()
    assert t.step == 0


def test_failing_writes_are_told_once_and_counted_at_the_end(tmp_path, capsys):
    tracker = InMemory(broken=(2, 3, 5))
    result = trainer(tmp_path, 6, tracker).fit()
    assert result.step == 6 and tracker.steps == [1, 4, 6] and tracker.failures == 3
    first, last = capsys.readouterr().err.splitlines()
    assert first == "entrenar: memory: a write failed at step 2: OSError: step 2 does not fit; training goes on"
    assert last == "entrenar: memory: writes that failed: 3, the first at step 2: OSError: step 2 does not fit"


def test_a_torn_record_is_cut_off(tmp_path):
    path = tmp_path / "records"
    records = WholeRecords(path)
    records.append(b"one\n")
    real = records._file

    class Full:
        """A disk that takes half of a write, then none."""

        def __init__(self):
            self.left = 1

        def write(self, data):
            if not self.left:
                raise OSError(28, "No space left on device")
            self.left -= 1
            return real.write(data[: len(data) // 2])

        def truncate(self, size):
            return real.truncate(size)

    records._file = Full()
    with pytest.raises(OSError, match="No space left"):
        records.append(b"lost\n")
    assert path.read_bytes() == b"one\nlo"
    records._file = real
    records.append(b"three\n")
    assert path.read_bytes() == b"one\nthree\n"
    records._file = Full()
    with pytest.raises(OSError, match="No space left"):
        records.append(b"torn\n")
    records._file = real
    records.close()
    assert path.read_bytes() == b"one\nthree\n"


# CSV ------------------------------------------------------------------------------------------------------------
def test_csv_reads_back_exactly(tmp_path):
    path = tmp_path / "sub" / "log.csv"
    t = trainer(None, 3, CSVLog(path))
    t.fit()
    rows = read(path)
    assert path.read_text().splitlines()[0] == "step,loss,val_loss,lr,grad_norm,tokens,tokens_per_s,skipped"
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert [row["loss"] for row in rows] == t.metrics.losses
    assert [row["val_loss"] for row in rows] == [None, *(loss for _, loss in t.metrics.val_losses)]
    log = CSVLog(tmp_path / "odd.csv")
    log.on_start(trainer(None, 3))
    log.on_step(t, record(1, loss=math.nan, grad_norm=math.inf, seconds=0.0, skipped=True))
    log.close()
    (row,) = read(log.path)
    assert math.isnan(row["loss"]) and row["grad_norm"] == math.inf and row["tokens_per_s"] is None
    assert row["skipped"] == 1


def test_csv_goes_on_after_the_checkpoint(tmp_path):
    path = tmp_path / "log.csv"
    log = CSVLog(path)
    with pytest.raises(Killed):
        trainer(tmp_path / "run", 8, log, KillAt(6), save_every=4).fit()
    log._file.close()
    with path.open("a") as file:
        file.write("7,1.2")  # torn by the kill
    rest = trainer(tmp_path / "run", 8, CSVLog(path), save_every=4)
    rest.resume(rest.folder.latest())
    rest.fit()
    assert [row["step"] for row in read(path)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [row["loss"] for row in read(path)] == rest.metrics.losses


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a,b\n1,2\n", "not a log of this kind: expected the columns step,loss"),
        ("{header}\n1,2\n", "line 2: not a row of this log: '1,2'"),
        ("{header}\n1,1,,1,1,1,1,0\n2,1,,1,1,1,1,0\n", "holds steps 1 to 2 of a run, and this one begins at step 0"),
    ],
)
def test_csv_spoils_no_other_file(tmp_path, content, told):
    path = tmp_path / "log.csv"
    before = content.format(header=",".join(("step", *VALUES)))
    path.write_text(before)
    with pytest.raises(TrackerError, match=told):
        trainer(None, 3, CSVLog(path)).fit()
    assert path.read_text() == before


FULL_DISK = """
import resource, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_trackers import CSVLog, record, trainer

t, log = trainer(None, 3), CSVLog(Path({path!r}))
log.on_start(t)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for step in range(1, 31):
    if step == 11:
        resource.setrlimit(resource.RLIMIT_FSIZE, (log._file._end + 17, hard))  # the system takes part of a row
    if step == 21:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.on_step(t, record(step))
log.on_end(t)
"""


def test_csv_lives_through_a_full_disk(tmp_path):
    path = tmp_path / "log.csv"
    code = FULL_DISK.format(tests=str(Path(__file__).parent), path=str(path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [row["step"] for row in read(path)] == [*range(1, 11), *range(21, 31)]
    first, last = done.stderr.splitlines()
    assert "csv: a write failed at step 11: OSError" in first
    assert "csv: writes that failed: 10, the first at step 11: OSError" in last


# by name --------------------------------------------------------------------------------------------------------
def test_every_tracker_has_a_name_and_a_place():
    assert sorted(TRACKERS) == ["csv", "tensorboard", "trackio", "wandb"]
    for name, made in TRACKERS.items():
        assert issubclass(made, Tracker) and made.name == name and made.__doc__


def test_made_by_name(tmp_path):
    (made,) = make_trackers(["csv"], tmp_path)
    assert type(made) is CSVLog and made.path == tmp_path / "updates.csv"
    assert make_trackers([], tmp_path) == []
    with pytest.raises(ValueError, match=r"unknown tracker 'tensorbord': known are \[.*\]. Did you mean 'tensorboard'"):
        make_trackers(["tensorbord"], tmp_path)
    with pytest.raises(ValueError, match="tracker 'csv' is given twice"):
        make_trackers(["csv", "csv"], tmp_path)


@pytest.mark.parametrize(
    ("name", "library"), [("tensorboard", "tensorboardX"), ("wandb", "wandb"), ("trackio", "trackio")]
)
def test_a_missing_library_names_its_extra(tmp_path, monkeypatch, name, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        ImportError, match=rf"needs {library}, which is not installed: pip install 'entrenar\[{name}\]'"
    ):
        make_trackers([name], tmp_path)
