"""Folders in and out: strict about options and tensors; the modes of loading."""

import json

import ml_dtypes
import numpy as np
import pytest

import entrenar as en
from entrenar.io import DataError, load_tensors, save_tensors
from entrenar.models import MODELS, build, from_pretrained
from entrenar.nn import StateDictError

SMALL = {
    "gpt2": dict(vocab_size=11, n_positions=8, n_embd=12, n_layer=2, n_head=2),
    "llama": dict(
        vocab_size=11,
        hidden_size=12,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=4,
        max_position_embeddings=16,
    ),
}
SMALL["mistral"] = {**SMALL["llama"], "sliding_window": 3}
SMALL["qwen2"] = {**SMALL["llama"], "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}
BERT = {"bert": dict(vocab_size=11, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20)}
DECODERS = sorted(SMALL)
IDS = np.array([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])


@pytest.fixture(params=DECODERS)
def model(request):
    en.manual_seed(0)
    return build(request.param, SMALL[request.param]).eval()


@pytest.fixture
def llama(tmp_path):
    model = build("llama", SMALL["llama"]).eval()
    model.save_pretrained(tmp_path)
    return model, tmp_path


def rewritten(folder, change):
    """The folder's tensors, changed."""
    tensors, metadata = load_tensors(folder / "model.safetensors")
    change(tensors)
    save_tensors(folder / "model.safetensors", tensors, metadata)


def configured(folder, **options):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **options}))


def test_every_architecture_has_a_small_configuration_here():
    assert set(MODELS) == {*SMALL, *BERT}


@pytest.mark.parametrize("shard", [None, 2000])
def test_what_is_saved_loads(model, tmp_path, shard):
    model.save_pretrained(tmp_path, max_shard_bytes=shard)
    back = from_pretrained(tmp_path)
    assert back.config == model.config and not back.training
    np.testing.assert_array_equal(back(IDS).data, model(IDS).data)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] in MODELS


def test_initialisation_follows_the_seed(model):
    en.manual_seed(0)
    again = build(next(name for name, (_, cls) in MODELS.items() if type(model) is cls), model.config.__dict__)
    for (name, p), q in zip(model.named_parameters(), again.parameters(), strict=True):
        np.testing.assert_array_equal(p.data, q.data, err_msg=name)
        assert np.isfinite(p.data).all()


def test_loading_draws_no_random_numbers(llama):
    _, folder = llama
    state = en.default_generator.state()
    from_pretrained(folder)
    assert en.default_generator.state() == state


@pytest.mark.parametrize("family", sorted(MODELS))
def test_all_faults_are_told_in_one_error_and_nothing_changes(family, tmp_path):
    model = build(family, {**SMALL, **BERT}[family])
    model.save_pretrained(tmp_path)
    state = load_tensors(tmp_path / "model.safetensors")[0]
    missing, misshapen = (name for name in list(state)[-3:-1])
    shape = state[misshapen].shape

    def change(tensors):
        tensors["extra.weight"] = np.zeros(3, np.float32)
        del tensors[missing]
        tensors[misshapen] = np.ones((*shape, 2), np.float32)

    rewritten(tmp_path, change)
    own = lambda name: name.removeprefix("transformer.")  # GPT-2's published files have no prefix
    expected = (
        f"missing (1): {own(missing)}",
        "unexpected (1): extra.weight",
        f"{own(misshapen)}: shape {(*shape, 2)}, expected {shape}",
    )
    with pytest.raises(DataError) as error:
        from_pretrained(tmp_path)
    assert all(part in str(error.value) for part in expected), str(error.value)
    before = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    with pytest.raises(StateDictError) as error:
        model.load_state_dict(load_tensors(tmp_path / "model.safetensors")[0])
    assert all(part in str(error.value) for part in expected), str(error.value)
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), before[name])


def test_a_tied_head_may_be_absent_or_a_copy_but_nothing_else(tmp_path):
    model = build("llama", {**SMALL["llama"], "tie_word_embeddings": True})
    model.save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_tensors(tmp_path / "model.safetensors")[0]
    table = model.model.embed_tokens.weight.data
    rewritten(tmp_path, lambda tensors: tensors.update({"lm_head.weight": table.copy()}))
    np.testing.assert_array_equal(from_pretrained(tmp_path)(IDS).data, model.eval()(IDS).data)
    rewritten(tmp_path, lambda tensors: tensors.update({"lm_head.weight": table + 1}))
    with pytest.raises(DataError, match="the config ties them"):
        from_pretrained(tmp_path)


def test_an_untied_head_is_not_made_up(llama):
    _, folder = llama
    rewritten(folder, lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(DataError, match=r"missing \(1\): lm_head.weight"):
        from_pretrained(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_type": "lama"}, "model_type 'lama' is not supported.*Did you mean 'llama'"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported for llama: expected 'silu' or 'swish'"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "longrope"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
        ({"new_trick": 3}, "new_trick=3 is unknown for llama and might change the result"),
        ({"num_attention_heads": 3}, "num_attention_heads must be divisible by num_key_value_heads=2, got 3"),
        ({"hidden_size": "12"}, "hidden_size must be a positive integer, got '12'"),
        ({"is_decoder": True}, "is_decoder=True is not supported"),
        ({"rms_norm_eps": 0}, "rms_norm_eps must be a positive number"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"model_type": ["llama"]}, r"model_type must be one of .*, got \['llama'\]"),
        ({"model_type": None}, "model_type must be one of .*, got None"),
        ({"num_hidden_layers": 10**8}, "names 100000000 layers, but the weights have 21 tensors only"),
        ({"vocab_size": 2**31 - 1, "hidden_size": 2**31 - 4}, "no model can have these sizes"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads=.* is not supported"),
    ],
)
def test_options_that_change_the_result_are_refused(llama, options, message):
    _, folder = llama
    configured(folder, **options)
    with pytest.raises(DataError, match=message):
        from_pretrained(folder)


def test_options_that_do_not_matter(llama):
    model, folder = llama
    configured(folder, use_cache=False, new_trick=None, other_trick=1, torch_dtype="float32", pruned_heads={})
    np.testing.assert_array_equal(from_pretrained(folder, ignore=["other_trick"])(IDS).data, model(IDS).data)


def test_options_to_ignore_are_a_list(llama):
    _, folder = llama
    configured(folder, trick=1)
    with pytest.raises(TypeError, match=r"ignore takes a list of names, got 'a trick': write ignore=\['a trick'\]"):
        from_pretrained(folder, ignore="a trick")


@pytest.mark.parametrize(
    "content", [None, "[]", "{", "[" * 9999, '{"model_type": "llama", "model_type": "gpt2"}', "\xff"]
)
def test_bad_config_files(llama, content):
    _, folder = llama
    path = folder / "config.json"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(DataError, match=r"config\.json"):
        from_pretrained(folder)


def test_the_dtype_is_the_file_s_or_the_one_asked_for(llama):
    _, folder = llama
    assert {p.dtype for p in from_pretrained(folder, dtype="float64").parameters()} == {np.dtype("float64")}
    rewritten(folder, lambda tensors: tensors.update({k: v.astype(np.float16) for k, v in tensors.items()}))
    assert {p.dtype for p in from_pretrained(folder).parameters()} == {np.dtype("float16")}
    with pytest.raises(TypeError, match="float dtype"):
        from_pretrained(folder, dtype="int32")
    with pytest.raises(TypeError, match="unknown dtype 'auto'"):
        from_pretrained(folder / "missing", dtype="auto")


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_weights_of_8_bits_are_refused_by_name(llama, dtype):
    _, folder = llama
    kind = getattr(ml_dtypes, dtype)
    rewritten(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["lm_head.weight"].astype(kind)}))
    with pytest.raises(
        DataError, match=rf"1 tensors are of a dtype that is not computed with: lm_head\.weight: {dtype}"
    ):
        from_pretrained(folder)


def test_padding_changes_nothing(model):
    padded = np.array([[0, 0, 0, 1, 2], [6, 7, 8, 9, 10]])
    mask = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])
    at = np.array([[0, 0, 0, 0, 1], [0, 1, 2, 3, 4]])
    y = model(padded, attention_mask=mask, position_ids=at).data
    np.testing.assert_allclose(y[0, 3:], model(IDS[:1, :2]).data[0], atol=1e-5)
    np.testing.assert_allclose(y[1], model(IDS[1:]).data[0], atol=1e-5)
    other = np.where(mask == 1, padded, 3)
    np.testing.assert_array_equal(model(other, attention_mask=mask, position_ids=at).data[mask == 1], y[mask == 1])


def test_packed_texts_see_themselves_alone(model):
    ids = np.concatenate([IDS[:1, :3], IDS[1:, :2]], 1)
    text = np.array([0, 0, 0, 1, 1])
    y = model(ids, attention_mask=(text[:, None] == text)[None], position_ids=np.array([[0, 1, 2, 0, 1]])).data
    np.testing.assert_allclose(y[:, :3], model(IDS[:1, :3]).data, atol=1e-5)
    np.testing.assert_allclose(y[:, 3:], model(IDS[1:, :2]).data, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"attention_mask": np.ones((2, 4))}, ValueError, r"attention_mask has shape \(2, 4\), expected \(2, 5\) or"),
        ({"attention_mask": np.full((2, 5), 2)}, ValueError, "holds .*2.*: expected 1"),
        ({"position_ids": np.zeros((2, 4), int)}, ValueError, r"position_ids have shape \(2, 4\)"),
        ({"position_ids": np.zeros((2, 5))}, TypeError, "integers"),
        ({"position_ids": np.full((2, 5), -1)}, IndexError, "outside"),
    ],
)
def test_bad_masks_and_positions(model, options, error, message):
    with pytest.raises(error, match=message):
        model(IDS, **options)


def test_the_loss_s_mask_weighs_tokens(model):
    targets = np.roll(IDS, -1, 1)
    rows = model.loss(IDS, targets, reduction="none").data
    kept = np.array([[0, 1, 1, 0, 1], [1, 0, 0, 0, 1]])
    weights = kept * 0.5
    weights[0, 1] = 2.0
    for mask in (kept, kept.astype(bool), weights):
        expected = (rows * mask).sum() / mask.sum()
        np.testing.assert_allclose(model.loss(IDS, targets, mask=mask).item(), expected, rtol=1e-5)
        np.testing.assert_allclose(
            model.loss(IDS, targets, mask=mask, reduction="sum").item(), (rows * mask).sum(), rtol=1e-5
        )
    nothing = model.loss(IDS, targets, mask=np.zeros((2, 5)))
    assert nothing.item() == 0
    with pytest.raises(ValueError, match=r"mask has shape \(2, 4\)"):
        model.loss(IDS, targets, mask=kept[:, 1:])
    with pytest.raises(ValueError, match="negative or non-finite"):
        model.loss(IDS, targets, mask=weights * -1)


def test_hooks_see_what_they_would_without_fused_ops(model):
    before, seen = model(IDS).data, []
    names = [name for name, module in model.named_modules() if name and not list(module.children())]
    modules = dict(model.named_modules())
    for name in names:
        modules[name].register_forward_hook(lambda module, args, y, name=name: seen.append(name))
    np.testing.assert_allclose(model(IDS).data, before, rtol=1e-4, atol=1e-5)
    heads = {"lm_head"}  # the projection to logits is its weight alone
    assert set(names) - set(seen) <= heads
