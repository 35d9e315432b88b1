"""Random tiny checkpoints of every architecture: loaded from transformers' folders, computed alike, written back."""

import json

import numpy as np
import pytest

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

import entrenar as en  # noqa: E402

IDS = np.random.default_rng(0).integers(3, 61, (2, 9))
PADDED = np.array([[0, 0, 0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1, 1]])

GPT2 = dict(vocab_size=61, n_positions=40, n_embd=24, n_layer=2, n_head=4)
LLAMA = dict(
    vocab_size=61,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=32,
)
LLAMA3 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
ROWS = {
    "gpt2": ("GPT2", GPT2),
    "gpt2 untied, relu, wide": (
        "GPT2",
        {**GPT2, "tie_word_embeddings": False, "activation_function": "relu", "n_inner": 50},
    ),
    "llama": ("Llama", LLAMA),
    "llama tied, all heads, biases": (
        "Llama",
        {**LLAMA, "tie_word_embeddings": True, "num_key_value_heads": 4, "attention_bias": True, "mlp_bias": True},
    ),
    "llama, one key head, wide heads": (
        "Llama",
        {**LLAMA, "num_key_value_heads": 1, "head_dim": 10, "rope_theta": 5e5},
    ),
    "llama, linear": ("Llama", {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 2.5}}),
    "llama, dynamic": (
        "Llama",
        {**LLAMA, "max_position_embeddings": 8, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
    ),
    "llama, llama3": ("Llama", {**LLAMA, "rope_scaling": LLAMA3}),
    "llama, yarn": (
        "Llama",
        {**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}},
    ),
    "qwen2": ("Qwen2", LLAMA),
    "qwen2 tied, windows above": (
        "Qwen2",
        {**LLAMA, "tie_word_embeddings": True, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
    ),
    "mistral": ("Mistral", {**LLAMA, "sliding_window": None}),
    "mistral, window": ("Mistral", {**LLAMA, "sliding_window": 4, "head_dim": 8}),
}


def theirs(name):
    """A random model of transformers in eval mode, float32, with biases and gains that are not trivial."""
    family, options = ROWS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{"pad_token_id": 0, **options})
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{family}LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    return model.eval()


@pytest.fixture(params=ROWS)
def pair(request, tmp_path):
    other = theirs(request.param)
    other.save_pretrained(tmp_path)
    return other, en.models.from_pretrained(tmp_path), tmp_path


def logits(model, ids, **options):
    """transformers' logits."""
    with torch.no_grad():
        return model(torch.tensor(ids), **{k: torch.tensor(v) for k, v in options.items()}).logits.numpy()


def close(ours, expected):
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


def test_logits_of_a_folder(pair):
    other, mine, _ = pair
    close(mine(IDS).data, logits(other, IDS))


def test_logits_with_padding(pair):
    other, mine, _ = pair
    positions = en.models.inputs.left_padded_positions(PADDED)
    expected = logits(other, IDS, attention_mask=PADDED, position_ids=positions)
    ours = mine(IDS, attention_mask=PADDED, position_ids=positions).data
    close(ours[PADDED == 1], expected[PADDED == 1])
    assert np.isfinite(ours).all()


def test_logits_token_by_token(pair):
    _, mine, _ = pair
    cache = mine.new_cache(2, 9)
    with en.no_grad():
        parts = [mine(IDS[:, a:b], cache=cache).data for a, b in ((0, 3), (3, 4), (4, 7), (7, 8), (8, 9))]
    if "dynamic" not in str(getattr(mine.config, "rope_scaling", "")):  # earlier keys keep their shorter rotation
        close(np.concatenate(parts, 1), mine(IDS).data)


def test_sharded_folders(pair, tmp_path):
    other, mine, _ = pair
    other.save_pretrained(tmp_path / "shards", max_shard_size="8KB")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 1
    np.testing.assert_array_equal(en.models.from_pretrained(tmp_path / "shards")(IDS).data, mine(IDS).data)


@pytest.mark.parametrize("shards", [None, 9000])
def test_what_is_saved_here_loads_there(pair, tmp_path, shards):
    other, mine, _ = pair
    mine.save_pretrained(tmp_path / "ours", max_shard_bytes=shards)
    back, report = type(other).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    np.testing.assert_allclose(logits(back.eval(), IDS), logits(other, IDS), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(en.models.from_pretrained(tmp_path / "ours")(IDS).data, mine(IDS).data)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_files_of_16_bits(dtype, tmp_path):
    other = theirs("llama").to(getattr(torch, dtype))
    other.save_pretrained(tmp_path)
    mine = en.models.from_pretrained(tmp_path)
    assert {str(p.dtype) for p in mine.parameters()} == {dtype}
    wide = en.models.from_pretrained(tmp_path, dtype="float32")
    close(wide(IDS).data, logits(type(other).from_pretrained(tmp_path, dtype=torch.float32).eval(), IDS))
    mine.save_pretrained(tmp_path / "ours")
    back = type(other).from_pretrained(tmp_path / "ours", dtype=getattr(torch, dtype))
    for (name, p), q in zip(other.state_dict().items(), back.state_dict().values(), strict=True):
        assert torch.equal(p.to(getattr(torch, dtype)), q), name


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen2"])
def test_a_training_step(name, tmp_path, monkeypatch):
    other = theirs(name)
    other.save_pretrained(tmp_path)
    for dtype, limit in (("float32", 1e-4), ("float64", 1e-9)):
        if dtype == "float64":  # their norms and rotations compute in float32 by name, whatever the model's dtype
            monkeypatch.setattr(torch, "float32", torch.float64)
            monkeypatch.setattr(torch, "float", torch.float64)
            monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
        mine = en.models.from_pretrained(tmp_path, dtype=dtype)
        peer = type(other)(other.config).eval()
        peer.load_state_dict(other.state_dict())
        peer.to(getattr(torch, dtype))
        targets = np.roll(IDS, -1, axis=1)
        targets[0, :2] = -100
        loss = torch.nn.functional.cross_entropy(
            peer(torch.tensor(IDS)).logits.flatten(0, 1), torch.tensor(targets).flatten()
        )
        loss.backward()
        ours = mine.loss(IDS, targets)
        ours.backward()
        assert abs(ours.item() - loss.item()) <= limit * abs(loss.item())
        gradients = dict(peer.named_parameters())
        for own, p in mine.named_parameters():
            expected = gradients[mine.published_name(own)].grad.numpy()
            zero = "k_proj.bias" in own  # no query's weights change if all keys move alike
            scale = 1.0 if zero else np.abs(expected).max()
            assert np.abs(p.grad.data - expected).max() <= limit * scale, own
            p.grad.data[...] = expected
        optimizer = torch.optim.AdamW(peer.parameters(), lr=1e-2, weight_decay=0.1)
        optimizer.step()
        en.optim.AdamW(mine.parameters(), lr=1e-2, weight_decay=0.1).step()
        for own, p in mine.named_parameters():
            expected = gradients[mine.published_name(own)].detach().numpy()
            assert np.abs(p.data - expected).max() <= limit * np.abs(expected).max(), own


def test_the_older_form_of_rope_settings(tmp_path):
    other = theirs("llama, llama3")
    other.save_pretrained(tmp_path)
    mine = en.models.from_pretrained(tmp_path)(IDS).data
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    path.write_text(json.dumps(config))
    np.testing.assert_array_equal(en.models.from_pretrained(tmp_path)(IDS).data, mine)
