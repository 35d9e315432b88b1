"""``entrenar verify``: 200 steps verified; one byte changed, and it says where."""

import json

import pytest

from entrenar.io import open_tensors
from entrenar.train.sealed import read_state

CONFIG = """\
model: {n_positions: 16, n_embd: 16, n_layer: 1, n_head: 2}
data: {root: texts, pattern: "*.txt", held_out: 0.3, seq_len: 16, batch_size: 4}
training: {steps: 200, eval_every: 40, save_every: 50, log_every: 50, output: run, sample: {tokens: 0}}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a run of 200 steps."""
    from typer.testing import CliRunner

    from entrenar.cli import app

    folder = tmp_path_factory.mktemp("verified")
    (folder / "texts").mkdir()
    for n in range(12):
        (folder / "texts" / f"{n}.txt").write_text("a boat has a flat bottom and a saw has teeth\n" * 8)
    (folder / "c.yaml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert CliRunner().invoke(app, ["-q", "train", "c.yaml"]).exit_code == 0
    return folder


def test_a_run_of_200_steps_is_verified(place, monkeypatch, call):
    monkeypatch.chdir(place)
    said = call("verify", "run")
    lines = said.stdout.splitlines()
    assert lines[-1] == "verified: 200 steps, 5 states and 200 lines of the log are equal, bit for bit"
    digest = read_state(place / "run" / "checkpoints" / "step-150")["hash"][:16]
    assert f"equal    step 150: checkpoints/step-150, state {digest}" in lines
    assert "replaying run to step 200, in memory" in said.stderr and "step 150/200  loss" in said.stderr


def test_one_byte_changed_is_told_with_its_place(place, monkeypatch, call):
    monkeypatch.chdir(place)
    path = place / "run" / "checkpoints" / "step-150" / "optimizer.safetensors"
    before = path.read_bytes()
    entry = open_tensors(path).entry("exp_avg/wte.weight")
    at = entry.begin + 9
    path.write_bytes(before[:at] + bytes([before[at] ^ 64]) + before[at + 1 :])
    told = call("verify", "run", status=3).stdout
    assert (
        f"the data of 'exp_avg/wte.weight' (bytes {entry.begin} to {entry.end}) were changed; byte {at} is 0x" in told
    )
    assert told.splitlines()[-1] == (
        "NOT verified: damaged are checkpoints/step-150/optimizer.safetensors; the rest is equal over 200 steps"
    )
    said = json.loads(call("-q", "--json", "verify", "run", "--from", 199, status=3).stdout)
    assert (said["verified"], said["from"], said["to"], said["differs"]) == (False, 100, 200, [])
    assert said["damaged"][0]["part"] == "exp_avg/wte.weight" and said["damaged"][0]["step"] == 150
    path.write_bytes(before)


def test_another_configuration_is_not_verified(place, monkeypatch, call):
    monkeypatch.chdir(place)
    path = place / "run" / "config.yaml"
    before = path.read_text()
    path.write_text(before.replace("seed: 0", "seed: 1"))
    told = call("verify", "run", status=1).stdout
    assert "NOT verified: the run differs from its replay, first seen at step 1 in training_log.csv" in told
    path.write_text(before)


def test_what_is_no_run(place, monkeypatch, call):
    monkeypatch.chdir(place)
    assert "not a run folder" in call("verify", "texts", status=3).stderr
    assert "there are 100, 150, 200" in call("verify", "run", "--from", 50, status=3).stderr
    call("verify", "run", "--from", -1, status=2)
