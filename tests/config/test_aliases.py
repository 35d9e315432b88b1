"""Axolotl's names: read as the keys here, told, and never beside them."""

import pytest

from entrenar.config import Config, load_config
from entrenar.config.aliases import AXOLOTL, VALUES, WORDS
from entrenar.io import ConfigError


def load(tmp_path, text, *overrides):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    told = []
    return load_config(path, overrides, told.append), [line.removeprefix(f"{path}: ") for line in told]


def value_of(config, key):
    value = config
    for part in key.split("."):
        value = value[int(part)] if part.isdigit() else getattr(value, part)
    return value


GIVEN = {
    "learning_rate": 2e-4,
    "weight_decay": 0.1,
    "adam_beta1": 0.8,
    "adam_beta2": 0.95,
    "adam_epsilon": 1e-6,
    "lr_scheduler": "linear",
    "warmup_steps": 10,
    "cosine_min_lr_ratio": 0.1,
    "micro_batch_size": 2,
    "sequence_len": 64,
    "val_set_size": 0.1,
    "gradient_accumulation_steps": 4,
    "max_steps": 500,
    "max_grad_norm": 0.5,
    "output_dir": "./out",
    "seed": 7,
    "eval_steps": 20,
    "save_steps": 30,
    "save_total_limit": 2,
    "logging_steps": 5,
}


def test_every_name_sets_its_key_and_is_told(tmp_path):
    assert GIVEN.keys() == AXOLOTL.keys()
    text = "".join(f"{name}: {value}\n" for name, value in GIVEN.items()) + "optimizer: adamw_torch\n"
    config, told = load(tmp_path, text)
    assert {name: value_of(config, AXOLOTL[name]) for name in GIVEN} == GIVEN
    assert config.optimizer.name == "adamw"
    assert len(told) == len(GIVEN) + 1
    assert "learning_rate is read as optimizer.lr" in told and "adam_beta2 is read as optimizer.betas[1]" in told
    assert "optimizer is read as optimizer.name, adamw_torch as adamw" in told


@pytest.mark.parametrize("name", AXOLOTL)
def test_each_alone_leaves_the_rest_as_it_is(tmp_path, name):
    config, told = load(tmp_path, f"{name}: {GIVEN[name]}")
    expected = Config().model_dump()
    section, key, *item = AXOLOTL[name].split(".")
    if item:
        expected[section][key] = tuple(GIVEN[name] if i == int(item[0]) else v for i, v in enumerate((0.9, 0.999)))
    else:
        expected[section][key] = GIVEN[name]
    assert config.model_dump() == expected and len(told) == 1


@pytest.mark.parametrize("name", AXOLOTL)
def test_both_names_of_a_key_are_an_error(tmp_path, name):
    section, key, *item = AXOLOTL[name].split(".")
    own = "[0.8, 0.9]" if item else GIVEN[name]
    with pytest.raises(ConfigError, match=rf"c\.yaml:3:1: {name} and {section}\.{key}\S* are the same key: give"):
        load(tmp_path, f"{section}:\n  {key}: {own}\n{name}: {GIVEN[name]}\n")


def test_words_and_values(tmp_path):
    assert load(tmp_path, "optimizer: sgd\nlr_scheduler: constant_with_warmup")[0].scheduler.name == "constant"
    assert load(tmp_path, "optimizer: {name: sgd}")[1] == []
    for key, names in VALUES.items():
        section, field = key.split(".")
        for meant in names.values():
            assert getattr(getattr(load(tmp_path, f"{section}: {{{field}: {meant}}}")[0], section), field) == meant
    assert all(key.split(".")[0] == name for name, key in WORDS.items())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rate: fast", r":1:1: optimizer\.lr: .*number.*'fast'"),
        ("seed: 1\nval_set_size: 2", r":2:1: data\.held_out: .*less than 1.*2"),
        ("optimizer: lamp", r":1:1: optimizer\.name: .*'lamp'"),
        ("lr_scheduler: one_cycle", r":1:1: scheduler\.name: .*'one_cycle'"),
        ("adam_beta1: 2", r":1:1: optimizer\.betas\.0: .*less than 1.*2"),
        ("learning_rte: 1", r":1:1: unknown key 'learning_rte'\. Did you mean 'learning_rate'\?"),
        ("lr: 1e-3", r":1:1: unknown key 'lr': it is optimizer\.lr$"),
        ("name: x", r":1:1: unknown key 'name': it is optimizer\.name or scheduler\.name$"),
        ("n_embd: 3", r":1:1: unknown key 'n_embd': it is model\.n_embd$"),
        ("optimizer: 3\nlearning_rate: 1e-3", r":1:1: optimizer: expected a section, got 3"),
        ("seed: 1\nseed: 2", r":2:1: key 'seed' stands twice, first in line 1"),
        ("data:\n  learning_rate: 1", r":2:3: unknown key 'data\.learning_rate'"),
    ],
)
def test_faults_are_told_where_the_name_stands(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text)


def test_an_override_replaces_what_another_name_gave(tmp_path):
    assert load(tmp_path, "learning_rate: 1e-3", "optimizer.lr=5e-3")[0].optimizer.lr == 5e-3
    with pytest.raises(ConfigError, match=r"command line: seed: unknown key 'seed': it is training\.seed"):
        load(tmp_path, "", "seed=3")


def test_without_a_listener_it_is_a_warning(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("seed: 3")
    with pytest.warns(UserWarning, match=r"c\.yaml: seed is read as training\.seed"):
        assert load_config(path).training.seed == 3
