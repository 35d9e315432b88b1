"""Rotary positions: each scaling by its definition, both forms of a config, every error by its name."""

from __future__ import annotations

import math

import numpy as np
import pytest

from entrenar.models.rotary import Rotary, mscale, rotary_from_config
from entrenar.ops.attention import rope, rotary_tables

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


def test_without_a_scaling_the_tables_are_those_of_rope():
    at = np.array([[0, 3, 7], [1, 2, 2000]])
    for scaling in (None, {}, {"rope_type": "default"}, {"type": "default"}):
        cos, sin = Rotary(8, 500.0, scaling).tables(at)
        assert cos.dtype == sin.dtype == np.float64 and cos.shape == (2, 3, 4)
        for ours, plain in zip((cos, sin), rotary_tables(at, 8, 500.0), strict=True):
            np.testing.assert_array_equal(ours, plain)
    x = np.random.default_rng(0).normal(size=(5, 8))
    cos, sin = Rotary(8).tables(np.arange(5))
    np.testing.assert_array_equal(rope(x, cos=cos, sin=sin), rope(x))


def test_no_positions_give_empty_tables():
    assert Rotary(4, scaling={"type": "dynamic", "factor": 2.0}).tables(np.zeros((2, 0), int))[0].shape == (2, 0, 2)


def test_linear_divides_the_positions():
    at = np.arange(40)
    for ours, plain in zip(
        Rotary(8, scaling={"type": "linear", "factor": 4}).tables(at), Rotary(8).tables(at / 4), strict=True
    ):
        np.testing.assert_allclose(ours, plain, rtol=0, atol=1e-13)


def test_dynamic_changes_nothing_up_to_the_limit_and_stretches_the_slowest_pair_by_the_length_beyond_it():
    rotary, plain = Rotary(8, scaling={"type": "dynamic", "factor": 3.0}, max_positions=16), Rotary(8)
    np.testing.assert_array_equal(rotary.tables(np.arange(16))[0], plain.tables(np.arange(16))[0])
    np.testing.assert_array_equal(rotary.tables([0], longest=16)[0], plain.tables([0])[0])
    w = rotary.frequencies(40)
    assert w[0] == 1.0
    # the new base makes the slowest pair what linear interpolation by this scale would make it
    assert w[-1] == pytest.approx(plain.inverse[-1] / (3.0 * 40 / 16 - 2.0), rel=1e-12)
    np.testing.assert_array_equal(rotary.tables([39])[0], np.cos(39 * w)[None])
    np.testing.assert_array_equal(rotary.tables([5], longest=40)[1], np.sin(5 * w)[None])
    np.testing.assert_array_equal(rotary.tables([5])[1], plain.tables([5])[1])  # nothing is remembered


def test_llama3_keeps_short_waves_divides_long_ones_and_blends_between():
    rotary = Rotary(32, 10000.0, {**LLAMA3, "original_max_position_embeddings": 512})
    w, plain = rotary.inverse, Rotary(32).inverse
    wave = 2 * math.pi / plain
    short, long = wave < 512 / 4, wave > 512 / 1
    assert short.any() and long.any() and (~short & ~long).any()
    np.testing.assert_array_equal(w[short], plain[short])
    np.testing.assert_allclose(w[long], plain[long] / 8, rtol=1e-15)
    blend = (512 / wave - 1) / 3
    middle = ~short & ~long
    np.testing.assert_allclose(w[middle], ((1 - blend) * plain / 8 + blend * plain)[middle], rtol=1e-13)


def test_yarn_keeps_fast_pairs_divides_slow_ones_and_scales_the_tables():
    scaling = {**YARN, "truncate": False, "original_max_position_embeddings": 2048}
    rotary, plain = Rotary(32, 10000.0, scaling), Rotary(32)
    w, turns = rotary.inverse, 2048 * plain.inverse / (2 * math.pi)
    assert (turns > 32).any() and (turns < 1).any()
    np.testing.assert_array_equal(w[turns > 32], plain.inverse[turns > 32])
    np.testing.assert_allclose(w[turns < 1], plain.inverse[turns < 1] / 4, rtol=1e-15)
    part = w[(turns < 32) & (turns > 1)] / plain.inverse[(turns < 32) & (turns > 1)]
    assert part.size > 2 and (np.diff(part) < 0).all() and (part < 1).all() and (part > 0.25).all()
    assert rotary.attention_factor == pytest.approx(0.1 * math.log(4) + 1, rel=1e-15)
    cos, sin = rotary.tables([3, 9])
    np.testing.assert_allclose(cos**2 + sin**2, rotary.attention_factor**2, rtol=1e-13)


def test_yarn_on_an_original_text_too_short_for_beta_fast_ramps_from_the_first_pair():
    w = Rotary(8, 10000.0, {**YARN, "original_max_position_embeddings": 16}).inverse
    place = 8 * math.log(16 / (2 * math.pi)) / (2 * math.log(10000))
    assert math.ceil(place) == 1  # and 32 turns would lie before pair 0
    np.testing.assert_allclose(w, Rotary(8).inverse / [1, 4, 4, 4], rtol=1e-15)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"attention_factor": 1.5}, 1.5),
        ({"mscale": 0.7, "mscale_all_dim": 1.0}, (0.07 * math.log(4) + 1) / (0.1 * math.log(4) + 1)),
        ({"mscale": 0.7}, 0.1 * math.log(4) + 1),
        ({"mscale": 0.7, "mscale_all_dim": 0}, 0.1 * math.log(4) + 1),
        ({"factor": 0.5}, 1.0),
        ({"factor": None}, 0.1 * math.log(8) + 1),  # 512 / 64
    ],
)
def test_the_attention_factor_of_yarn(more, expected):
    assert Rotary(16, scaling={**YARN, **more}, max_positions=512).attention_factor == pytest.approx(
        expected, rel=1e-15
    )
    assert mscale(1.0) == 1.0


def test_the_original_length_is_max_positions_unless_given():
    for scaling in (LLAMA3, {"rope_type": "yarn", "factor": 2.0}):
        given = Rotary(16, scaling={**scaling, "original_max_position_embeddings": 100}, max_positions=400)
        np.testing.assert_array_equal(Rotary(16, scaling=scaling, max_positions=100).inverse, given.inverse)
        assert not np.array_equal(Rotary(16, scaling=scaling, max_positions=400).inverse, given.inverse)


def test_inverse_frequencies_are_computed_once_and_a_later_change_of_the_dictionary_is_not_seen():
    scaling = {"type": "linear", "factor": 2.0}
    rotary = Rotary(8, scaling=scaling)
    scaling["factor"] = 100.0
    assert rotary.inverse is rotary.inverse and rotary.inverse[0] == 0.5
    assert rotary == Rotary(8, scaling={"type": "linear", "factor": 2.0})


CONFIG = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 128}


def test_both_forms_of_a_config_give_the_same():
    older = {**CONFIG, "rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    newer = {**CONFIG, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}}
    for config in (older, newer, older | newer | {"rope_scaling": None}):
        rotary = rotary_from_config(config)
        assert (rotary.dims, rotary.base, rotary.max_positions, rotary.kind) == (16, 500.0, 128, "linear")
        assert rotary.parameters == {"factor": 2.0}


def test_a_config_without_rotary_fields_has_the_defaults():
    for config in (CONFIG, {**CONFIG, "rope_scaling": None, "rope_parameters": None, "head_dim": None}):
        assert rotary_from_config(config) == Rotary(16, 10000.0, None, 128)
    assert rotary_from_config(CONFIG, base=1e6).base == 1e6
    assert rotary_from_config({"head_dim": 8}) == Rotary(8)


def test_partial_rotary_factor_and_head_dim():
    assert rotary_from_config({**CONFIG, "head_dim": 24}).dims == 24
    assert rotary_from_config({**CONFIG, "partial_rotary_factor": 0.5}).dims == 8
    inner = {"rope_type": "default", "partial_rotary_factor": 0.25}
    assert rotary_from_config({**CONFIG, "rope_parameters": inner}) == Rotary(
        4, scaling={"rope_type": "default"}, max_positions=128
    )


def test_the_original_length_beside_the_scaling_has_priority():
    scaling = {**YARN, "original_max_position_embeddings": 32}
    config = {**CONFIG, "rope_scaling": scaling, "original_max_position_embeddings": 64}
    assert rotary_from_config(config).parameters["original_max_position_embeddings"] == 64


@pytest.mark.parametrize(
    ("scaling", "error", "parts"),
    [
        ({"rope_type": "yarm", "factor": 2.0}, ValueError, ["unknown rotary scaling 'yarm'", "Did you mean 'yarn'?"]),
        ({"rope_type": "longrope"}, ValueError, ["'longrope'", "dynamic", "llama3"]),
        ({"factor": 2.0}, ValueError, ["no 'rope_type'", "factor"]),
        ({"rope_type": 3}, TypeError, ["rope_type must be a string", "3"]),
        ({"rope_type": "linear", "type": "yarn", "factor": 2.0}, ValueError, ["'linear'", "'yarn'", "leave one out"]),
        ({**YARN, "beta_fats": 2}, ValueError, ["'yarn' has no key 'beta_fats'", "Did you mean 'beta_fast'?"]),
        ({"rope_type": "default", "factor": 2.0}, ValueError, ["'default' has no key 'factor'"]),
        ({"rope_type": "linear"}, ValueError, ["'linear' needs 'factor'"]),
        ({"rope_type": "linear", "factor": None}, ValueError, ["'linear' needs 'factor'"]),
        ({"rope_type": "yarn"}, ValueError, ["'yarn' needs 'factor'"]),
        ({k: v for k, v in LLAMA3.items() if k != "low_freq_factor"}, ValueError, ["needs 'low_freq_factor'"]),
        ({"rope_type": "linear", "factor": "2"}, TypeError, ["factor must be a positive number", "'2'"]),
        ({"rope_type": "linear", "factor": True}, TypeError, ["factor must be a positive number", "True"]),
        ({"rope_type": "linear", "factor": 0.0}, ValueError, ["factor must be a positive number", "0.0"]),
        ({"rope_type": "linear", "factor": math.nan}, ValueError, ["factor must be a positive number", "nan"]),
        ({"rope_type": "linear", "factor": math.inf}, ValueError, ["factor must be a positive number", "inf"]),
        ({**YARN, "truncate": 1}, TypeError, ["truncate must be true or false"]),
        ({**YARN, "mscale": -1}, ValueError, ["mscale", "-1"]),
        ({**YARN, "beta_fast": 1, "beta_slow": 2}, ValueError, ["beta_slow=2", "beta_fast=1"]),
        ({**YARN, "beta_slow": 64}, ValueError, ["beta_slow=64", "beta_fast=32"]),
        ({**YARN, "original_max_position_embeddings": 64.0}, TypeError, ["original_max_position_embeddings", "64.0"]),
        (
            {**YARN, "factor": None, "original_max_position_embeddings": 0},
            ValueError,
            ["_max_position_embeddings", "0"],
        ),
        ({**LLAMA3, "high_freq_factor": 1.0}, ValueError, ["low_freq_factor=1.0", "high_freq_factor=1.0"]),
        ([("rope_type", "linear")], TypeError, ["scaling must be a mapping"]),
    ],
)
def test_a_faulty_scaling_is_named(scaling, error, parts):
    with pytest.raises(error) as caught:
        Rotary(16, scaling=scaling)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error", "part"),
    [
        ({"dims": 7}, ValueError, "dims=7"),
        ({"dims": 0}, ValueError, "dims must be a positive integer, got 0"),
        ({"dims": 8.0}, TypeError, "dims must be a positive integer, got 8.0"),
        ({"dims": 8, "base": -1.0}, ValueError, "base"),
        ({"dims": 8, "base": "10000"}, TypeError, "'10000'"),
        ({"dims": 8, "max_positions": True}, TypeError, "max_positions"),
        ({"dims": 2, "scaling": {"type": "dynamic", "factor": 2.0}}, ValueError, "at least 4, got 2"),
        ({"dims": 8, "base": 1.0, "scaling": YARN}, ValueError, "over 1, got 1.0"),
    ],
)
def test_faulty_sizes_are_named(options, error, part):
    with pytest.raises(error, match=part):
        Rotary(**options)


@pytest.mark.parametrize(
    ("more", "error", "part"),
    [
        ({"hidden_size": None}, ValueError, "hidden_size is missing"),
        ({"head_dim": "16"}, TypeError, "head_dim"),
        ({"partial_rotary_factor": 1.5}, ValueError, "at most 1, got 1.5"),
        ({"partial_rotary_factor": "half"}, TypeError, "partial_rotary_factor"),
        ({"rope_scaling": "linear"}, TypeError, "rope_scaling must be a mapping"),
        ({"rope_theta": 1.0, "rope_parameters": {"rope_type": "default", "rope_theta": 2.0}}, ValueError, "rope_theta"),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"type": "linear", "factor": 3.0}},
            ValueError,
            "disagree on 'factor'",
        ),
        (
            {"max_position_embeddings": None, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
            ValueError,
            "needs max_position_embeddings",
        ),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, ValueError, "full_attention"),
    ],
)
def test_a_faulty_config_is_named(more, error, part):
    with pytest.raises(error, match=part):
        rotary_from_config({**CONFIG, **more})
