"""Runs killed at random moments and resumed end where the unbroken run does, to the bit, their logs too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks, and sets limits of its own")
PROGRAM = Path(__file__).with_name("kills.py")
ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def told_by(folder, runs, seed):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), str(runs), str(seed)],
        env=ENV,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def check(folder, runs, seed):
    told, _ = told_by(folder, runs, seed)
    assert len(told["found"]) == runs
    assert [row["step"] for row in told["expected"]["log"]] == [str(n) for n in range(1, 13)]
    for found in told["found"]:
        assert found["hash"] == told["expected"]["hash"], found["killed"]
        assert found["log"] == told["expected"]["log"], found["killed"]
    killed = [step for found in told["found"] for step in found["killed"]]
    assert len(killed) >= runs  # a run is killed once at least, on average
    return killed


def test_a_few_runs(tmp_path):
    check(tmp_path, 5, 0)


@pytest.mark.slow
def test_a_hundred_runs(tmp_path):
    killed = check(tmp_path, 100, 1)
    assert len(set(killed)) >= 4  # at many places, before the first checkpoint and after the last ones


def test_a_full_disk_leaves_the_checkpoints_before_it_whole(tmp_path):
    told, errors = told_by(tmp_path, 0, 0)
    assert "OSError" in errors and "File too large" in errors
    assert told["found"]["left"] == ["best", "checkpoints", "checkpoints/step-2", "checkpoints/step-4"]
    assert told["found"]["hash"] == told["expected"]["hash"] and told["found"]["log"] == told["expected"]["log"]
