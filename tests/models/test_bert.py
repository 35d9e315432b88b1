"""BERT: names, initial values, masks, dropout, hooks, names of old files, errors."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

import entrenar as en
from entrenar.io import DataError
from entrenar.models import build
from entrenar.models.bert import Bert, BertConfig
from entrenar.models.folders import from_pretrained, save_pretrained
from entrenar.nn import StateDictError

SMALL = dict(
    vocab_size=19,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=10,
)
RNG = np.random.default_rng(0)
IDS = RNG.integers(1, 19, (2, 7))


def small(dtype="float64", training=False, **options):
    en.manual_seed(1)
    m = Bert(BertConfig(**{**SMALL, **options})).to(dtype=dtype)
    for name, p in m.named_parameters():  # large enough that every part is felt
        p.write(RNG.normal(size=p.shape) * 0.4 + (1.0 if name.endswith("LayerNorm.weight") else 0.0))
    return m.train(training)


def test_defaults_are_bert_base():
    c = BertConfig()
    assert (c.vocab_size, c.hidden_size, c.num_hidden_layers, c.num_attention_heads) == (30522, 768, 12, 12)
    assert (c.intermediate_size, c.hidden_act, c.max_position_embeddings, c.type_vocab_size) == (3072, "gelu", 512, 2)
    assert (c.hidden_dropout_prob, c.attention_probs_dropout_prob, c.layer_norm_eps) == (0.1, 0.1, 1e-12)
    assert (c.initializer_range, c.pad_token_id, c.add_pooling_layer) == (0.02, 0, True)


def test_names_and_layouts_are_hugging_face_s():
    shapes = {name: value.shape for name, value in small().state_dict().items()}
    norm = {"LayerNorm.weight": (12,), "LayerNorm.bias": (12,)}
    layer = {f"attention.self.{n}.weight": (12, 12) for n in ("query", "key", "value")}
    layer |= {f"attention.self.{n}.bias": (12,) for n in ("query", "key", "value")}
    layer |= {"attention.output.dense.weight": (12, 12), "attention.output.dense.bias": (12,)}
    layer |= {"intermediate.dense.weight": (20, 12), "intermediate.dense.bias": (20,)}
    layer |= {"output.dense.weight": (12, 20), "output.dense.bias": (12,)}
    layer |= {f"{half}.{n}": s for half in ("attention.output", "output") for n, s in norm.items()}
    expected = {f"embeddings.{n}": s for n, s in norm.items()}
    expected |= {"embeddings.word_embeddings.weight": (19, 12), "embeddings.position_embeddings.weight": (10, 12)}
    expected |= {"embeddings.token_type_embeddings.weight": (2, 12)}
    expected |= {f"encoder.layer.{n}.{name}": shape for n in range(2) for name, shape in layer.items()}
    assert {n: s for n, s in shapes.items() if not n.startswith("pooler")} == expected
    assert {n: s for n, s in shapes.items() if n.startswith("pooler")} == {
        "pooler.dense.weight": (12, 12),
        "pooler.dense.bias": (12,),
    }
    assert small(add_pooling_layer=False).state_dict().keys() == expected.keys()


def test_initial_values():
    en.manual_seed(0)
    m = build("bert", dict(SMALL, hidden_size=48, vocab_size=500, initializer_range=0.05, pad_token_id=3))
    words = m.embeddings.word_embeddings.weight.data
    assert not words[3].any() and words[[0, 1, 2, 4]].all()
    assert words.std() == pytest.approx(0.05, rel=0.05)
    assert m.encoder.layer[1].output.dense.weight.data.std() == pytest.approx(0.05, rel=0.1)
    assert not m.pooler.dense.bias.data.any() and (m.embeddings.LayerNorm.weight.data == 1).all()


def test_padding_changes_no_token_and_a_query_s_own_mask_is_the_same_mask():
    m = small()
    mask = np.ones((2, 7), int)
    mask[0, 4:] = 0
    y = m(IDS, mask).data
    np.testing.assert_allclose(y[0, :4], m(IDS[:1, :4]).data[0], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(y[1], m(IDS[1:]).data[0], rtol=1e-12, atol=1e-13)
    assert np.abs(y[0, :4] - m(IDS).data[0, :4]).max() > 1e-3
    each = np.broadcast_to(mask.astype(bool)[:, None, :], (2, 7, 7))
    np.testing.assert_array_equal(m(IDS, each).data, y)


def test_packed_texts_do_not_see_each_other():
    m = small()
    text = np.array([0, 0, 0, 1, 1, 1, 1])
    packed = m(IDS[:1], (text[:, None] == text)[None], position_ids=np.array([0, 1, 2, 0, 1, 2, 3])).data[0]
    for own in (text == 0, text == 1):
        np.testing.assert_allclose(packed[own], m(IDS[:1, own]).data[0], rtol=1e-12, atol=1e-13)


def test_a_row_that_sees_nothing_is_finite_and_so_are_its_gradients():
    m = small()
    y = m(IDS, [[0] * 7, [1] * 7])
    y.sum().backward()
    assert np.isfinite(y.data).all()
    assert all(np.isfinite(p.grad.data).all() for p in m.parameters() if p.grad is not None)


def test_token_types_are_zeros_unless_given():
    m = small()
    types = np.zeros_like(IDS)
    np.testing.assert_allclose(m(IDS).data, m(IDS, token_type_ids=types).data, rtol=1e-13, atol=1e-14)
    types[0, 3:] = 1
    changed = np.abs(m(IDS).data - m(IDS, token_type_ids=types).data).max(axis=(1, 2))
    assert changed[0] > 1e-3 and changed[1] == 0


def test_the_padding_token_s_embedding_gets_no_gradient():
    ids = IDS.copy()
    ids[0, :3] = 4
    for pad, still in ((4, True), (None, False)):
        m = small(pad_token_id=pad)
        (m(ids) ** 2)[:, :, :5].sum().backward()
        grad = m.embeddings.word_embeddings.weight.grad.data
        assert (not grad[4].any()) is still and grad[ids[1, 0]].any()


@pytest.mark.parametrize("rate", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_dropout_in_training_alone(rate):
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    m = small(**{**off, rate: 0.5}, training=True)
    en.manual_seed(3)
    first, second = m(IDS).data, m(IDS).data
    assert np.abs(first - second).max() > 1e-2
    en.manual_seed(3)
    np.testing.assert_array_equal(m(IDS).data, first)
    m.eval()
    np.testing.assert_array_equal(m(IDS).data, m(IDS).data)


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh"])
def test_with_hooks_everywhere_the_same_values_and_gradients_and_all_modules_run(act):
    m, results = small(hidden_act=act), []
    seen = set()
    for hooked in (False, True):
        if hooked:
            for name, module in m.named_modules():
                module.register_forward_hook(lambda module, args, y, name=name: seen.add(name))
        m.zero_grad()
        y = m.pooled(m(IDS, [[1] * 7, [1] * 5 + [0] * 2]))
        y.sum().backward()
        results.append([y.data, *(p.grad.data.copy() for p in m.parameters())])
    for fused, plain in zip(*results, strict=True):
        np.testing.assert_allclose(plain, fused, rtol=1e-10, atol=1e-13)
    assert seen == {name for name, module in m.named_modules() if type(module).__name__ != "ModuleList"}


def test_old_names_prefix_and_buffers_are_understood():
    m = small()
    old = {
        "bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in m.state_dict().items()
    }
    assert "bert.encoder.layer.1.output.LayerNorm.gamma" in old
    old["bert.embeddings.position_ids"] = np.arange(10)[None]
    other = small()
    report = other.load_state_dict(old)
    assert not any(report)
    np.testing.assert_array_equal(other(IDS).data, m(IDS).data)


def test_heads_are_left_out_with_one_warning_that_lists_them():
    m = small()
    heads = {name: np.zeros(3) for name in ("cls.predictions.bias", "classifier.weight", "qa_outputs.weight")}
    with pytest.warns(UserWarning, match="no heads") as caught:
        small().load_state_dict({**m.state_dict(), **heads})
    assert len(caught) == 1 and all(name in str(caught[0].message) for name in heads)


def test_everything_else_is_strict():
    state = small().state_dict()
    with pytest.raises(StateDictError, match=r"embeddings\.extra"):
        small().load_state_dict({**state, "embeddings.extra": np.zeros(3)})
    with pytest.raises(StateDictError, match=r"pooler\.dense\.bias"):
        small().load_state_dict({k: v for k, v in state.items() if k != "pooler.dense.bias"})
    with pytest.raises(StateDictError, match="are the same weight"):
        small().load_state_dict({**state, "bert.embeddings.LayerNorm.gamma": np.ones(12)})


def test_a_folder_there_and_back(tmp_path):
    m = small("float32")
    save_pretrained(m, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        back = from_pretrained(tmp_path)
    assert back.config == m.config and not back.training
    np.testing.assert_array_equal(back.pooled(back(IDS)).data, m.pooled(m(IDS)).data)


def test_the_weights_say_whether_there_is_a_pooler(tmp_path):
    m = small("float32", add_pooling_layer=False)
    save_pretrained(m, tmp_path)
    given = json.loads((tmp_path / "config.json").read_text())
    back = from_pretrained(tmp_path)
    assert back.config == m.config
    with pytest.raises(ValueError, match="no pooler"):
        back.pooled(back(IDS))
    (tmp_path / "config.json").write_text(json.dumps({**given, "add_pooling_layer": True}))
    with pytest.raises(DataError, match=r"pooler\.dense\.weight"):
        from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key' is not supported"),
        ({"is_decoder": True}, "is_decoder=True is not supported"),
        ({"add_cross_attention": True}, "add_cross_attention=True is not supported"),
        ({"hidden_sise": 12}, "Did you mean 'hidden_size'"),
    ],
)
def test_what_is_not_computed_is_refused(given, message):
    with pytest.raises(DataError, match=message):
        BertConfig.from_hf({"model_type": "bert", **SMALL, **given})


def test_config_json_of_published_models_is_read():
    given = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "gradient_checkpointing": False, **SMALL}
    inert = {"pooler_type": "first_token_transform", "directionality": "bidi", "classifier_dropout": None}
    config = BertConfig.from_hf({**given, **inert, "position_embedding_type": "absolute", "is_decoder": False})
    assert config == BertConfig(**SMALL, add_pooling_layer=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_size": 10}, "hidden_size must be divisible by num_attention_heads=3, got 10"),
        ({"type_vocab_size": 0}, "type_vocab_size must be a positive integer, got 0"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob must be in"),
        ({"pad_token_id": 19}, r"pad_token_id must be None or an id in \[0, 19\), got 19"),
        ({"add_pooling_layer": "yes"}, "add_pooling_layer must be True, False or None, got 'yes'"),
        ({"hidden_act": "gelu_nev"}, "unknown hidden_act 'gelu_nev'.*Did you mean 'gelu_new'"),
    ],
)
def test_errors_of_the_configuration(options, message):
    with pytest.raises(ValueError, match=message):
        BertConfig(**{**SMALL, **options})


@pytest.mark.parametrize(
    ("ids", "options", "error", "message"),
    [
        (IDS[0], {}, ValueError, r"Bert takes ids of shape \(B, T\)"),
        (np.ones((1, 11), int), {}, ValueError, "Bert has 10 positions, got 11 tokens"),
        ([[1, 19]], {}, IndexError, r"Bert: input_ids: id 19 at index \(0, 1\) is outside \[0, 19\)"),
        ([[1, -1]], {}, IndexError, r"Bert: input_ids: id -1 at index \(0, 1\)"),
        ([[1.0, 2.0]], {}, TypeError, "Bert: input_ids: ids must be integers, got dtype float64"),
        (
            IDS,
            {"token_type_ids": IDS[:, :3] * 0},
            ValueError,
            r"token_type_ids have shape \(2, 3\), expected .*\(2, 7\)",
        ),
        (
            IDS,
            {"token_type_ids": IDS * 0 + 2},
            IndexError,
            r"Bert: token_type_ids: id 2 at index \(0, 0\) is outside \[0, 2",
        ),
        (IDS, {"token_type_ids": IDS * 0.0}, TypeError, "Bert: token_type_ids: ids must be integers"),
        (IDS, {"position_ids": np.arange(7) + 4}, IndexError, r"outside \[0, 10\)"),
        (IDS, {"position_ids": np.arange(6)}, ValueError, r"position_ids have shape \(6,\)"),
        (IDS, {"attention_mask": np.ones((2, 6))}, ValueError, r"attention_mask has shape \(2, 6\)"),
        (IDS, {"attention_mask": np.ones((2, 7)) * 2}, ValueError, "expected 1 .a token. or 0"),
    ],
)
def test_errors_of_the_inputs(ids, options, error, message):
    with pytest.raises(error, match=message):
        small()(ids, **options)
