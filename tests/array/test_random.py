"""Random numbers by counter: NumPy's Philox is the oracle."""

import numpy as np
import pytest

import entrenar as en


def oracle(seed, stream, block, count):
    key = np.array([seed, stream], np.uint64)
    return np.random.Philox(key=key, counter=block).random_raw(count)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 1000])
def test_words_are_those_of_numpys_philox(count):
    assert np.array_equal(en.Generator(7, 3).words(count), oracle(7, 3, 0, count))


def test_a_draw_takes_whole_blocks():
    g = en.Generator(7)
    g.words(5)
    assert g.state() == (7, 0, 2)
    assert np.array_equal(g.words(4), oracle(7, 0, 2, 4))


def test_element_i_is_word_i_mod_4_of_block_i_div_4():
    words = en.Generator(11).words(10)
    for i in range(10):
        assert words[i] == oracle(11, 0, i // 4, 4)[i % 4]


def test_uniforms_come_from_the_top_bits():
    words = oracle(5, 0, 0, 12).reshape(3, 4)
    assert np.array_equal(en.Generator(5).uniform((3, 4), np.float64), (words >> np.uint64(11)) / 2.0**53)
    u32 = en.Generator(5).uniform((3, 4), np.float32)
    assert u32.dtype == np.float32
    assert np.array_equal(u32, ((words >> np.uint64(40)) / 2.0**24).astype(np.float32))
    assert u32.max() < 1


def test_normals_have_the_moments_of_a_normal():
    z = en.Generator(1).normal((200_001,), np.float64)
    assert abs(z.mean()) < 0.01
    assert abs(z.std() - 1) < 0.01
    assert abs((z**4).mean() - 3) < 0.1


def test_integers_cover_their_range_and_refuse_an_empty_one():
    drawn = en.Generator(1).integers(-2, 3, 1000)
    assert set(drawn.tolist()) == {-2, -1, 0, 1, 2}
    with pytest.raises(ValueError, match="low=3, high=3"):
        en.Generator(1).integers(3, 3, 4)


def test_permutation_is_one():
    assert sorted(en.Generator(2).permutation(50)) == list(range(50))


def test_state_round_trip_and_forks_do_not_depend_on_order():
    g = en.Generator(9)
    g.words(100)
    state = g.state()
    first = g.words(8)
    g.set_state(state)
    assert np.array_equal(g.words(8), first)
    assert g.fork("dropout").state() == en.Generator(9).fork("dropout").state()
    assert g.fork("a").stream != g.fork("b").stream


def test_manual_seed_repeats_the_default_stream():
    en.manual_seed(3)
    a = en.randn(5)
    en.manual_seed(3)
    assert np.array_equal(a.data, en.randn(5).data)
    assert a.dtype == np.float32


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, True, "1"])
def test_a_bad_seed_is_named(seed):
    with pytest.raises((TypeError, ValueError), match="seed"):
        en.manual_seed(seed)
