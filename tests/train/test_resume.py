"""A resumed run ends bit for bit where the unbroken one does; a checkpoint is whole or not there."""

from __future__ import annotations

import json

import numpy as np
import pytest

import entrenar as en
from entrenar.data import TokenBatches, Windows
from entrenar.io import DataError
from entrenar.models import GPT2, GPT2Config
from entrenar.optim import SGD, AdamW, Schedule, decay_groups
from entrenar.train import RunFolder, TrainConfig, Trainer, state_hash

TOKENS = np.random.default_rng(0).integers(0, 13, 150)  # 18 windows: an epoch ends within 6 steps


def trainer(folder, steps, seed=1, n_embd=12, make=AdamW, **config):
    en.manual_seed(seed)
    model = GPT2(
        GPT2Config(
            vocab_size=13,
            n_positions=8,
            n_embd=n_embd,
            n_layer=2,
            n_head=2,
            embd_pdrop=0.2,
            resid_pdrop=0.2,
            attn_pdrop=0.2,
        )
    )
    return Trainer(
        model,
        make(decay_groups(model.named_parameters(), 0.1), lr=0.01),
        TrainConfig(steps, accumulation=2, eval_every=2, **config),
        TokenBatches(TOKENS, 3, 8, seed=4),
        Windows(TOKENS, 4, 8, 2),
        Schedule("cosine", 0.01, decay_steps=5, warmup_steps=1),
        RunFolder(folder),
    )


def numbers(folder):
    return [{k: v for k, v in row.items() if k != "ms_per_step"} for row in RunFolder(folder).read_log()]


@pytest.mark.parametrize("make", [AdamW, lambda p, lr: SGD(p, lr=lr, momentum=0.9)], ids=["adamw", "sgd"])
def test_six_steps_are_three_and_three(tmp_path, make):
    whole = trainer(tmp_path / "whole", 6, make=make)
    result = whole.fit()
    assert trainer(tmp_path / "parts", 6, make=make).fit(until=3).stopped == "paused at step 3"
    rest = trainer(
        tmp_path / "parts", 6, seed=99, make=make
    )  # other weights and generator: all come from the checkpoint
    rest.resume(rest.folder.latest())
    assert rest.step == 3
    again = rest.fit()
    assert again == result
    for name, value in whole.model.state_dict().items():
        assert value.data.tobytes() == rest.model.state_dict()[name].data.tobytes(), name
    assert vars(whole.metrics) == vars(rest.metrics)
    assert numbers(tmp_path / "whole") == numbers(tmp_path / "parts")


def test_log_after_the_checkpoint_is_dropped(tmp_path):
    trainer(tmp_path, 5, save_every=3).fit()
    folder = RunFolder(tmp_path)
    with (tmp_path / "training_log.csv").open("a") as file:
        file.write("6,1.0,")  # torn by a kill
    t = trainer(tmp_path, 6)
    t.resume(folder.checkpoint(3))
    assert [row["step"] for row in folder.read_log()] == ["1", "2", "3"] and t.metrics.steps == [1, 2, 3]


def test_rotation_goes_by_step_number(tmp_path):
    trainer(tmp_path, 11, save_every=1, keep=3).fit()
    assert [step for step, _ in RunFolder(tmp_path).checkpoints()] == [9, 10, 11]
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step-10", "step-11", "step-9"]


def test_state_hash_tells_states_apart(tmp_path):
    a, b = trainer(tmp_path / "a", 2), trainer(tmp_path / "b", 2)
    assert state_hash(a) == state_hash(b)
    en.default_generator.uniform(3)
    assert state_hash(a) == state_hash(b)  # both see the one default generator
    b.train_step([next(b.batches)])
    before = state_hash(b)
    b.optimizer.state[b.model.wte.weight]["exp_avg"][0, 0] += 1
    assert state_hash(b) != before != state_hash(a)


def test_checkpoint_holds_its_hash_and_best_its_loss(tmp_path):
    t = trainer(tmp_path, 4)
    result = t.fit()
    state = json.loads((tmp_path / "checkpoints" / "step-4" / "state.json").read_text())
    assert state["hash"] == result.state_hash == state_hash(t)
    best = json.loads((tmp_path / "best" / "state.json").read_text())
    assert best["val_loss"] == result.best_val_loss and best["step"] == t.metrics.best_step
    weights, _ = RunFolder(tmp_path).weights("best")
    assert set(weights) == set(t.model.state_dict())


def test_damage_and_strangers_are_named(tmp_path):
    t = trainer(tmp_path, 2)
    t.fit()
    path = t.folder.latest()
    with pytest.raises(ValueError, match="does not fit GPT2"):
        trainer(tmp_path, 2, n_embd=16).resume(path)
    with pytest.raises(ValueError, match=r"missing 'momentum_buffer'|option"):
        trainer(tmp_path, 2, make=lambda p, lr: SGD(p, lr=lr, momentum=0.9)).resume(path)
    with pytest.raises(DataError, match=r"no checkpoint: state\.json"):
        t.resume(tmp_path)
    text = (path / "state.json").read_text()
    (path / "state.json").write_text(text.replace('"step": 2', '"step": 1', 1))
    with pytest.raises(DataError, match="the checkpoint was changed"):
        t.resume(path)
    (path / "state.json").write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        t.resume(path)
    model = path / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1])
    (path / "state.json").write_text(text)
    with pytest.raises(DataError, match=r"model\.safetensors"):
        t.resume(path)
    with pytest.raises(DataError, match="no checkpoint to go on from"):
        RunFolder(tmp_path / "nothing").latest()


def test_a_trainer_without_a_folder_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    t = trainer(tmp_path, 2)
    t.folder = None
    assert t.fit().step == 2 and t.save_checkpoint() is None and not list(tmp_path.iterdir())
