"""The section ``model`` of every architecture: its own fields, its own checks, one schema."""

import dataclasses

import pytest

from entrenar.config import Config, dump_config, json_schema, load_config
from entrenar.config.model import FROM_TOKENIZER, SECTIONS
from entrenar.io import ConfigError
from entrenar.models import MODELS
from entrenar.models.decoder import Decoder

OTHERS = sorted(set(SECTIONS) - {"gpt2"})


def load(tmp_path, text, *overrides):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return load_config(path, overrides)


def test_every_decoder_is_a_family():
    assert set(SECTIONS) == {name for name, (_, cls) in MODELS.items() if issubclass(cls, Decoder)}
    assert set(SECTIONS) == set(MODELS) - {"bert"}


@pytest.mark.parametrize("family", SECTIONS)
def test_fields_and_defaults_are_those_of_the_architecture(tmp_path, family):
    section = load(tmp_path, f"model: {{family: {family}}}").model
    config = MODELS[family][0]
    fields = {f.name: f.default for f in dataclasses.fields(config)}
    own = {name: value for name, value in section.model_dump().items() if name not in ("family", "dtype")}
    assert own == {k: v for k, v in fields.items() if k not in FROM_TOKENIZER and k not in config.FIXED}
    made = section.architecture(70)
    assert made == config(vocab_size=70, bos_token_id=None, eos_token_id=None)
    assert made.pad_token_id is None


@pytest.mark.parametrize("family", SECTIONS)
def test_the_complete_configuration_reads_back_the_same(tmp_path, family):
    more = {
        "gpt2": "n_inner: 100, tie_word_embeddings: false",
        "llama": "rope_scaling: {rope_type: linear, factor: 2}, head_dim: 10, mlp_bias: true",
        "mistral": "sliding_window: null, rms_norm_eps: 1e-5",
        "qwen2": "num_hidden_layers: 2, layer_types: [full_attention, sliding_attention], use_sliding_window: true",
    }
    config = load(tmp_path, f"model: {{family: {family}, {more[family]}}}")
    text = dump_config(config)
    assert load(tmp_path, text) == config
    assert all(f"  {key}:" in text for key in SECTIONS[family].model_fields)


LLAMA = "model:\n  family: llama\n"
FAULTS = [
    ("model:\n  family: llma", r":2:3: model.family: unknown decoder 'llma': known are .*Did you mean 'llama'\?"),
    ("model:\n  family: bert", r":2:3: model.family: unknown decoder 'bert': known are \['gpt2', 'llama', "),
    ("model:\n  family:", r":2:3: model.family: unknown decoder 'None'"),
    ("model:\n  family: [llama]", r":2:3: model.family: unknown decoder "),
    (LLAMA + "  hidden_sise: 4", r":3:3: unknown key 'model.hidden_sise'\. Did you mean 'hidden_size'\?"),
    (LLAMA + "  n_embd: 4", r":3:3: unknown key 'model.n_embd' for family 'llama', it is one of gpt2$"),
    ("model:\n  hidden_size: 4", r":2:3: unknown key 'model.hidden_size' for family 'gpt2', it is one of llama, mis"),
    (LLAMA + "  vocab_size: 4", r":3:3: unknown key 'model.vocab_size': the tokenizer decides it"),
    (LLAMA + "  eos_token_id: 4", r":3:3: unknown key 'model.eos_token_id': the tokenizer decides it"),
    ("model:\n  family: mistral\n  mlp_bias: true", r":3:3: unknown key 'model.mlp_bias' for family 'mistral', it is"),
    (LLAMA + "  hidden_size: 64.0", r":3:3: model.hidden_size: .*integer.*64.0"),
    (LLAMA + "  num_key_value_heads: 0", r":3:3: model.num_key_value_heads: .*greater than or equal to 1.*0"),
    (LLAMA + "  rms_norm_eps: 0", r":3:3: model.rms_norm_eps: .*greater than 0.*0"),
    (LLAMA + "  attention_dropout: 1", r":3:3: model.attention_dropout: .*less than 1.*1"),
    (LLAMA + "  mlp_bias: 1", r":3:3: model.mlp_bias: .*boolean.*1"),
    (
        LLAMA + "  num_key_value_heads: 5",
        r":3:3: model.num_attention_heads: .*divisible by num_key_value_heads=5, got 32",
    ),
    (LLAMA + "  hidden_size: 100", r":3:3: model.hidden_size: must be divisible by num_attention_heads=32, got 100"),
    (LLAMA + "  head_dim: 5", r":3:3: model.head_dim: must be even.*, got 5"),
    (LLAMA + "  rope_scaling: linear", r":3:3: model.rope_scaling: .*dictionary.*'linear'"),
    (LLAMA + "  rope_scaling: {rope_type: linaer}", r":3:3: model.rope_scaling: .*'linaer'.*Did you mean 'linear'\?"),
    (LLAMA + "  rope_scaling: {rope_type: linear}", r":3:3: model.rope_scaling: .*'linear' needs 'factor'"),
    (
        LLAMA + "  rope_scaling: {rope_type: linear, factor: x}",
        r":3:3: model.rope_scaling: .*factor must be .*'x'",
    ),
    (
        "model:\n  family: mistral\n  sliding_window: 0",
        r":3:3: model.sliding_window: must be a positive .*, got 0",
    ),
    ("model:\n  family: qwen2\n  layer_types: [a]", r":3:3: model.layer_types: must be None or a tuple of 32 of"),
    ("model:\n  family: qwen2\n  layer_types: [3]", r":3:17: model.layer_types.0: .*string.*3"),
    ("model:\n  activation_function: gelu_nwe", r":2:3: model.activation_function: .*Did you mean 'gelu_new'\?"),
    (LLAMA + "  max_position_embeddings: 64", r"data.seq_len=128 is above model.max_position_embeddings=64$"),
    (
        LLAMA + "  max_position_embeddings: 50\n  rope_scaling: {rope_type: dynamic, factor: 2.5}",
        r"data.seq_len=128 is above 125, model.max_position_embeddings=50 after its rope_scaling$",
    ),
]


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_faults_are_told_with_their_place(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message) as error:
        load(tmp_path, text)
    assert "Section" not in str(error.value) and "tag" not in str(error.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.family=llma", "command line: model.family: model.family: unknown decoder 'llma'"),
        ("model.num_key_value_heads=5", "command line: model.num_key_value_heads: model.num_attention_heads: must be"),
        (
            "model.n_embd=5",
            "command line: model.n_embd: unknown key 'model.n_embd' for family 'llama'",
        ),
    ],
)
def test_overrides_are_checked_the_same_way(tmp_path, override, message):
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, LLAMA, override)


def test_a_family_may_come_from_the_command_line(tmp_path):
    config = load(tmp_path, "", "model.family=llama", "model.hidden_size=64", "model.num_attention_heads=2")
    assert config.model.architecture(5).head_dim == 32


def test_positions_that_a_scaling_adds_may_be_used(tmp_path):
    scaled = "  max_position_embeddings: 64\n  rope_scaling: {rope_type: dynamic, factor: 2.0}"
    assert load(tmp_path, LLAMA + scaled).data.seq_len == 128


def test_the_schema_has_every_family():
    schema = json_schema()
    listed = [choice["$ref"].rpartition("/")[2] for choice in schema["properties"]["model"]["oneOf"]]
    assert len(listed) == len(SECTIONS)
    for name, section in zip(listed, SECTIONS.values(), strict=True):
        found = schema["$defs"][name]
        assert found["additionalProperties"] is False and set(found["properties"]) == set(section.model_fields)
    # without a family it is GPT-2's alone, so that exactly one of them fits
    assert [schema["$defs"][name].get("required", []) for name in listed] == [[], *[["family"]] * len(OTHERS)]
    assert schema["$defs"][listed[1]]["properties"]["hidden_size"]["minimum"] == 1
    assert Config().model.family == "gpt2"
