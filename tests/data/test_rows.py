"""Rows of a batch: what is trained, what is seen, what counts."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entrenar.data import Batch, Example, first_fit, packed_batch, padded_batch
from entrenar.data.example import as_example
from entrenar.io import DataError
from entrenar.models import GPT2, GPT2Config, Llama, LlamaConfig

A = Example(np.array([1, 2, 3, 4]), None, "a")
B = Example(np.array([5, 6]), None, "b")
HALF = Example(np.array([7, 8, 9]), np.array([0, 0, 1], np.float32), "half")
TEACHER = Example(np.array([7, 8, 9, 3]), np.array([1, 0, 0.5, 2], np.float32), "teacher")


def test_padded_rows():
    batch = padded_batch([A, B, HALF], pad_id=99)
    assert batch.ids.tolist() == [[1, 2, 3], [5, 99, 99], [7, 8, 99]] and batch.ids.dtype == np.int64
    assert batch.targets.tolist() == [[2, 3, 4], [6, -100, -100], [-100, 9, -100]] and batch.targets.dtype == np.int64
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
    assert batch.weights is None and batch.tokens == 5
    assert set(batch.options()) == {"attention_mask"}
    assert padded_batch([A, A]).options() == {}


def test_weights_of_a_teacher_log():
    batch = padded_batch([A, TEACHER, B])
    assert batch.targets.tolist() == [[2, 3, 4], [-100, 9, 3], [6, -100, -100]]
    assert batch.weights.tolist() == [[1, 1, 1], [0, 0.5, 2], [1, 0, 0]]
    assert batch.tokens == 6.5 and batch.options()["mask"] is batch.weights


def test_packed_rows():
    batch = packed_batch([[B, A], [HALF]], pad_id=99)
    assert batch.ids.tolist() == [[5, 1, 2, 3], [7, 8, 99, 99]]
    assert batch.targets.tolist() == [[6, 2, 3, 4], [-100, 9, -100, -100]]
    assert batch.position_ids.tolist() == [[0, 0, 1, 2], [0, 1, 0, 1]]
    assert batch.attention_mask.astype(int).tolist() == [
        [[1, 0, 0, 0], [0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1]],
        [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]],
    ]
    assert batch.tokens == 5


@given(st.lists(st.integers(1, 12), max_size=40), st.integers(12, 20))
def test_first_fit_places_everything_once_and_packs_well(lengths, capacity):
    rows = first_fit(np.array(lengths, int), capacity)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    filled = [sum(lengths[i] for i in row) for row in rows]
    assert all(0 < n <= capacity for n in filled)
    # no two rows would fit into one
    assert all(a + b > capacity for i, a in enumerate(filled) for b in filled[:i])


@given(st.data())
def test_packing_keeps_every_target_once(data):
    texts = st.lists(st.integers(1, 50), min_size=2, max_size=9)
    weights = st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=9, max_size=9)
    examples = []
    for ids, w in data.draw(st.lists(st.tuples(texts, weights | st.none()), min_size=1, max_size=12)):
        given_weights = None if w is None else np.array([*w[: len(ids) - 1], 1.0], np.float32)
        examples.append(Example(np.array(ids), given_weights, ""))
    rows = first_fit(np.array([len(e.ids) - 1 for e in examples]), 8)
    batch = packed_batch([[examples[i] for i in row] for row in rows])
    counted = batch.targets != -100
    found = [batch.ids[counted], batch.targets[counted], np.ones(counted.sum())]
    found[2] = found[2] if batch.weights is None else batch.weights[counted]
    expected = [
        (e.ids[i], e.ids[i + 1], 1.0 if e.weights is None else e.weights[i + 1])
        for e in examples
        for i in range(len(e.ids) - 1)
        if e.weights is None or e.weights[i + 1]
    ]
    assert sorted(zip(*(x.tolist() for x in found), strict=True)) == sorted(expected)
    assert batch.tokens == sum(w for _, _, w in expected)


GPT = dict(vocab_size=60, n_positions=16, n_embd=16, n_layer=2, n_head=2)
LLAMA = dict(
    vocab_size=60,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=16,
)


@pytest.mark.parametrize("model", [GPT2(GPT2Config(**GPT)), Llama(LlamaConfig(**LLAMA))], ids=["gpt2", "llama"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_packed_neighbour_changes_no_bit(model, dtype):
    model = model.to(dtype).eval()
    rng = np.random.default_rng(0)

    def states(*neighbours):
        texts = [rng.integers(0, 60, 7) if n is None else n for n in (neighbours[0], middle, neighbours[1])]
        batch = packed_batch([[Example(t, None, "") for t in texts]])
        return model.hidden(batch.ids, batch.attention_mask, None, batch.position_ids).data[0, 6:10]

    middle = rng.integers(0, 60, 5)
    first = states(None, None)
    for _ in range(5):
        assert np.array_equal(states(None, None), first)
    alone = model.hidden(middle[None, :-1]).data[0]
    tolerance = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 0.1}[dtype]
    assert np.abs(alone.astype(float) - first.astype(float)).max() < tolerance


@pytest.mark.parametrize("model", [GPT2(GPT2Config(**GPT)), Llama(LlamaConfig(**LLAMA))], ids=["gpt2", "llama"])
def test_packed_and_padded_batches_have_the_same_loss_and_gradient(model):
    model = model.to("float64").eval()
    examples = [A, B, HALF, TEACHER]
    found = []
    for batch in (padded_batch(examples), packed_batch([[A, B], [HALF, TEACHER]]), packed_batch([examples])):
        model.zero_grad()
        loss = model.loss(batch.ids, batch.targets, reduction="sum", **batch.options())
        loss.backward()
        found.append([loss.item() / batch.tokens, *(p.grad.numpy().copy() for p in model.parameters())])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert np.abs(np.asarray(a) - np.asarray(b)).max() < 1e-12


def test_what_is_no_example_is_told():
    assert as_example(np.array([1, 2]), "x").place == "x" and as_example(A, "x").place == "a"
    assert as_example(([1, 2], [0, 1]), "x").weights.dtype == np.float32
    for wrong, error, told in (
        (np.zeros((2, 2), int), ValueError, r"x: ids must have shape \(T,\), got \(2, 2\)"),
        (np.array([1.0, 2.0]), TypeError, "x: ids must be integers, got float64"),
        (([1, 2, 3], [1, 1]), ValueError, r"x: 3 ids have weights of shape \(2,\)"),
        (([1, 2], [1, -1]), ValueError, r"x: the weight of token 1 is -1.0"),
        (([1, 2], [np.nan, 1]), ValueError, r"x: the weight of token 0 is nan"),
        ([1], DataError, r"x: 1 token\(s\): nothing to predict"),
        (([1, 2, 3], [1, 0, 0]), DataError, "x: none of its 3 tokens is trained"),
    ):
        with pytest.raises(error, match=told):
            as_example(wrong, "x")


def test_a_batch_counts_its_targets():
    batch = Batch(np.zeros((1, 3), int), np.array([[4, -100, 2]]), np.array([[0.5, 7.0, 0.25]], np.float32))
    assert batch.tokens == 0.75
