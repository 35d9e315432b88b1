"""Presets and what Llama's family does with options, against transformers' own models."""

import json

import numpy as np
import pytest

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

import entrenar as en  # noqa: E402
from entrenar.models import PRESETS, build  # noqa: E402
from entrenar.nn import init  # noqa: E402

CLASSES = {"gpt2": "GPT2LMHeadModel", "bert": "BertModel", "llama": "LlamaForCausalLM"}
CLASSES |= {"mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM"}
SIZES = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, vocab_size=300)
SMALL = {
    "gpt2": dict(n_embd=64, n_layer=2, n_head=4, n_positions=16, vocab_size=300),
    "bert": SIZES,
    **{family: dict(SIZES, num_key_value_heads=2) for family in ("llama", "mistral", "qwen2")},
}


def theirs(model):
    """transformers' model of our configuration."""
    content = model.config.to_hf()
    config = transformers.AutoConfig.for_model(**{k: v for k, v in content.items() if k != "architectures"})
    return getattr(transformers, CLASSES[content["model_type"]])(config)


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_have_their_names_and_shapes(name):
    with init.left_empty():
        ours = build(name)
    with torch.device("meta"):
        other = theirs(ours)
    prefix = "transformer." if PRESETS[name][0] == "gpt2" else ""
    assert {prefix + own: p.shape for own, p in ours.named_parameters()} == {
        own: tuple(p.shape) for own, p in other.named_parameters()
    }
    assert en.nn.count_parameters(ours) == other.num_parameters()


@pytest.mark.parametrize("name", PRESETS)
def test_initial_weights_have_their_deviations(name):
    family = PRESETS[name][0]
    en.manual_seed(0)
    torch.manual_seed(0)
    padding = {} if family == "gpt2" else {"pad_token_id": 7}
    ours = build(name, {**SMALL[family], **padding, "initializer_range": 0.05})
    other = {own.removeprefix("transformer."): p.detach().numpy() for own, p in theirs(ours).named_parameters()}
    for own, parameter in ours.named_parameters():
        mine, peer = parameter.data, other[own]
        if mine.ndim == 1:
            np.testing.assert_array_equal(mine, peer, err_msg=own)
        else:
            assert abs(mine.std() / peer.std() - 1) < 7 / np.sqrt(2 * mine.size), own
            padded = own in ("model.embed_tokens.weight", "embeddings.word_embeddings.weight")
            for values in (mine, peer):
                assert np.flatnonzero(~values.any(axis=1)).tolist() == [7] * padded, own


LLAMA = dict(
    vocab_size=61,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=32,
)
LINEAR = {"rope_type": "linear", "factor": 2.0}
PLACES = {
    "beside": lambda rope, share: {"partial_rotary_factor": share, "rope_parameters": rope},
    "inside": lambda rope, share: {"rope_parameters": {**rope, "partial_rotary_factor": share}},
}


def folder_of(family, tmp_path, options):
    """A random model of theirs, saved; the folder's config.json then has these options."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{"pad_token_id": 0, **LLAMA})
    getattr(transformers, f"{family}ForCausalLM")(config).save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    rope = {**content.pop("rope_parameters"), **options.pop("rope_parameters")}
    (tmp_path / "config.json").write_text(json.dumps({**content, "rope_parameters": rope, **options}))
    return transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2"])
@pytest.mark.parametrize("place", PLACES)
def test_a_part_of_a_head(family, place, tmp_path):
    """transformers 5 ignores partial_rotary_factor, or fails where there is a scaling; entrenar refuses it by name."""
    ids = np.arange(9)[None]
    other = folder_of(family, tmp_path, PLACES[place]({}, 0.5))
    with pytest.raises(en.io.DataError, match=r"partial_rotary_factor=0\.5 is not supported"):
        en.models.from_pretrained(tmp_path)
    mine = en.models.from_pretrained(tmp_path, ignore=["partial_rotary_factor"])
    with torch.no_grad():
        expected = other(torch.tensor(ids)).logits.numpy()
    np.testing.assert_allclose(mine(ids).data, expected, rtol=1e-5, atol=1e-5)

    other = folder_of(family, tmp_path, PLACES[place](LINEAR, 0.5))
    with torch.no_grad(), pytest.raises(RuntimeError, match="must match the size"):
        other(torch.tensor(ids))
    with pytest.raises(en.io.DataError, match=r"partial_rotary_factor=0\.5 is not supported"):
        en.models.from_pretrained(tmp_path)

    other = folder_of(family, tmp_path, PLACES[place](LINEAR, 1.0))
    with torch.no_grad():
        expected = other(torch.tensor(ids)).logits.numpy()
    np.testing.assert_allclose(en.models.from_pretrained(tmp_path)(ids).data, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_padding_token_s_embedding_learns_nothing_from_its_places(family, tied, tmp_path):
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**LLAMA, pad_token_id=5, tie_word_embeddings=tied)
    other = getattr(transformers, f"{family}ForCausalLM")(config)
    other.save_pretrained(tmp_path)
    mine = en.models.from_pretrained(tmp_path)
    ids = np.array([[5, 5, 8, 9, 10], [11, 12, 5, 13, 5]])
    targets = np.roll(ids, -1, axis=1)
    logits = other.eval()(torch.tensor(ids)).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(targets).flatten()).backward()
    mine.loss(ids, targets).backward()
    expected = other.model.embed_tokens.weight.grad.numpy()
    assert expected[5].any() == tied  # what the head learns is another matter
    np.testing.assert_allclose(mine.model.embed_tokens.weight.grad.data, expected, rtol=1e-4, atol=1e-7)
