"""Configuration: every fault has a place and the nearest name; nothing is ignored (cases 169-175)."""

import pytest

from entrenar.config import Config, dump_config, json_schema, load_config
from entrenar.io import ConfigError


def write(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return path


FAULTS = [
    ("modle:\n  x: 1", r":1:1: unknown key 'modle'\. Did you mean 'model'\?"),
    ("data:\n  seqlen: 4", r":2:3: unknown key 'data.seqlen'\. Did you mean 'seq_len'\?"),
    ("training:\n  sample:\n    promt: x", r":3:5: unknown key 'training.sample.promt'\. Did you mean 'prompt'\?"),
    ("optimizer:\n  lr: 1e-4x", r":2:3: optimizer.lr: .*number.*'1e-4x'"),
    ("optimizer:\n  lr: true", r":2:3: optimizer.lr: .*True"),
    ("optimizer:\n  lr: -1", r":2:3: optimizer.lr: .*greater than 0.*-1"),
    ("model:\n  n_layer: 2.0", r":2:3: model.n_layer: .*integer.*2.0"),
    ("model:\n  n_head: 5", r":2:3: model.n_embd: 768 is not divisible by n_head=5"),
    ("model: 3", r":1:1: model: .*3"),
    ("optimizer:\n  name: adamm", r":2:3: optimizer.name: .*'adamm'"),
    ("optimizer:\n  betas: [0.9]", r":2:3: optimizer.betas"),
    ("training:\n  steps: 10\nscheduler:\n  warmup_steps: 5", r"warmup_steps=5 is more than 30 %"),
    ("data:\n  seq_len: 2048", r"seq_len=2048 is above model.n_positions=1024"),
    ("training:\n  seed: 010", r":2:9: 010 is ambiguous"),
    ("model:\n  dtype: float16", r":2:3: model.dtype: .*'bfloat16'.*'float16'"),
    ("optimizer:\n  name: sgd\n  state_dtype: bfloat16", r":1:1: optimizer: .*for adam and adamw, name is 'sgd'"),
    ("model: {dtype: float64}\noptimizer: {state_dtype: bfloat16}", r"state_dtype.*model.dtype='float64'"),
    ("optimizer:\n  stochastic_rounding: true", r"for model.dtype='bfloat16', which is 'float32'"),
    ("- a", r":1:1: expected sections"),
    ("model:\n  n_layer: 2\nmodel:\n  n_layer: 3", r":3:1: key 'model' stands twice, first in line 1"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_faults_are_told_with_their_place(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load_config(write(tmp_path, text))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.seqlen=3", r"command line: data.seqlen: unknown key.*'seq_len'"),
        ("foo", "expected section.key=value"),
        ("model.n_head=x", r"command line: model.n_head: .*'x'"),
        ("training.seed=1_0", "write 10"),
        ("optimizer.lr.x=3", "optimizer.lr is no section"),
    ],
)
def test_overrides_are_checked_the_same_way(tmp_path, override, message):
    path = write(tmp_path, "optimizer:\n  lr: 1e-3\nmodel:\n  n_head: 12\n")
    with pytest.raises(ConfigError, match=message):
        load_config(path, [override])


def test_defaults_overrides_and_empty_sections(tmp_path):
    config = load_config(write(tmp_path, "model:\noptimizer:\n  lr: 1\n"), ["training.steps=5", "data.max_bytes=1000"])
    assert config.optimizer.lr == 1.0
    assert config.training.steps == 5
    assert config.model.n_embd == 768
    assert load_config(write(tmp_path, "")) == Config()


def test_the_complete_configuration_reads_back_the_same(tmp_path):
    config = load_config(write(tmp_path, "optimizer:\n  lr: 3.3e-7\n  betas: [0.1, 0.2]\ndata:\n  root: '010'\n"))
    text = dump_config(config)
    assert load_config(write(tmp_path, text)) == config
    for section, model in config:
        assert f"{section}:" in text
        assert all(f"  {key}:" in text for key in type(model).model_fields)


def test_the_schema_names_every_section():
    assert set(json_schema()["properties"]) == set(Config.model_fields)
    assert json_schema()["additionalProperties"] is False
