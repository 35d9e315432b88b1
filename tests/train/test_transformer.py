"""TransformerTrainer: what it builds, micro-batches one by one, and what it refuses."""

import numpy as np
import pytest
from safetensors import safe_open

import entrenar as en
from entrenar.data import TokenBatches
from entrenar.models import build
from entrenar.train import RunFolder, TransformerTrainConfig, TransformerTrainer, state_hash

SIZES = dict(vocab_size=13, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2)
TOKENS = np.random.default_rng(0).integers(0, 13, 400)


def config(**options):
    given = dict(max_steps=8, model="llama", model_options=SIZES, lr=1e-2, warmup_steps=2, seed=3)
    return TransformerTrainConfig(**{**given, **options})


def batches():
    return TokenBatches(TOKENS, 2, 8, seed=1)


def test_the_seed_decides_the_weights_and_the_whole_run():
    a, b, c = (TransformerTrainer(config(seed=s), batches=batches()) for s in (3, 3, 4))
    assert state_hash(a) == state_hash(b) != state_hash(c)
    assert a.fit() == b.fit()
    assert a.metrics.learning_rates[:2] == pytest.approx([0.005, 0.01])  # warm-up is applied
    assert a.reached_max_steps and a.step == 8 and not a.is_mixed_precision and not a.is_checkpointing


def test_a_given_model_is_trained():
    model = build("gpt2", dict(vocab_size=13, n_positions=8, n_embd=8, n_layer=1, n_head=2))
    before = model.wte.weight.data.copy()
    t = TransformerTrainer.with_model(model, config(gradient_checkpointing=True, precision="bfloat16"))
    assert t.model is model and t.is_checkpointing and t.is_mixed_precision
    t.train_step([next(batches())])
    assert (model.wte.weight.data != before).any() and model.wte.weight.dtype == np.float32


def test_micro_batches_one_by_one_are_a_window():
    one, whole = (TransformerTrainer(config(accumulation=3), batches=batches()) for _ in range(2))
    window = [next(one.batches) for _ in range(3)]
    assert [one.train_batch(batch) is None for batch in window] == [True, True, False]
    whole.train_step(window)
    assert state_hash(one) != state_hash(whole)  # only the data position differs
    for p, q in zip(one.model.parameters(), whole.model.parameters(), strict=True):
        np.testing.assert_array_equal(p.data, q.data)
    assert one.train_batch(window[0]) is None and one.step == 1
    with pytest.raises(ValueError, match="1 micro-batches wait for their update"):
        one.save_checkpoint()
    assert one.flush().step == 2 and one.flush() is None


def test_one_text():
    t = TransformerTrainer(config())
    ids = TOKENS[:9]
    loss, tensor, logits = t.forward_single(ids[:-1], ids[1:])
    assert logits.shape == (8, 13) and tensor.tracked and loss == tensor.item()
    p = np.exp(logits.data.astype(float))
    p /= p.sum(-1, keepdims=True)
    assert loss == pytest.approx(-np.log(p[np.arange(8), ids[1:]]).mean(), rel=1e-5)
    tensor.backward()
    assert all(p.grad is not None for p in t.model.parameters())


def test_a_resumed_run_ends_where_the_unbroken_one_does(tmp_path):
    whole = TransformerTrainer(config(), batches=batches()).fit()
    folder = RunFolder(tmp_path)
    TransformerTrainer(config(), batches=batches(), folder=folder).fit(until=3)
    rest = TransformerTrainer(config(seed=9), batches=batches(), folder=folder)
    rest.resume(folder.latest())
    assert rest.fit().state_hash == whole.state_hash


def test_weights_in_a_file(tmp_path):
    t = TransformerTrainer(config())
    path = t.save(tmp_path / "w.safetensors", name="small", architecture="llama")
    with safe_open(path, "np") as file:
        assert file.metadata() == {"format": "pt", "name": "small", "architecture": "llama", "step": "0"}
        assert set(file.keys()) == set(t.model.state_dict())
    assert en.io.load_tensors(path)[0].keys() == t.model.state_dict().keys()


def test_what_is_too_long_is_refused():
    t = TransformerTrainer(config(max_seq_len=7))
    for call in (lambda: t.train_step([next(batches())]), lambda: t.forward_single(TOKENS[:8], TOKENS[1:9])):
        with pytest.raises(ValueError, match="8 tokens, max_seq_len is 7"):
            call()
    with pytest.raises(ValueError, match="max_seq_len must be at least 1"):
        config(max_seq_len=0)
    with pytest.raises(ValueError, match="Did you mean 'cosine'"):
        TransformerTrainer(config(scheduler="cosin"))
