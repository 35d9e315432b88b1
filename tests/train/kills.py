"""Trainings in forked processes that are killed (SIGKILL) at random moments and resumed, until each has ended.

python kills.py FOLDER 0 0 runs into a file limit instead.
python kills.py FOLDER RUNS SEED prints JSON: state hash and log of the unbroken run, and of every broken one, with the
steps it was killed at.  A program of its own, without other threads, so that it may fork once kernels are loaded.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import numpy as np

import entrenar as en
from entrenar.data import TokenBatches, Windows
from entrenar.models import GPT2, GPT2Config
from entrenar.optim import AdamW, Schedule, decay_groups
from entrenar.train import RunFolder, TrainConfig, Trainer
from entrenar.train.callbacks import callback

TOKENS = np.random.default_rng(0).integers(0, 13, 200)  # 24 windows of 8: an epoch ends every 4 updates
STEPS, KILLS = 12, 3


def trainer(folder):
    """A run with dropout, shuffling, accumulation and a checkpoint every second step."""
    en.manual_seed(1)
    rates = dict(embd_pdrop=0.2, resid_pdrop=0.2, attn_pdrop=0.2)
    model = GPT2(GPT2Config(vocab_size=13, n_positions=8, n_embd=16, n_layer=2, n_head=2, **rates))
    return Trainer(
        model,
        AdamW(decay_groups(model.named_parameters(), 0.1), lr=0.01),
        TrainConfig(STEPS, accumulation=2, eval_every=3, save_every=2, keep=2),
        TokenBatches(TOKENS, 3, 8, seed=4),
        Windows(TOKENS, 4, 8, 2),
        Schedule("cosine", 0.01, decay_steps=10, warmup_steps=2),
        RunFolder(folder),
    )


def limited(trainer, record):
    """From step 5 on no file may grow beyond 8 KiB: the next checkpoint can't be written."""
    if record.step == 5:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))


def begun(folder, *callbacks):
    """The process id of a training that goes on from the folder's last checkpoint, or begins."""
    if pid := os.fork():
        return pid
    status = 1
    try:
        run = trainer(folder)
        run.callbacks += map(callback, callbacks)
        if run.folder.checkpoints():
            run.resume(run.folder.latest())
        else:
            run.folder.clear_log()
        result = run.fit()
        (folder / "done").write_text(result.state_hash)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(pid):
    """Its exit status; minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def outcome(folder):
    log = [{k: v for k, v in row.items() if k != "ms_per_step"} for row in RunFolder(folder).read_log()]
    return {"hash": (folder / "done").read_text(), "log": log}


def unbroken(folder):
    """What a run that nobody stops ends with, and the seconds it takes."""
    folder.mkdir()
    start = time.perf_counter()
    assert ended(begun(folder)) == 0
    return outcome(folder), time.perf_counter() - start


def broken(folder, choose, seconds):
    """Killed up to KILLS times, then left alone."""
    folder.mkdir()
    killed = []
    while not (folder / "done").exists():
        pid = begun(folder)
        if len(killed) < KILLS:
            time.sleep(choose.uniform(0, 1.1 * seconds))
            os.kill(pid, signal.SIGKILL)
        status = ended(pid)
        assert status in (0, -signal.SIGKILL), status
        if status:
            found = RunFolder(folder).checkpoints()
            killed.append(found[-1][0] if found else 0)
    return {**outcome(folder), "killed": killed}


def full(folder):
    """A run whose disk is full at step 6: what is there then, and how it ends when there is room again."""
    folder.mkdir()
    assert ended(begun(folder, limited)) == 1
    left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_dir())
    assert ended(begun(folder)) == 0
    return {**outcome(folder), "left": left}


def main():
    root, runs, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    choose = random.Random(seed)
    trainer(root / "first").fit()  # kernels are loaded, for all children
    assert threading.active_count() == 1
    expected, seconds = unbroken(root / "whole")
    if not runs:
        print(json.dumps({"expected": expected, "found": full(root / "full")}))
        return
    found = [broken(root / f"run-{n}", choose, seconds) for n in range(runs)]
    print(json.dumps({"expected": expected, "found": found}))


if __name__ == "__main__":
    main()
