"""Rotary positions against transformers: every scaling's function, and Llama's module."""

import itertools

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from entrenar.models.rotary import rotary_from_config

SIZES = [  # head_dim, rope_theta, max_position_embeddings
    (16, 10000.0, 64),
    (64, 500000.0, 131072),
    (128, 1000000.0, 32768),
]
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALINGS = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "linear", "factor": 8},
    {"rope_type": "dynamic", "factor": 1.0},
    {"rope_type": "dynamic", "factor": 4.0},
    {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 48, **LLAMA3},
    {"rope_type": "llama3", "factor": 32.0, "original_max_position_embeddings": 8192, **LLAMA3},
    {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 2, "high_freq_factor": 9},
    {"rope_type": "yarn", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    {"rope_type": "yarn", "factor": 1.0, "original_max_position_embeddings": 4096},
    {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 32},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192, "truncate": False},
    {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 0.7, "mscale_all_dim": 1},
    {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 1.0},
    {"rope_type": "yarn", "factor": 16.0, "beta_fast": 16, "beta_slow": 2.5, "attention_factor": 1.25},
    {"rope_type": "yarn", "factor": 16.0, "beta_fast": 4, "beta_slow": 4, "original_max_position_embeddings": 2048},
]
CASES = list(itertools.product(SIZES, SCALINGS))


def config(size, scaling):
    head, theta, length = size
    fields = dict(hidden_size=2 * head, num_attention_heads=2, head_dim=head, max_position_embeddings=length)
    return LlamaConfig(**fields, num_hidden_layers=1, rope_parameters={**scaling, "rope_theta": theta})


def theirs(made, longest=None):
    kind = made.rope_parameters["rope_type"]
    if kind == "default":
        return LlamaRotaryEmbedding.compute_default_rope_parameters(made)
    return ROPE_INIT_FUNCTIONS[kind](made, seq_len=longest)


@pytest.mark.parametrize(("size", "scaling"), CASES)
def test_frequencies_equal_theirs_in_float32(size, scaling):
    made = config(size, scaling)
    inverse, factor = theirs(made)
    ours = rotary_from_config(made.to_dict())
    np.testing.assert_allclose(ours.inverse, inverse.numpy(), rtol=1e-6)
    assert ours.attention_factor == pytest.approx(factor, rel=1e-15)


@pytest.mark.parametrize(("size", "scaling"), CASES)
@pytest.mark.parametrize("beyond", [None, 1.5, 7])
def test_frequencies_equal_theirs_in_float64(size, scaling, beyond, monkeypatch):
    monkeypatch.setattr(torch, "float", torch.float64)  # their functions name these two
    monkeypatch.setattr(torch, "float32", torch.float64)
    made = config(size, scaling)
    longest = None if beyond is None else int(size[2] * beyond)
    inverse, factor = theirs(made, longest)
    assert inverse.dtype == torch.float64
    ours = rotary_from_config(made.to_dict())
    np.testing.assert_allclose(ours.frequencies(longest or 1), inverse.numpy(), rtol=1e-12)
    assert ours.attention_factor == pytest.approx(factor, rel=1e-15)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_the_older_form_of_the_config_means_the_same_here_and_there(scaling):
    older = {**scaling, "type": scaling["rope_type"]}
    del older["rope_type"]
    fields = dict(hidden_size=64, num_attention_heads=2, max_position_embeddings=128, rope_theta=5e4)
    inverse, factor = theirs(LlamaConfig(**fields, rope_scaling=dict(older)))
    ours = rotary_from_config({**fields, "rope_scaling": older})
    np.testing.assert_allclose(ours.inverse, inverse.numpy(), rtol=1e-6)
    assert ours.attention_factor == pytest.approx(factor, rel=1e-15)


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn"])
def test_a_part_of_the_head(kind):
    parameters = {"rope_type": kind, "factor": 2.0, "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    made = LlamaConfig(hidden_size=64, num_attention_heads=2, rope_parameters=parameters)
    inverse, _ = theirs(made)
    ours = rotary_from_config(made.to_dict())
    assert ours.dims == 16
    np.testing.assert_allclose(ours.inverse, inverse.numpy(), rtol=1e-6)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_tables_equal_the_module_s(scaling):
    made = config(SIZES[0], scaling)
    at = np.random.default_rng(0).integers(0, 64, (2, 9))
    cos, sin = LlamaRotaryEmbedding(made)(torch.zeros(1), torch.tensor(at))
    for ours, peer in zip(rotary_from_config(made.to_dict()).tables(at), (cos, sin), strict=True):
        np.testing.assert_allclose(ours, peer.numpy()[..., :8], rtol=0, atol=1e-5)


def test_dynamic_beyond_the_limit_equals_the_module_as_a_text_grows_and_after_a_short_one():
    made = config(SIZES[0], {"rope_type": "dynamic", "factor": 4.0})
    module, ours = LlamaRotaryEmbedding(made), rotary_from_config(made.to_dict())
    inverses = []
    # a prompt within the limit, one beyond it, then single tokens, then a short text, then a long one
    for at in (range(40), range(70), [70], [71], range(12), range(200)):
        at = np.array(at)[None]
        cos, sin = module(torch.zeros(1), torch.tensor(at))
        inverses.append(module.inv_freq.numpy().copy())
        np.testing.assert_allclose(ours.frequencies(at.max() + 1), inverses[-1], rtol=1e-6)
        for table, peer in zip(ours.tables(at), (cos, sin), strict=True):
            np.testing.assert_allclose(table, peer.numpy()[..., :8], rtol=0, atol=3e-5)  # 200 * eps of their float32
    assert not np.array_equal(inverses[0], inverses[1]) and np.array_equal(inverses[0], inverses[4])
