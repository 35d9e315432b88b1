"""Configurations: what every architecture's fields are checked for, and config.json in both forms."""

import pytest

from entrenar.io import DataError
from entrenar.models import MODELS, BertConfig, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config
from entrenar.models.configuration import FieldError

LLAMAS = [LlamaConfig, MistralConfig, Qwen2Config]
SCALING = {"rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (LlamaConfig, {"num_attention_heads": 0}, "num_attention_heads must be a positive integer, got 0"),
        (LlamaConfig, {"num_attention_heads": "4"}, "num_attention_heads must be a positive integer, got '4'"),
        (LlamaConfig, {"hidden_size": 4097}, "hidden_size must be divisible by num_attention_heads=32, got 4097"),
        (LlamaConfig, {"rope_theta": None}, "rope_theta must be a positive number, got None"),
        (LlamaConfig, {"attention_dropout": "0"}, r"attention_dropout must be in \[0, 1\), got '0'"),
        (LlamaConfig, {"tie_word_embeddings": "false"}, "tie_word_embeddings must be True or False, got 'false'"),
        (LlamaConfig, {"pad_token_id": -1}, r"pad_token_id must be None or an id in \[0, 32000\), got -1"),
        (LlamaConfig, {"head_dim": 7}, "head_dim must be even"),
        (LlamaConfig, {"rope_scaling": {"rope_type": "linear"}}, "rotary scaling 'linear' needs 'factor'"),
        (LlamaConfig, {"rope_scaling": {"rope_type": "linear", "factor": "2"}}, ".*factor must be a positive number"),
        (LlamaConfig, {"rope_scaling": []}, "config: rope_scaling must be a mapping or null"),
        (LlamaConfig, {"rope_theta": 10**400}, "rope_theta must be a positive number"),
        (LlamaConfig, {"rms_norm_eps": 10**400}, "rms_norm_eps must be a positive number"),
        (LlamaConfig, {"head_dim": 10**30}, "head_dim must be below 2147483648"),
        (LlamaConfig, {"bos_token_id": "1"}, "bos_token_id must be None or an id, got '1'"),
        (GPT2Config, {"pad_token_id": True}, "pad_token_id must be None or an id, got True"),
        (GPT2Config, {"eos_token_id": 1.5}, "eos_token_id must be None or an id, or a tuple of ids, got 1.5"),
        (GPT2Config, {"eos_token_id": (1, "2")}, "eos_token_id must be None or an id, or a tuple of ids"),
        (GPT2Config, {"activation_function": {}}, "unknown activation_function {}"),
        (MistralConfig, {"sliding_window": True}, "sliding_window must be a positive integer or None, got True"),
        (MistralConfig, {"sliding_window": "x"}, "sliding_window must be a positive integer or None, got 'x'"),
        (Qwen2Config, {"sliding_window": 1.5}, "sliding_window must be a positive integer or None, got 1.5"),
        (Qwen2Config, {"max_window_layers": "1"}, "max_window_layers must be an integer of at least 0, got '1'"),
        (
            Qwen2Config,
            {"layer_types": True},
            r"layer_types must be None or a tuple of 32 of \('full_attention', .*True",
        ),
        (Qwen2Config, {"layer_types": ["sliding_attention"] * 32}, "layer_types must all be 'full_attention' unless"),
        (MistralConfig, {"attention_bias": True}, "attention_bias must be False, got True"),
        (MistralConfig, {"sliding_window": 0}, "sliding_window must be a positive integer or None, got 0"),
        (Qwen2Config, {"attention_bias": False}, "attention_bias must be True, got False"),
        (Qwen2Config, {"mlp_bias": True}, "mlp_bias must be False, got True"),
        (GPT2Config, {"n_inner": True}, "n_inner must be a positive integer or None, got True"),
        (GPT2Config, {"n_embd": 10, "n_head": 3}, "n_embd=10 is not divisible by n_head=3"),
        (BertConfig, {"hidden_act": "gelu_nev"}, "unknown hidden_act 'gelu_nev'.*Did you mean 'gelu_new'"),
    ],
)
def test_a_wrong_field_is_named(config, options, message):
    with pytest.raises(FieldError, match=f"{config.__name__}: {message}") as error:
        config(**options)
    assert error.value.field == next(iter(options))


@pytest.mark.parametrize("name", MODELS)
def test_every_size_has_an_upper_bound(name):
    config = MODELS[name][0]
    for size in config.SIZES:
        with pytest.raises(FieldError, match="must be "):
            config(**{size: 10**30})


def test_lists_of_json_are_tuples_here():
    assert LlamaConfig(eos_token_id=[3, 4]) == LlamaConfig(eos_token_id=(3, 4))
    kinds = ["full_attention"] * 32
    assert Qwen2Config(layer_types=kinds).layer_types == tuple(kinds)


@pytest.mark.parametrize("config", LLAMAS)
def test_the_two_forms_of_rotary_settings(config):
    older = config.from_hf({"rope_theta": 500.0, "rope_scaling": SCALING})
    assert (older.rope_theta, older.rope_scaling) == (500.0, SCALING)
    assert config.from_hf({"rope_parameters": {**SCALING, "rope_theta": 500.0}}) == older
    for none in ({}, {"rope_scaling": None}, {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}):
        assert config.from_hf(none) == config()
    with pytest.raises(ValueError, match=r"disagree on 'factor': 2\.0, 3\.0"):
        config.from_hf({"rope_scaling": SCALING, "rope_parameters": {**SCALING, "factor": 3.0}})
    with pytest.raises(TypeError, match="rope_parameters must be a mapping"):
        config.from_hf({"rope_parameters": [1]})


@pytest.mark.parametrize("config", LLAMAS)
@pytest.mark.parametrize("scaling", [{"rope_type": "default"}, SCALING])
def test_whole_heads_turn(config, scaling):
    places = [
        {"partial_rotary_factor": 0.5, "rope_scaling": scaling},
        {"rope_scaling": {**scaling, "partial_rotary_factor": 0.5}},
        {"rope_parameters": {**scaling, "partial_rotary_factor": 0.5}},
    ]
    plain = config.from_hf({"rope_scaling": scaling})
    for given in places:
        with pytest.raises(DataError, match=r"partial_rotary_factor=0\.5 is not supported for \w+: expected 1\.0"):
            config.from_hf(given)
        assert config.from_hf(given, ignore=["partial_rotary_factor"]) == plain
    for whole in (1, 1.0, None):
        assert config.from_hf({"partial_rotary_factor": whole, "rope_scaling": scaling}) == plain
    with pytest.raises(FieldError, match="rope_scaling must turn whole heads"):
        config(rope_scaling={**scaling, "partial_rotary_factor": 0.5})


@pytest.mark.parametrize("name", MODELS)
def test_config_json_reads_back_the_same(name):
    config = MODELS[name][0]()
    assert {**vars(config.from_hf(config.to_hf())), "add_pooling_layer": 0} == {**vars(config), "add_pooling_layer": 0}
    assert not set(config.FIXED) & set(config.to_hf())


def test_options_that_no_published_model_sets_are_refused():
    for config, options in (
        (MistralConfig, {"attention_bias": True}),
        (Qwen2Config, {"use_mrope": True}),
        (GPT2Config, {"scale_attn_by_inverse_layer_idx": True}),
    ):
        (name,) = options
        with pytest.raises(DataError, match=f"{name}=True is not supported for {config.MODEL_TYPE}: expected False"):
            config.from_hf(options)


def test_sizes_in_words():
    assert GPT2Config().describe() == "12 layers, 12 heads, width 768, 1024 positions"
    assert BertConfig().describe() == "12 layers, 12 heads, width 768, 512 positions"
    grouped = MistralConfig(max_position_embeddings=8192)
    assert grouped.describe() == (
        "32 layers, 32 heads (8 of keys and values), width 4096, 8192 positions, windows of 4096"
    )
    upper = Qwen2Config(use_sliding_window=True, sliding_window=7)
    assert upper.describe().endswith("32768 positions, windows of 7 in 4 layers")
