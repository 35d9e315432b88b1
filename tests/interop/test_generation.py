"""Generation against transformers: greedy texts token for token, and the probabilities that are drawn from."""

import numpy as np
import pytest

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from transformers.generation import logits_process as peer  # noqa: E402

import entrenar as en  # noqa: E402
from entrenar.models.sampling import Sampling  # noqa: E402

GPT2 = dict(vocab_size=61, n_positions=40, n_embd=24, n_layer=2, n_head=4)
LLAMA = dict(
    vocab_size=61,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=40,
)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 10}
LLAMA3 = dict(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16
)
ROWS = {
    "gpt2": ("GPT2", GPT2),
    "llama": ("Llama", LLAMA),
    "llama, tied, llama3": ("Llama", {**LLAMA, "tie_word_embeddings": True, "rope_scaling": LLAMA3}),
    "llama, yarn": ("Llama", {**LLAMA, "rope_scaling": YARN}),
    "llama, linear": ("Llama", {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 2.5}}),
    "qwen2": ("Qwen2", LLAMA),
    "qwen2, windows above": (
        "Qwen2",
        {**LLAMA, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    "mistral": ("Mistral", {**LLAMA, "sliding_window": 4}),
    "mistral without a window": ("Mistral", {**LLAMA, "sliding_window": None}),
}
RNG = np.random.default_rng(0)
PROMPTS = [RNG.integers(3, 61, n).tolist() for n in (7, 1, 4)]


@pytest.fixture(params=ROWS)
def pair(request, tmp_path):
    """transformers' model with logits far apart (so that rounding decides no token), and ours from its folder."""
    kind, options = ROWS[request.param]
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(**options, bos_token_id=0, eos_token_id=None, pad_token_id=0)
    theirs = getattr(transformers, f"{kind}ForCausalLM" if kind != "GPT2" else "GPT2LMHeadModel")(config).eval()
    with torch.no_grad():
        for p in theirs.parameters():
            if p.ndim == 2:
                p.mul_(25)
    theirs.save_pretrained(tmp_path)
    return theirs, en.models.from_pretrained(tmp_path)


def their_text(model, prompts, count, **options):
    """transformers' greedy continuation of prompts that are padded on the left with 0."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    with torch.no_grad():
        return model.generate(
            ids, attention_mask=mask, max_new_tokens=count, do_sample=False, use_cache=True, pad_token_id=0, **options
        ).numpy()


@pytest.mark.filterwarnings("ignore")
def test_greedy_texts_are_equal_token_for_token(pair):
    theirs, ours = pair
    for prompts in (PROMPTS[:1], PROMPTS[1:2], PROMPTS):
        expected = their_text(theirs, prompts, 24)
        found = ours.generate(prompts, 24, temperature=0, pad_token=0)
        assert found.tolist() == expected.tolist()
        assert len(set(found[0, 7:].tolist())) > 2  # a text, not one token over and over


@pytest.mark.filterwarnings("ignore")
def test_stop_tokens_and_penalty_too(pair):
    theirs, ours = pair
    plain = ours.generate(PROMPTS, 24, temperature=0, pad_token=0)
    stop = [int(plain[0, 12]), int(plain[2, 20])]
    expected = their_text(theirs, PROMPTS, 24, eos_token_id=stop)
    found = ours.generate(PROMPTS, 24, temperature=0, pad_token=0, stop_tokens=stop)
    assert found.tolist() == expected.tolist()
    one = their_text(theirs, PROMPTS[:1], 24, repetition_penalty=1.4)
    assert ours.generate(PROMPTS[:1], 24, temperature=0, repetition_penalty=1.4).tolist() == one.tolist()


LOGITS = np.random.default_rng(3).normal(0, 3, (4, 50))
TIED = np.round(LOGITS)  # several logits equal each other at every border
PROCESSORS = {
    "temperature": lambda v: peer.TemperatureLogitsWarper(v),
    "top_k": lambda v: peer.TopKLogitsWarper(v),
    "top_p": lambda v: peer.TopPLogitsWarper(v),
    "min_p": lambda v: peer.MinPLogitsWarper(v),
}


@pytest.mark.parametrize("logits", [LOGITS, TIED], ids=["normal", "tied"])
@pytest.mark.parametrize(
    "options",
    [
        dict(temperature=0.7),
        dict(temperature=3.0),
        dict(top_k=1),
        dict(top_k=7),
        dict(top_k=99),
        dict(top_p=0.05),
        dict(top_p=0.6),
        dict(top_p=0.97),
        dict(min_p=0.03),
        dict(min_p=0.9),
        dict(repetition_penalty=1.7),
        dict(repetition_penalty=0.5),
        dict(repetition_penalty=1.3, temperature=1.6, top_k=20, top_p=0.8, min_p=0.05),
    ],
    ids=str,
)
def test_probabilities_are_those_of_the_logits_processors(logits, options):
    used = np.random.default_rng(5).integers(0, 50, (4, 6))
    scores = torch.tensor(logits)
    if "repetition_penalty" in options:
        processor = peer.RepetitionPenaltyLogitsProcessor(float(options["repetition_penalty"]))
        scores = processor(torch.tensor(used), scores)
    for name, make in PROCESSORS.items():
        if name in options:
            scores = make(options[name])(torch.tensor(used), scores)
    seen = np.zeros((4, 50), bool)
    seen[np.arange(4)[:, None], used] = True
    found = Sampling(**options).probabilities(logits, seen)
    expected = scores.softmax(-1).numpy()
    if logits is TIED:  # which of several equals stays is their sort's accident
        found, expected = np.sort(found), np.sort(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15)
