"""Checkpoints and best/ know what belongs in them: a byte changed anywhere is found, and named."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

import entrenar as en
from entrenar.data import TokenBatches
from entrenar.io import DataError, load_tensors, open_tensors, save_tensors
from entrenar.models import GPT2, GPT2Config
from entrenar.optim import AdamW, decay_groups
from entrenar.train import RunFolder, TrainConfig, Trainer, load_checkpoint, save_checkpoint, state_hash
from entrenar.train.checkpoint import first_digest
from entrenar.train.sealed import MODEL, OPTIMIZER, STATE, damage, read_state, sealed_text, tensor_digests

TOKENS = np.random.default_rng(0).integers(0, 13, 150)


@pytest.fixture
def trainer():
    en.manual_seed(1)
    config = GPT2Config(vocab_size=13, n_positions=8, n_embd=12, n_layer=1, n_head=2)
    model = GPT2(config).to("bfloat16")
    optimizer = AdamW(decay_groups(model.named_parameters(), 0.1), lr=0.01)
    made = Trainer(model, optimizer, TrainConfig(2), TokenBatches(TOKENS, 3, 8, seed=4))
    made.fit()
    return made


def flip(path, at, value=None):
    content = bytearray(path.read_bytes())
    content[at] = content[at] ^ 1 if value is None else value
    path.write_bytes(bytes(content))


def test_a_checkpoint_as_it_was_written(trainer, tmp_path):
    path, digest = save_checkpoint(tmp_path / "step-2", trainer)
    assert digest == state_hash(trainer) and damage(path) == []
    trainer.model.wte.weight.write(0)
    assert state_hash(trainer) != digest
    load_checkpoint(path, trainer)
    assert state_hash(trainer) == digest


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER, STATE])
def test_one_byte_anywhere_is_found_and_named(trainer, tmp_path, name):
    path, _ = save_checkpoint(tmp_path / "step-2", trainer)
    before, choose = (path / name).read_bytes(), random.Random(0)
    data = {} if name == STATE else {n: open_tensors(path / name).entry(n) for n in open_tensors(path / name)}
    start = min((entry.begin for entry in data.values()), default=len(before))
    edges = [0, 7, 8, start - 1, len(before) - 1, len(before) - 2, len(before) - 70, len(before) - 90]
    for at in [*edges, *choose.sample(range(start), 60), *choose.sample(range(len(before)), 60)]:
        flip(path / name, at, choose.choice([b for b in range(256) if b != before[at]]))
        found = damage(path)
        assert [each.file for each in found] == [path / name], at
        inside = next((n for n, entry in data.items() if entry.begin <= at < entry.end), None)
        if inside:
            assert found[0].part == inside and f"{inside!r} (bytes " in str(found[0])
        else:
            assert found[0].part in (None, "header")
        with pytest.raises(DataError, match=name):
            load_checkpoint(path, trainer)
        (path / name).write_bytes(before)
    assert damage(path) == []


def test_missing_files_and_tensors_are_named(trainer, tmp_path):
    path, _ = save_checkpoint(tmp_path / "step-2", trainer)
    arrays, metadata = load_tensors(path / MODEL)
    arrays.pop("wpe.weight")
    save_tensors(path / MODEL, arrays, metadata)
    assert [(d.file, d.part) for d in damage(path)] == [(path / MODEL, "header")]
    (path / OPTIMIZER).unlink()
    assert "cannot be read: No such file" in str(damage(path)[1])
    (path / STATE).unlink()
    assert "no checkpoint: state.json" in str(damage(path)[0])


def test_a_state_of_another_format_does_not_get_by(trainer, tmp_path):
    path, _ = save_checkpoint(tmp_path / "step-2", trainer)
    text = (path / STATE).read_text()
    (path / STATE).write_text(text.replace('"format": 2', '"format": 1', 1))
    with pytest.raises(DataError, match="the checksum is not that of the content"):
        read_state(path)
    (path / STATE).write_text(text.replace('"format": 2', '"format": 3', 1))
    with pytest.raises(DataError, match="not a checkpoint of format 2 or 1"):
        read_state(path)


def test_the_best_weights_are_sealed_too(trainer, tmp_path):
    folder = RunFolder(tmp_path)
    folder.save_best(trainer.model, 2, 1.5)
    assert damage(tmp_path / "best") == [] and folder.weights("best")[1]["val_loss"] == 1.5
    entry = open_tensors(tmp_path / "best" / MODEL).entry("wpe.weight")
    flip(tmp_path / "best" / MODEL, entry.begin + 3)
    assert [d.part for d in damage(tmp_path / "best")] == ["wpe.weight"]


def test_checkpoints_of_format_1_still_load(trainer, tmp_path):
    path, digest = save_checkpoint(tmp_path / "step-2", trainer)
    state = {k: v for k, v in read_state(path).items() if k != "files"}
    files = {name: load_tensors(path / name)[0] for name in (MODEL, OPTIMIZER)}
    old = {**state, "format": 1}
    bare = {k: v for k, v in old.items() if k not in ("hash", "metrics")}
    old["hash"] = first_digest(files, bare)
    (path / STATE).write_text(json.dumps(old, indent=1) + "\n")
    trainer.model.wte.weight.write(0)
    load_checkpoint(path, trainer)
    assert damage(path) == [] and state_hash(trainer) == digest
    flip(path / MODEL, -1)
    with pytest.raises(DataError, match="the state hash is"):
        load_checkpoint(path, trainer)


def test_the_first_hash_is_what_it_was():
    files = {MODEL: {"b": np.arange(3, dtype=np.float32), "a": np.ones((), np.int64)}, OPTIMIZER: {}}
    assert (
        first_digest(files, {"format": 2, "step": 1})
        == "f5ca0177daeec1531ceca8f638331b1a5595c416457fcf52be962d74875e7de9"
    )


def test_digests_do_not_depend_on_layout():
    rows = np.arange(12.0).reshape(3, 4)
    same = [rows, np.asfortranarray(rows), rows.astype(">f8"), np.pad(rows, 1)[1:-1, 1:-1]]
    assert len({tensor_digests({"x": array})["x"] for array in same}) == 1
    assert set(tensor_digests({"empty": np.zeros((0, 3)), "scalar": np.float32(1)})) == {"empty", "scalar"}


def test_the_checksum_covers_all_but_its_line():
    text = sealed_text({"format": 2, "a": {"b": [1]}})
    assert json.loads(text).keys() == {"format", "a", "checksum"} and text.endswith('"\n}\n')
