"""A run is replayed: equal to the bit, or where it first differs; damaged files are told from a run that differs."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

from entrenar.config import dump_config, load_config
from entrenar.io import DataError, load_tensors, open_tensors
from entrenar.train import RunFolder, prepare, verify_run
from entrenar.train.checkpoint import MODEL, OPTIMIZER, recorded_digest
from entrenar.train.history import phases, record_change
from entrenar.train.sealed import STATE, contents, read_state, tensor_digests, write_sealed

CONFIG = """\
model: {n_positions: 16, n_embd: 16, n_layer: 1, n_head: 2}
data: {root: texts, pattern: "*.txt", held_out: 0.3, seq_len: 16, batch_size: 4}
training: {steps: 12, eval_every: 5, save_every: 4, accumulation: 2, seed: 3, output: run,
  sample: {prompt: "a", tokens: 5}}
scheduler: {warmup_steps: 2}
"""


def train(folder, *overrides, until=None, resume=False):
    """What ``entrenar train`` does, without what it says."""
    config = load_config("c.yaml", overrides)
    run = prepare(config, folder)
    if resume:
        run.trainer.resume(run.folder.latest())
        record_change(run.folder, run.trainer.step, config)
    run.write_head()
    result = run.trainer.fit(until)
    run.write_result({"step": result.step, "state_hash": result.state_hash})
    return run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the texts, the configuration and a run of 12 steps."""
    place = tmp_path_factory.mktemp("made")
    (place / "texts").mkdir()
    for n in range(12):
        (place / "texts" / f"{n}.txt").write_text("a boat has a flat bottom and a saw has teeth\n" * 8)
    (place / "c.yaml").write_text(CONFIG)
    before = os.getcwd()
    os.chdir(place)
    try:
        train("run")
    finally:
        os.chdir(before)
    return place


@pytest.fixture
def run(made, tmp_path, monkeypatch):
    """A copy of that, as the working directory; the run's folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return RunFolder("run")


def flip(path, at, value=None):
    content = bytearray(path.read_bytes())
    content[at] = content[at] ^ 1 if value is None else value
    path.write_bytes(bytes(content))


def everything(folder):
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.path.rglob("*") if path.is_file()}


def rewrite(path, change):
    """Change what a checkpoint holds, and seal it again: intact, and another."""
    state = read_state(path)
    files = {name: load_tensors(path / name)[0] for name in state["files"]}
    change(files, state)
    digests = {name: tensor_digests(arrays) for name, arrays in files.items()}
    state["files"] = contents(files, digests)
    if "hash" in state:
        state["hash"] = recorded_digest(files, state)
    write_sealed(path, files, state)


def test_an_untouched_run_is_equal_and_stays_untouched(run):
    before, told = everything(run), []
    found = verify_run("run", tell=told.append)
    assert (found.exit_status, found.start, found.end, found.rows) == (0, 0, 12, 12)
    assert [(step, what.split(",")[0]) for step, what in found.equal] == [
        (4, "checkpoints/step-4"),
        (8, "checkpoints/step-8"),
        (12, "checkpoints/step-12"),
        (12, "best"),
        (12, "result.json"),
    ]
    assert everything(run) == before and len(told) == 5
    assert f"state {read_state(run.checkpoint(8))['hash'][:16]}" in found.equal[1][1]


TENSORS = [("checkpoints/step-8", MODEL), ("checkpoints/step-8", OPTIMIZER), ("best", MODEL)]


@pytest.mark.parametrize(("folder", "name"), TENSORS)
def test_a_byte_of_a_tensor_is_told_with_its_place(run, folder, name):
    path = run / f"{folder}/{name}"
    tensor = sorted(open_tensors(path))[3]
    entry = open_tensors(path).entry(tensor)
    at = entry.begin + 4 * 5 + 2
    flip(path, at)
    found = verify_run("run")
    assert found.exit_status == 3 and not found.differs
    (one,) = found.damaged
    assert (one.step, one.file, one.part) == (8 if "8" in folder else 12, f"{folder}/{name}", tensor)
    assert f"the data of {tensor!r} (bytes {entry.begin} to {entry.end}) were changed; byte {at} is 0x" in one.text
    index = [int(i) for i in np.unravel_index(5, entry.shape)]
    values = open_tensors(path)[tensor].reshape(-1)[5]
    assert f": {index} is {values!s}, the replay has " in one.text


@pytest.mark.parametrize("at", [0, 3, 9, 40, 100])
def test_a_byte_of_a_header_is_told_with_its_place(run, at):
    path = run.checkpoint(8) / OPTIMIZER
    flip(path, at)
    found = verify_run("run")
    (one,) = found.damaged
    assert found.exit_status == 3 and one.file == "checkpoints/step-8/optimizer.safetensors"
    assert one.part in (None, "header") and f"; byte {at}, in the header: " in one.text


def test_a_file_that_is_too_short_or_gone(run):
    path = run.checkpoint(8) / MODEL
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    (run.checkpoint(12) / OPTIMIZER).unlink()
    (run.checkpoint(4) / STATE).unlink()
    found = verify_run("run")
    assert found.exit_status == 3 and not found.differs
    assert [one.file for one in found.damaged] == [
        "checkpoints/step-4/state.json",
        "checkpoints/step-8/model.safetensors",
        "checkpoints/step-12/optimizer.safetensors",
    ]
    assert f"the file has {len(content) - 3} bytes, the replay's {len(content)}" in found.damaged[1].text
    assert "No such file" in found.damaged[2].text


STATES = ['"tokens": ', '"best": ', '"hash": "', '"lr": ', '"checksum": "', '"position": ', '"wte.weight": "']


@pytest.mark.parametrize("text", STATES)
def test_a_byte_of_the_state_is_told_with_its_line(run, text):
    path = run.checkpoint(8) / STATE
    content = path.read_bytes()
    at = content.index(text.encode()) + len(text)
    flip(path, at, ord("7") if content[at] != ord("7") else ord("6"))
    found = verify_run("run")
    (one,) = found.damaged
    line = content[:at].count(b"\n") + 1
    assert found.exit_status == 3 and one.file == "checkpoints/step-8/state.json"
    assert f"; byte {at}, line {line}: " in one.text and text.strip() in one.text


def change_weight(files, state):
    files[MODEL]["h.0.mlp.c_fc.weight"][3, 2] = 7


def change_slot(files, state):
    files[OPTIMIZER]["exp_avg_sq/wpe.weight"][1, 0] = 7


def change_position(files, state):
    state["data"]["position"] += 1


def change_generator(files, state):
    state["random"]["default"][2] += 1


def change_option(files, state):
    state["optimizer"]["param_groups"][1]["betas"][0] = 0.7


def change_metrics(files, state):
    state["metrics"]["skipped"] = 1


@pytest.mark.parametrize(
    ("change", "part", "text"),
    [
        (
            change_weight,
            "weights",
            "1 of 16 tensors differ, first 'h.0.mlp.c_fc.weight': [3, 2] is 7.0, the",
        ),
        (change_slot, "optimizer state", "first 'exp_avg_sq/wpe.weight': [1, 0] is 7.0, the replay has "),
        (change_position, "data position", "data.position: "),
        (change_generator, "generators", "random.default[2]: "),
        (change_option, "optimizer options", "optimizer.param_groups[1].betas[0]: 0.7, the replay has 0.9"),
        (change_metrics, "metrics", "metrics.skipped: 1, the replay has 0"),
    ],
)
def test_an_intact_checkpoint_that_differs_is_told_by_its_part(run, change, part, text):
    rewrite(run.checkpoint(8), change)
    found = verify_run("run")
    assert (found.exit_status, found.end, found.damaged) == (1, 8, [])
    (one,) = found.differs
    assert (one.step, one.file, one.part) == (8, "checkpoints/step-8", part) and text in one.text


def test_another_configuration_differs_from_its_first_step(run):
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("lr: 0.001", "lr: 0.0011"))
    found = verify_run("run")
    assert (found.exit_status, found.end, found.rows) == (1, 4, 0)
    assert str(found.differs[0]).startswith("training_log.csv: step 1: lr 0.0005, the replay has 0.00055")
    parts = [one.part for one in found.differs[1:]]
    assert parts == ["schedule", "optimizer options", "weights", "optimizer state"]
    assert "schedule.peak: 0.001, the replay has 0.0011" in found.differs[1].text


def test_a_changed_log_is_told_from_a_changed_run(run):
    path = run / "training_log.csv"
    rows = path.read_text().splitlines()
    cells = rows[6].split(",")
    rows[6] = ",".join([cells[0], cells[1] + "1", *cells[2:]])
    del rows[10]
    path.write_text("\n".join(rows) + "\n")
    found = verify_run("run")
    assert found.exit_status == 3 and len(found.equal) == 5 and found.rows == 10
    first, second = found.damaged
    assert (first.step, second.step) == (6, 10)
    assert f"step 6: train_loss {cells[1]}1, the replay has {cells[1]}; the state of step 8 is equal" in first.text
    assert "lacks 1 of its lines, first that of step 10" in second.text
    path.write_text("nothing of the kind\n1,2\n")
    assert [one.file for one in verify_run("run").damaged] == ["training_log.csv"]


def test_other_files_of_the_run(run):
    flip(run / "tokenizer.json", 40)
    (run / "result.json").write_text("{")
    found = verify_run("run")
    assert found.exit_status == 3 and {one.file for one in found.damaged} == {"tokenizer.json", "result.json"}
    (run / "tokenizer.json").unlink()
    (run / "result.json").write_text(json.dumps({"step": 12, "state_hash": "ab" * 32}))
    found = verify_run("run")
    assert found.exit_status == 1 and found.differs[0].text.startswith("state_hash abababababababab, the replay has ")
    assert found.damaged[0].text == "is missing"


def test_the_best_weights_are_those_of_the_best_validation(run):
    rewrite(run / "best", lambda files, state: files[MODEL]["wpe.weight"].__setitem__((0, 0), 1))
    assert [(one.step, one.file, one.part) for one in verify_run("run").differs] == [(12, "best", "weights")]
    rewrite(run / "best", lambda files, state: state.update(step=9))
    assert "is of step 9, the replay's best validation is of step 12" in verify_run("run").differs[0].text
    shutil.rmtree(run / "best")
    assert [str(one) for one in verify_run("run").damaged] == ["best: is missing"]


def test_from_a_checkpoint_on(run):
    flip(run.checkpoint(8) / MODEL, -1)
    found = verify_run("run", 11)
    assert (found.start, found.end, found.rows, found.exit_status) == (4, 12, 8, 3)
    flip(run.checkpoint(8) / MODEL, -1)
    found = verify_run("run", 11)
    assert (found.start, found.end, found.rows, found.exit_status) == (8, 12, 4, 0)
    assert [step for step, _ in found.equal] == [12, 12, 12]
    flip(run.checkpoint(4) / MODEL, -1)
    found = verify_run("run", 9)
    assert found.exit_status == 3 and found.damaged[0].file == "checkpoints/step-4/model.safetensors"
    with pytest.raises(DataError, match="no intact checkpoint of a step up to 7: there are 4, 8, 12"):
        verify_run("run", 7)


def test_a_run_that_was_paused_resumed_and_made_longer(run):
    train("parts", until=5)
    train("parts", resume=True)
    assert verify_run("parts").exit_status == 0 and not (RunFolder("parts") / "changes.json").exists()
    train("parts", "training.steps=16", "training.save_every=2", resume=True)
    train("parts", "training.steps=20", "training.save_every=2", resume=True)
    found = verify_run("parts")
    assert (found.exit_status, found.end, found.rows) == (0, 20, 20) and len(found.equal) == 5
    assert verify_run("parts", 18).exit_status == 0
    configs = phases(RunFolder("parts"))
    assert [(p.start, p.config.training.steps) for p in configs] == [(0, 12), (12, 16), (16, 20)]
    assert dump_config(configs[-1].config) == (RunFolder("parts") / "config.yaml").read_text()
    os.remove("parts/changes.json")
    assert verify_run("parts").differs[0].step == 4  # the cosine is another


def test_a_change_from_before_an_earlier_one(run):
    folder = RunFolder("parts")
    train("parts", "training.keep=9", until=8)
    train("parts", "training.keep=9", "training.steps=16", resume=True)  # from 8
    for step in (8, 12, 16):
        shutil.rmtree(folder.checkpoint(step))
    train("parts", "training.keep=9", "training.steps=14", resume=True, until=13)  # from 4
    assert [(p.start, p.config.training.steps) for p in phases(folder)] == [(0, 12), (4, 14)]
    assert verify_run("parts").exit_status == 0
    (folder / "changes.json").write_text("[3]")
    with pytest.raises(DataError, match=r"changes\.json"):
        verify_run("parts")


def test_a_run_that_was_killed_after_its_last_checkpoint(run):
    with pytest.raises(KeyboardInterrupt):
        _killed(7)
    found = verify_run("killed")
    assert (found.exit_status, found.end, found.rows) == (0, 7, 7)
    assert [step for step, _ in found.equal] == [4, 5]  # the checkpoint, best/


def _killed(step):
    run = prepare(load_config("c.yaml"), "killed", [lambda trainer, record: _raise(record.step == step)])
    run.write_head()
    run.trainer.fit()


def _raise(now):
    if now:
        raise KeyboardInterrupt


def test_what_is_no_run_or_has_another_text(run, tmp_path):
    with pytest.raises(DataError, match=r"not a run folder \(no config.yaml\)"):
        verify_run("texts")
    (tmp_path / "empty").mkdir()
    shutil.copy("run/config.yaml", "empty")
    with pytest.raises(DataError, match="nothing to verify"):
        verify_run("empty")
    file = sorted((tmp_path / "texts").iterdir())[0]
    file.write_text(file.read_text() + "a boat")
    with pytest.raises(DataError, match="text changed since this run began"):
        verify_run("run")
