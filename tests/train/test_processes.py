"""Real processes: killed at any moment, asked to end, told twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from entrenar.config import load_config
from entrenar.train import RunFolder, prepare

CONFIG = """\
model: {n_positions: 16, n_embd: 16, n_layer: 1, n_head: 2}
data: {root: ROOT, pattern: "*.txt", held_out: 0.3, seq_len: 16, batch_size: 4}
training: {steps: STEPS, eval_every: 7, save_every: 1, keep: 2, log_every: 1, output: OUT,
  sample: {prompt: "a", tokens: 5}}
"""
ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture
def config(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    for n in range(12):
        (texts / f"{n}.txt").write_text("a boat has a flat bottom and a saw has teeth\n" * 8)
    path = tmp_path / "config.yaml"
    text = CONFIG.replace("ROOT", str(texts)).replace("OUT", str(tmp_path / "run")).replace("STEPS", "100000")
    path.write_text(text)
    return path


def start(config, *more):
    return subprocess.Popen(
        [sys.executable, "-m", "entrenar", "train", str(config), *more],
        env=ENV,
        text=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def wait_for(process, word):
    """Read stderr up to a line with ``word``."""
    for line in process.stderr:
        if word in line:
            return line
    raise AssertionError(f"ended with {process.wait()} before {word!r}: {process.stdout.read()}")


def loaded(config, checkpoint):
    """The trainer after loading a checkpoint: raises if anything of it is missing or changed."""
    run = prepare(load_config(config))
    run.trainer.folder = None
    run.trainer.resume(checkpoint)
    return run.trainer


def test_a_kill_at_any_moment_leaves_a_checkpoint_that_loads(config):
    choose = random.Random(0)
    folder, reached = RunFolder(config.parent / "run"), 0
    for round_ in range(4):
        process = start(config, *(["--resume"] if round_ else []))
        wait_for(process, "checkpoint")
        time.sleep(choose.uniform(0, 0.15))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        step = loaded(config, folder.latest()).step
        assert step > reached
        reached = step
        assert all((path / "state.json").exists() for _, path in folder.checkpoints())


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_after_a_checkpoint(config, number, status):
    process = start(config, "training.save_every=100000")
    wait_for(process, "step 3/")
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == status
    folder = RunFolder(config.parent / "run")
    last = int(folder.read_log()[-1]["step"])
    assert f"interrupted by {number.name}; checkpoint {folder.latest()}" in errors and "Traceback" not in errors
    assert folder.latest() == folder.checkpoint(last)
    assert (
        json.loads((folder.latest() / "state.json").read_text())["step"] == last == loaded(config, folder.latest()).step
    )


def test_a_signal_before_the_first_step(config):
    process = start(config)
    wait_for(process, "reading")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143


def test_the_second_signal_is_obeyed_at_once(config):
    """A run that hangs in its step (here: in a callback) does not hold up the second signal."""
    code = (
        "import sys, time\nfrom entrenar.config import load_config\nfrom entrenar.train import prepare, Callback\n"
        "class Hang(Callback):\n"
        "    def on_step(self, trainer, record):\n"
        "        print('hanging', file=sys.stderr, flush=True)\n"
        "        for _ in range(600): time.sleep(0.1)\n"
        f"prepare(load_config({str(config)!r}), callbacks=[Hang()]).trainer.fit()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=ENV, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    wait_for(process, "hanging")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode == 130
