"""The BERT encoder against transformers: states, pooler, gradients, and folders in both directions."""

import numpy as np
import pytest
import torch
import transformers

from entrenar.models.bert import Bert, BertConfig
from entrenar.models.folders import from_pretrained, save_pretrained

SMALL = dict(
    vocab_size=37,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=40,
    max_position_embeddings=16,
)
CONFIGS = [
    {},
    {"hidden_act": "gelu_new", "type_vocab_size": 5, "pad_token_id": None},
    {"hidden_act": "gelu_pytorch_tanh", "num_attention_heads": 1, "layer_norm_eps": 1e-5},
    {"hidden_act": "relu", "num_hidden_layers": 1, "intermediate_size": 8, "pad_token_id": 7},
    {"hidden_act": "silu", "num_attention_heads": 24, "type_vocab_size": 1, "layer_norm_eps": 0.1},
    {"hidden_act": "tanh", "vocab_size": 100},
]
SHAPE = (3, 9)


def theirs(dtype=torch.float64, cls=transformers.BertModel, **options):
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**SMALL, **options}, attn_implementation="eager")
    made = cls(config).eval()
    with torch.no_grad():
        for name, p in made.named_parameters():
            p.copy_(torch.randn(p.shape) * 0.3 + (1.0 if name.endswith("LayerNorm.weight") else 0.0))
    return made.to(dtype)


def inputs(config, seed=0):
    rng = np.random.default_rng(seed)
    mask = np.ones(SHAPE, np.int64)
    mask[0, 5:], mask[2, :2] = 0, 0
    return {
        "input_ids": rng.integers(0, config.vocab_size, SHAPE),
        "attention_mask": mask,
        "token_type_ids": rng.integers(0, config.type_vocab_size, SHAPE),
    }


def torched(given):
    return {name: torch.from_numpy(a) for name, a in given.items()}


@pytest.fixture(params=range(len(CONFIGS)), ids=lambda n: CONFIGS[n].get("hidden_act", "gelu"))
def options(request):
    return CONFIGS[request.param]


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("parts", [(), ("attention_mask",), ("token_type_ids",), ("attention_mask", "token_type_ids")])
def test_states_and_pooler(tmp_path, options, dtype, bound, parts):
    peer = theirs(dtype, **options)
    peer.save_pretrained(tmp_path)
    ours = from_pretrained(tmp_path)
    given = {k: v for k, v in inputs(peer.config).items() if k in ("input_ids", *parts)}
    with torch.no_grad():
        expected = peer(**torched(given))
    y = ours(**given)
    assert str(y.dtype) == str(dtype).removeprefix("torch.")
    np.testing.assert_allclose(y.data, expected.last_hidden_state.numpy(), rtol=0, atol=bound)
    np.testing.assert_allclose(ours.pooled(y).data, expected.pooler_output.numpy(), rtol=0, atol=bound)


def test_gradients(tmp_path, options):
    peer = theirs(**options)
    peer.save_pretrained(tmp_path)
    ours = from_pretrained(tmp_path)
    given = inputs(peer.config)
    given["input_ids"][1, 3] = peer.config.pad_token_id or 0  # the padding token's row is among those compared
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(*SHAPE, 24)), rng.normal(size=(SHAPE[0], 24))
    out = peer(**torched(given))
    loss = (out.last_hidden_state * torch.from_numpy(a)).sum() + (out.pooler_output * torch.from_numpy(b)).sum()
    loss.backward()
    y = ours(**given)
    total = (y * a).sum() + (ours.pooled(y) * b).sum()
    total.backward()
    assert float(total.data) == pytest.approx(loss.item(), rel=1e-12)
    expected = dict(peer.named_parameters())
    assert expected.keys() == dict(ours.named_parameters()).keys()
    for name, p in ours.named_parameters():
        np.testing.assert_allclose(p.grad.data, expected[name].grad.numpy(), rtol=1e-9, atol=1e-9, err_msg=name)


def test_a_mask_of_each_query_and_positions(tmp_path):
    peer = theirs()
    peer.save_pretrained(tmp_path)
    given = inputs(peer.config)
    rng = np.random.default_rng(2)
    mask = rng.random((*SHAPE, SHAPE[1])) < 0.6
    mask |= np.eye(SHAPE[1], dtype=bool)
    at = rng.integers(0, 16, SHAPE)
    with torch.no_grad():
        expected = peer(
            torch.from_numpy(given["input_ids"]),
            attention_mask=torch.from_numpy(np.where(mask, 0.0, -1e300))[:, None],
            position_ids=torch.from_numpy(at),
        )
    y = from_pretrained(tmp_path)(given["input_ids"], mask, position_ids=at)
    np.testing.assert_allclose(y.data, expected.last_hidden_state.numpy(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("pooler", [True, False])
def test_saved_here_loaded_there(tmp_path, options, pooler):
    ours = Bert(BertConfig(**{**SMALL, **options}, add_pooling_layer=pooler)).eval()
    save_pretrained(ours, tmp_path)
    peer, info = transformers.BertModel.from_pretrained(
        tmp_path, add_pooling_layer=pooler, attn_implementation="eager", output_loading_info=True
    )
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    given = inputs(peer.config)
    with torch.no_grad():
        expected = peer.eval()(**torched(given)).last_hidden_state.numpy()
    np.testing.assert_allclose(ours(**given).data, expected, rtol=0, atol=1e-5)
    state = {name: value.numpy() for name, value in peer.state_dict().items()}
    assert state.keys() == ours.state_dict().keys()
    for name, value in ours.state_dict().items():
        np.testing.assert_array_equal(value.data, state[name])


@pytest.mark.parametrize(
    ("name", "heads", "pooler"),
    [
        ("BertForMaskedLM", "cls.predictions", False),
        ("BertForPreTraining", "cls.seq_relationship", True),
        ("BertForSequenceClassification", "classifier.weight", True),
        ("BertForQuestionAnswering", "qa_outputs.weight", False),
    ],
)
def test_the_encoder_of_models_with_heads(tmp_path, name, heads, pooler):
    peer = theirs(cls=getattr(transformers, name))
    peer.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=heads) as caught:
        ours = from_pretrained(tmp_path)
    assert len(caught) == 1 and (ours.pooler is not None) is pooler
    given = inputs(peer.config)
    with torch.no_grad():
        expected = peer.bert(**torched(given)).last_hidden_state.numpy()
    np.testing.assert_allclose(ours(**given).data, expected, rtol=0, atol=1e-10)
