"""Presets: the published sizes, counted without memory, and models of them that train."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import entrenar as en
from entrenar.models import MODELS, PRESETS, build
from entrenar.nn import init

PUBLISHED = {  # parameters of the weights that the repositories hold; BERT's with the pooler
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "tinyllama-1.1b": 1_100_048_384,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3-8b": 8_030_261_248,
    "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-7b": 7_615_616_512,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "bert-base-uncased": 109_482_240,
    "bert-large-uncased": 335_141_888,
    "all-minilm-l6-v2": 22_713_216,
}
COUNT = """
import json, resource
from entrenar.models import PRESETS, build
from entrenar.nn import count_parameters, init
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, counts = peak(), {}
for name in PRESETS:
    with init.left_empty():
        counts[name] = count_parameters(build(name))
print(json.dumps([counts, peak() - before]))
"""


@pytest.fixture(scope="module")
def counted():
    """({preset: its parameters}, bytes of memory that it took to build them all)."""
    # the C library else keeps what large arrays leave behind, and hands it out as memory that was touched before
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True, env=env)
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_are_as_many_as_published(name, counted):
    assert counted[0][name] == PUBLISHED[name]


def test_models_left_empty_take_no_memory(counted):
    assert counted[1] < 100e6  # the largest alone has 32 GB of weights


# config.json of the repositories, one for each architecture
FILES = {
    "gpt2-medium": dict(
        activation_function="gelu_new",
        architectures=["GPT2LMHeadModel"],
        attn_pdrop=0.1,
        bos_token_id=50256,
        embd_pdrop=0.1,
        eos_token_id=50256,
        initializer_range=0.02,
        layer_norm_epsilon=1e-05,
        model_type="gpt2",
        n_ctx=1024,
        n_embd=1024,
        n_head=16,
        n_layer=24,
        n_positions=1024,
        n_special=0,
        predict_special_tokens=True,
        resid_pdrop=0.1,
        summary_activation=None,
        summary_first_dropout=0.1,
        summary_proj_to_labels=True,
        summary_type="cls_index",
        summary_use_proj=True,
        task_specific_params={"text-generation": {"do_sample": True, "max_length": 50}},
        vocab_size=50257,
    ),
    "llama-3.2-1b": dict(
        architectures=["LlamaForCausalLM"],
        attention_bias=False,
        attention_dropout=0.0,
        bos_token_id=128000,
        eos_token_id=128001,
        head_dim=64,
        hidden_act="silu",
        hidden_size=2048,
        initializer_range=0.02,
        intermediate_size=8192,
        max_position_embeddings=131072,
        mlp_bias=False,
        model_type="llama",
        num_attention_heads=32,
        num_hidden_layers=16,
        num_key_value_heads=8,
        pretraining_tp=1,
        rms_norm_eps=1e-05,
        rope_scaling={
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        rope_theta=500000.0,
        tie_word_embeddings=True,
        torch_dtype="bfloat16",
        transformers_version="4.45.0.dev0",
        use_cache=True,
        vocab_size=128256,
    ),
    "qwen2-7b": dict(
        architectures=["Qwen2ForCausalLM"],
        attention_dropout=0.0,
        bos_token_id=151643,
        eos_token_id=151643,
        hidden_act="silu",
        hidden_size=3584,
        initializer_range=0.02,
        intermediate_size=18944,
        max_position_embeddings=131072,
        max_window_layers=28,
        model_type="qwen2",
        num_attention_heads=28,
        num_hidden_layers=28,
        num_key_value_heads=4,
        rms_norm_eps=1e-06,
        rope_theta=1000000.0,
        sliding_window=131072,
        tie_word_embeddings=False,
        torch_dtype="bfloat16",
        use_cache=True,
        use_sliding_window=False,
        vocab_size=152064,
    ),
    "mistral-7b-v0.1": dict(
        architectures=["MistralForCausalLM"],
        bos_token_id=1,
        eos_token_id=2,
        hidden_act="silu",
        hidden_size=4096,
        initializer_range=0.02,
        intermediate_size=14336,
        max_position_embeddings=32768,
        model_type="mistral",
        num_attention_heads=32,
        num_hidden_layers=32,
        num_key_value_heads=8,
        rms_norm_eps=1e-05,
        rope_theta=10000.0,
        sliding_window=4096,
        tie_word_embeddings=False,
        torch_dtype="bfloat16",
        use_cache=True,
        vocab_size=32000,
    ),
    "all-minilm-l6-v2": dict(
        _name_or_path="nreimers/MiniLM-L6-H384-uncased",
        architectures=["BertModel"],
        attention_probs_dropout_prob=0.1,
        gradient_checkpointing=False,
        hidden_act="gelu",
        hidden_dropout_prob=0.1,
        hidden_size=384,
        initializer_range=0.02,
        intermediate_size=1536,
        layer_norm_eps=1e-12,
        max_position_embeddings=512,
        model_type="bert",
        num_attention_heads=12,
        num_hidden_layers=6,
        pad_token_id=0,
        position_embedding_type="absolute",
        transformers_version="4.8.2",
        type_vocab_size=2,
        use_cache=True,
        vocab_size=30522,
        add_pooling_layer=True,  # not in the file: the weights tell
    ),
}


def test_every_architecture_has_a_published_file_here():
    assert {PRESETS[name][0] for name in FILES} == set(MODELS)


@pytest.mark.parametrize("name", FILES)
def test_a_preset_is_what_its_published_file_says(name):
    with init.left_empty():
        config = build(name).config
    assert MODELS[PRESETS[name][0]][0].from_hf(FILES[name]) == config


SMALL = {
    "gpt2": dict(n_embd=64, n_layer=2, n_head=4, n_positions=16, vocab_size=300),
    "bert": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, vocab_size=300),
}
for family in ("llama", "mistral", "qwen2"):
    SMALL[family] = dict(SMALL["bert"], num_key_value_heads=2, max_position_embeddings=16)


@pytest.mark.parametrize("name", PRESETS)
def test_initial_weights_have_the_deviations_of_their_architecture(name):
    en.manual_seed(0)
    family = PRESETS[name][0]
    model = build(name, SMALL[family])
    assert model.config.initializer_range == 0.02
    for own, parameter in model.named_parameters():
        values = parameter.data
        if own.endswith("bias"):
            assert not values.any(), own
        elif values.ndim == 1:
            assert (values == 1).all(), own
        else:
            if own.endswith("word_embeddings.weight"):  # BERT's padding token
                assert not values[0].any()
                values = values[1:]
            # GPT-2 alone (Radford et al. 2019, section 2.3) divides what is added to the residual stream by
            # the root of the number of such projections, two a layer
            std = 0.02 / (2 if family == "gpt2" and "c_proj" in own else 1)
            assert abs(values.std() / std - 1) < 5 / np.sqrt(2 * values.size), own
            assert abs(values.mean()) < 5 * std / np.sqrt(values.size), own


@pytest.mark.parametrize("name", ["gpt2", "tinyllama-1.1b", "qwen2-0.5b", "mistral-7b-v0.1"])
def test_a_smaller_one_learns(name):
    en.manual_seed(0)
    model = build(name, SMALL[PRESETS[name][0]])
    optimizer = en.optim.AdamW(model.parameters(), lr=1e-2)
    ids = np.random.default_rng(0).integers(0, 300, (2, 17))
    losses = []
    for _ in range(4):
        loss = model.loss(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(np.log(300), rel=0.1)
    assert losses[-1] < losses[0] - 0.5


def test_a_whole_one_trains_a_step():
    en.manual_seed(0)
    model = build("all-minilm-l6-v2")
    optimizer = en.optim.AdamW(model.parameters(), lr=1e-3)
    ids = np.array([[101, 7592, 2088, 102]])

    def loss():
        states = model.eval()(ids)
        return ((states - 1) ** 2).mean()

    before = loss()
    before.backward()
    optimizer.step()
    assert loss().item() < before.item()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
@pytest.mark.parametrize("name", ["gpt2", "tinyllama-1.1b", "all-minilm-l6-v2"])
def test_weights_in_another_dtype(name, dtype):
    en.manual_seed(0)
    model = build(name, SMALL[PRESETS[name][0]], dtype=dtype)
    assert {p.dtype.name for p in model.parameters()} == {dtype}
    en.manual_seed(0)
    for other, p in zip(build(name, SMALL[PRESETS[name][0]]).parameters(), model.parameters(), strict=True):
        np.testing.assert_allclose(p.data.astype("f8"), other.data, rtol=0.02, atol=1e-7)  # two roundings of bfloat16


def test_what_is_wrong_is_told_with_the_nearest_name():
    with pytest.raises(ValueError, match=r"unknown model 'tinylama-1\.1b'.*Did you mean 'tinyllama-1\.1b'"):
        build("tinylama-1.1b")
    with pytest.raises(TypeError, match=r"LlamaConfig has no field 'num_layers'.*Did you mean 'num_hidden_layers'"):
        build("tinyllama-1.1b", {"num_layers": 2})
    with pytest.raises(ValueError, match="num_attention_heads must be divisible by num_key_value_heads=3, got 32"):
        build("tinyllama-1.1b", {"num_key_value_heads": 3})
    with pytest.raises(TypeError, match="dtype must be a float dtype, got int32"):
        build("gpt2", SMALL["gpt2"], dtype="int32")


def test_left_empty_draws_nothing():
    state = en.default_generator.state()
    with init.left_empty():
        for name in ("gpt2", "tinyllama-1.1b", "all-minilm-l6-v2"):
            build(name, SMALL[PRESETS[name][0]], dtype="float16")
    assert en.default_generator.state() == state
