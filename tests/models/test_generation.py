"""Generation: seeds, rows that do not know each other, stopping, the window, streaming, and what is refused."""

import math

import numpy as np
import pytest

import entrenar as en
from entrenar.array import Generator
from entrenar.models import build, generate, stream
from entrenar.models.sampling import Sampling

LLAMA = dict(
    vocab_size=11,
    hidden_size=12,
    intermediate_size=20,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
    max_position_embeddings=16,
)
SMALL = {
    "gpt2": dict(vocab_size=11, n_positions=16, n_embd=12, n_layer=2, n_head=3),
    "llama": LLAMA,
    "mistral": {**LLAMA, "sliding_window": 3},
    "qwen2": {**LLAMA, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
}
IDS = np.random.default_rng(0).integers(0, 11, (2, 7))
UNEQUAL = [[1, 2, 3, 4, 5, 6], [7], [8, 9, 10]]
EVERY = dict(temperature=0.9, top_k=8, top_p=0.9, min_p=0.02, repetition_penalty=1.3)


@pytest.fixture(params=sorted(SMALL))
def model(request):
    return small(request.param)


def small(name="gpt2", **options):
    """A model whose logits differ enough that draws depend on what was read."""
    en.manual_seed(1)
    model = build(name, {**SMALL[name], **options}).eval()
    for p in model.parameters():
        p.write(p.data * (8 if p.ndim == 2 else 1))
    return model


def followed(model, prompt, count, **options):
    """Greedy continuation without a cache: the whole text is read again for each token."""
    text = list(prompt)
    for _ in range(count):
        text.append(int(model(np.array([text])).data[0, -1].argmax()))
    return text


def test_the_draws_are_the_seed_s():
    m = small().train()
    state = en.default_generator.state()
    a = generate(m, IDS, 9, seed=5)
    assert a.shape == (2, 16) and (a[:, :7] == IDS).all() and a.dtype == np.int64
    assert m.training and en.default_generator.state() == state
    np.testing.assert_array_equal(a, m.generate(IDS, 9, seed=5))
    assert (a != generate(m, IDS, 9, seed=6)).any()
    assert generate(m, IDS[0], 0).tolist() == IDS[0].tolist()


def test_greedy_is_the_text_of_whole_forwards(model):
    out = generate(model, IDS, 9, temperature=0)
    assert out.tolist() == [followed(model, row, 9) for row in IDS]
    assert len({tuple(row[7:]) for row in out}) == 2
    np.testing.assert_array_equal(out, generate(model, IDS, 9, top_k=1, seed=3))


@pytest.mark.parametrize("options", [dict(temperature=0), dict(seed=4), dict(seed=4, **EVERY)], ids=str)
def test_a_row_gives_what_its_prompt_alone_gives(model, options):
    together = generate(model, UNEQUAL, 8, pad_token=0, **options)
    assert together.shape == (3, 14)
    for n, prompt in enumerate(UNEQUAL):
        pad = 6 - len(prompt)
        assert together[n, :pad].tolist() == [0] * pad and together[n, pad:6].tolist() == prompt
        alone = [prompt] * n + [prompt]  # row n draws from stream n
        assert together[n, pad:].tolist() == generate(model, alone, 8, **options)[n].tolist()


def test_padded_arrays_with_their_mask_are_the_same(model):
    mask = np.array([[1] * 6, [0] * 5 + [1], [0] * 3 + [1] * 3])
    padded = np.zeros((3, 6), int)
    padded[mask == 1] = np.concatenate([np.array(p) for p in UNEQUAL])
    expected = generate(model, UNEQUAL, 6, pad_token=0, seed=2)
    for given in (mask, mask.astype(bool), en.tensor(mask)):
        np.testing.assert_array_equal(generate(model, padded, 6, attention_mask=given, seed=2), expected)
    padded[1, :5] = 9  # what padding holds is never seen
    np.testing.assert_array_equal(
        generate(model, padded, 6, attention_mask=mask, seed=2, repetition_penalty=2.0)[1, 5:],
        generate(model, UNEQUAL, 6, pad_token=0, seed=2, repetition_penalty=2.0)[1, 5:],
    )


def test_rows_end_with_their_own_stop_token(model):
    free = generate(model, IDS, 9, seed=3)
    stop = int(free[0, 9])
    out = generate(model, IDS, 9, seed=3, stop_tokens=[stop], pad_token=10)
    for row, whole in zip(out, free, strict=True):
        ends = np.flatnonzero(whole[7:] == stop)
        end = 8 + ends[0] if len(ends) else len(out[0])
        assert row[:end].tolist() == whole[:end].tolist() and set(row[end:].tolist()) <= {10}
    alone = generate(model, IDS[0], 9, seed=3, stop_tokens=stop)
    assert alone[-1] == stop and len(alone) <= 10  # nothing follows once all have ended
    assert generate(model, IDS[0], 9, seed=3, stop_tokens=None).tolist() == free[0].tolist()


def test_pad_tokens_come_from_the_configuration_or_the_stop_tokens():
    named = small("llama", pad_token_id=9)
    assert generate(named, UNEQUAL, 1)[1, :5].tolist() == [9] * 5
    assert generate(small(), UNEQUAL, 1, stop_tokens=[4, 5])[1, :5].tolist() == [4] * 5
    assert generate(small("llama", eos_token_id=[3, 4], pad_token_id=None), UNEQUAL, 1)[1, :5].tolist() == [3] * 5
    with pytest.raises(ValueError, match="need pad_token"):
        generate(small(), UNEQUAL, 1)  # GPT-2's end of text, 50256, is not in this vocabulary


def test_a_text_past_the_window_goes_on_from_its_recent_half(model):
    """The cache is as good as reading positions // 2 tokens again whenever positions are used up."""
    text, start = list(IDS[0]), 0
    for _ in range(30):
        if len(text) - start > 16:
            start = len(text) - 8
        text.append(int(model(np.array([text[start:]])).data[0, -1].argmax()))
    assert generate(model, IDS[0], 30, temperature=0).tolist() == text
    long = np.random.default_rng(1).integers(0, 11, 21)
    first = generate(model, long, 1, temperature=0)[-1]
    assert first == model(long[None, -16:]).data[0, -1].argmax()


def test_a_padded_batch_may_not_be_longer_than_the_positions(model):
    assert generate(model, UNEQUAL, 11, pad_token=0, temperature=0).shape == (3, 17)  # the last token is not read
    with pytest.raises(ValueError, match=r"6 tokens and 12 new.*unequal length a text may have 17"):
        generate(model, UNEQUAL, 12, pad_token=0)


def test_the_stream_is_the_text_token_by_token(model):
    expected = generate(model, IDS, 5, seed=8, **EVERY)
    steps = list(stream(model, IDS, 5, seed=8, **EVERY))
    assert [s.shape for s in steps] == [(2,)] * 5
    np.testing.assert_array_equal(np.stack(steps, 1), expected[:, 7:])


def test_the_stream_checks_at_once_and_leaves_the_mode_as_it_was():
    m = small().train()
    with pytest.raises(ValueError, match="max_new_tokens"):
        stream(m, IDS, -1)
    with pytest.raises(ValueError, match="top_p"):
        stream(m, IDS, 1, top_p=0.0)
    draws = stream(m, IDS, 5)
    next(draws)
    draws.close()
    assert m.training


def test_dropout_is_off_even_if_somebody_trains_between_two_tokens():
    m = small(resid_pdrop=0.5)
    expected = generate(m, IDS, 6, temperature=0)
    found = []
    for tokens in stream(m, IDS, 6, temperature=0):
        found.append(tokens)
        m.train()
    np.testing.assert_array_equal(np.stack(found, 1), expected[:, 7:])


def test_the_cache_has_room_for_the_text_and_no_more(monkeypatch):
    m, made = small(), []
    new_cache = type(m).new_cache
    monkeypatch.setattr(type(m), "new_cache", lambda self, *a: made.append(new_cache(self, *a)) or made[-1])
    generate(m, IDS, 4)
    assert [cache.capacity for cache in made] == [11]
    made.clear()
    generate(m, IDS, 11)
    assert [cache.capacity for cache in made] == [16, 16]


def shares(counted, logits, **options):
    sampling = Sampling(**options)
    random = [Generator(0)]
    draws = [sampling.draw(np.array([logits]), random)[0] for _ in range(counted)]
    return np.bincount(draws, minlength=len(logits)) / counted


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (dict(), [0.5, 0.2, 0.3]),
        (dict(top_k=2), [0.625, 0, 0.375]),
        (dict(temperature=0.5), [25 / 38, 4 / 38, 9 / 38]),
        (dict(top_p=0.79), [0.625, 0, 0.375]),
        (dict(top_p=0.81), [0.5, 0.2, 0.3]),
        (dict(top_p=1e-6), [1, 0, 0]),
        (dict(min_p=0.5), [0.625, 0, 0.375]),
        (dict(min_p=1.0), [1, 0, 0]),
        (dict(min_p=0.0, top_k=7, top_p=1.0), [0.5, 0.2, 0.3]),
        (dict(top_k=2, top_p=0.6), [1, 0, 0]),  # 0.625 of what top-k has left reaches 0.6
    ],
)
def test_draws_follow_the_filtered_probabilities(options, expected):
    logits = np.log([0.5, 0.2, 0.3])
    np.testing.assert_allclose(Sampling(**options).probabilities(logits[None])[0], expected, atol=1e-12)
    np.testing.assert_allclose(shares(4000, logits, **options), expected, atol=0.03)


def test_the_penalty_is_of_both_signs():
    logits, used = np.array([[2.0, -2.0, 1.0]]), np.array([[True, True, False]])
    scores = Sampling(repetition_penalty=2.0).scores(logits, used)
    np.testing.assert_allclose(scores[0], [0, -5, 0])
    assert Sampling(0, repetition_penalty=2.5).draw(logits, [Generator()], used).tolist() == [2]


@pytest.mark.parametrize("temperature", [1e-3, 1e-300])
def test_a_very_low_temperature_takes_the_likeliest(temperature):
    assert shares(20, [1.0, 3.0, 2.9], temperature=temperature).tolist() == [0, 1, 0]


def test_a_token_filtered_out_is_never_drawn():
    """The last token is out; points near 1 must not fall on it by rounding."""
    logits = np.append(np.zeros(1000), -np.inf)[None]
    draws = np.concatenate([Sampling(top_p=0.999).draw(logits, [Generator(n)]) for n in range(500)])
    assert draws.min() >= 0 and draws.max() < 1000


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_nothing_is_drawn_from_logits_without_a_largest_one(bad, temperature):
    logits = np.zeros((2, 3))
    logits[1] = bad
    with pytest.raises(ValueError, match=r"logit of row 1 is -?(nan|inf)"):
        Sampling(temperature).draw(logits, [Generator(), Generator()])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature must be at least 0"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"temperature": "0"}, "temperature"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"top_k": 2.5}, "top_k must be at least 1, an integer"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\]"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_p": True}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"min_p": math.nan}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0"),
        ({"max_new_tokens": -1}, "max_new_tokens"),
        ({"max_new_tokens": 2.0}, "max_new_tokens"),
        ({"max_new_tokens": True}, "max_new_tokens"),
        ({"input_ids": np.zeros(0, int)}, "at least one token"),
        ({"input_ids": [[1, 2], []]}, "for prompt 1"),
        ({"input_ids": []}, "at least one token"),
        ({"input_ids": [[1.5, 2.0]]}, "integers"),
        ({"input_ids": [[[1]]]}, "for prompt 0"),
        ({"stop_tokens": 11}, r"stop_tokens must be token ids in \[0, 11\), got \[11\]"),
        ({"stop_tokens": [-1]}, "stop_tokens"),
        ({"stop_tokens": ["a"]}, "stop_tokens"),
        ({"pad_token": 99}, "pad_token"),
        ({"attention_mask": np.ones((2, 6))}, r"attention_mask has shape \(2, 6\), expected that of the ids, \(2, 7\)"),
        ({"attention_mask": np.full((2, 7), 2)}, "other numbers than 1"),
        ({"attention_mask": [[1] * 6 + [0], [1] * 7]}, "row 0 of attention_mask is not padding on the left"),
        ({"attention_mask": [[1] * 7, [0] * 7]}, "row 1 of attention_mask"),
        ({"input_ids": UNEQUAL, "attention_mask": np.ones((3, 6))}, "sequences of unequal length"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        generate(small(), **{"input_ids": IDS, "max_new_tokens": 2, **options})


def test_bad_ids_seeds_and_models():
    with pytest.raises(IndexError, match=r"id 11 at index \(0, 1\) is outside \[0, 11\)"):
        generate(small(), [1, 11], 2)
    with pytest.raises(IndexError, match="id -1"):
        generate(small(), [[1, 2], [-1]], 2, pad_token=0)
    with pytest.raises(ValueError, match="seed"):
        generate(small(), IDS, 2, seed=-1)
    with pytest.raises(TypeError, match="causal language model, got Linear"):
        generate(en.nn.Linear(2, 2), IDS, 2)
