"""Tokenizer, text files, batches, n-grams."""

import time

import numpy as np
import pytest

from entrenar.data import CharTokenizer, NGram, TokenBatches, Windows, read_texts
from entrenar.io import DataError


def test_tokenizer_round_trip_and_unknown_characters(tmp_path):
    tokenizer = CharTokenizer.train(["héllo", "wörld"])
    ids = tokenizer.encode("hello wörld")
    assert ids.dtype == np.int64
    assert tokenizer.decode(ids) == "h\ufffdllo\ufffdwörld"
    assert tokenizer.decode(tokenizer.encode("öd")) == "öd"
    with pytest.raises(DataError, match=r"'z' at 1"):
        tokenizer.encode("hz", unknown="error")
    with pytest.raises(IndexError, match="id 99 is outside the vocabulary of 9"):
        tokenizer.decode([99])
    tokenizer.save(tmp_path / "tokenizer.json")
    assert CharTokenizer.load(tmp_path / "tokenizer.json").characters == tokenizer.characters
    (tmp_path / "bad.json").write_text('{"type": "bpe"}')
    with pytest.raises(DataError, match=r"bad\.json"):
        CharTokenizer.load(tmp_path / "bad.json")


def test_encoding_is_fast():
    text = "def f(x):\n    return x\n" * 200_000
    tokenizer = CharTokenizer.train([text])
    start = time.process_time()
    tokenizer.encode(text)
    assert len(text) / (time.process_time() - start) > 10e6


@pytest.fixture
def folder(tmp_path):
    for i in range(40):
        (tmp_path / f"pkg{i % 3}").mkdir(exist_ok=True)
        (tmp_path / f"pkg{i % 3}" / f"m{i}.py").write_text(f"x = {i}\n" * 10)
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "t.py").write_text("never")
    (tmp_path / "latin.py").write_bytes(b"# \xe9")
    return tmp_path


def test_files_are_split_by_the_hash_of_their_path(folder):
    files = read_texts(str(folder), held_out=0.2)
    names = [n for n, _ in files.train], [n for n, _ in files.held_out]
    assert len(names[0]) + len(names[1]) == 40
    assert names[1]
    assert files.skipped == ["latin.py"]
    (folder / "new.py").write_text("y")
    again = read_texts(str(folder), held_out=0.2)
    assert set(names[1]) <= {n for n, _ in again.held_out}
    assert not {n for n, _ in again.train} & {n for n, _ in again.held_out}


def test_too_little_text_is_named(folder):
    with pytest.raises(DataError, match="no such folder"):
        read_texts(str(folder / "absent"))
    with pytest.raises(DataError, match=r"no training text.*'\*\.txt'"):
        read_texts(str(folder), pattern="*.txt")
    assert sum(len(t) for _, t in read_texts(str(folder), held_out=0.3, max_bytes=1500).train) <= 1500


def test_the_standard_library_is_there():
    files = read_texts("stdlib", max_bytes=3_000_000)
    assert len(files.train_text) + len(files.held_out_text) > 2_000_000


def test_batches_are_windows_and_their_order_depends_on_seed_and_epoch():
    tokens = np.arange(100)
    stream = TokenBatches(tokens, 4, 7, seed=3)
    epoch = [next(stream) for _ in range(4)]
    for x, y in epoch:
        assert x.shape[1] == 7
        assert np.array_equal(x + 1, y)
    first = [int(x[0, 0]) for x, _ in epoch]
    assert [len(x) for x, _ in epoch] == [4, 4, 4, 2]
    later = [int(next(stream)[0][0, 0]) for _ in range(4)]
    assert first != later
    assert [int(next(TokenBatches(tokens, 4, 7, seed=3))[0][0, 0])] == first[:1]


def test_a_resumed_stream_goes_on_where_it_was():  # case 101
    tokens = np.arange(100)
    stream = TokenBatches(tokens, 4, 7, seed=3)
    for _ in range(6):
        next(stream)
    state = stream.state_dict()
    expected = [next(stream)[0].tolist() for _ in range(9)]
    other = TokenBatches(tokens, 4, 7, seed=3)
    other.load_state_dict(state)
    assert [next(other)[0].tolist() for _ in range(9)] == expected
    with pytest.raises(ValueError, match="seed 3"):
        TokenBatches(tokens, 4, 7, seed=4).load_state_dict(state)


def test_bad_sizes():
    with pytest.raises(DataError, match="7 tokens are too few"):
        TokenBatches(np.arange(7), 1, 7)
    with pytest.raises(ValueError, match="batch_size"):
        TokenBatches(np.arange(70), 0, 7)
    with pytest.raises(DataError, match="too few"):
        Windows(np.arange(7), 1, 7)


def test_validation_windows_cover_every_token_once():
    seen = np.concatenate([y.ravel() for _, y in Windows(np.arange(50), 3, 7)])
    assert sorted(seen) == list(range(1, 50))
    assert len(Windows(np.arange(500), 3, 7, limit=5)) == 5


@pytest.mark.parametrize("order", [1, 2, 3])
def test_probabilities_sum_to_one_after_any_history(order):
    rng = np.random.default_rng(0)
    model = NGram(rng.integers(0, 6, 300), order, 8)  # 6 and 7 never occur
    for history in ([0, 1], [7, 3], [6, 7], [5, 5]):
        total = sum(model.probabilities(np.array([*history, w]))[-1] for w in range(8))
        assert total == pytest.approx(1, abs=1e-12)


def test_witten_bell_by_hand():
    # a b a c: after a: b, c once each, N=2, T=2; unigrams a 2, b 1, c 1, N=4, T=3; uniform 1/4 (vocabulary of 4)
    model = NGram(np.array([0, 1, 0, 2]), 2, 4)
    p_b = (1 + 3 / 4) / 7
    assert model.probabilities(np.array([0, 1]))[0] == pytest.approx((1 + 2 * p_b) / 4)
    assert model.loss(np.array([0, 1])) == pytest.approx(-np.log((1 + 2 * p_b) / 4))


def test_orders_out_of_range():
    with pytest.raises(ValueError, match="order 3"):
        NGram(np.zeros(4, int), 3, 2**22)
