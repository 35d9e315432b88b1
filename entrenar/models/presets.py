"""The sizes of published models, for ``build``, which draws weights (``from_pretrained`` reads them).

The numbers are those of config.json in the repository of the hub that stands beside each name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LLAMA_3 = dict(
    vocab_size=128256,
    num_key_value_heads=8,
    rms_norm_eps=1e-5,
    rope_theta=500000.0,
    bos_token_id=128000,
    eos_token_id=128001,
)
_LLAMA_32 = dict(
    _LLAMA_3,
    intermediate_size=8192,
    max_position_embeddings=131072,
    rope_scaling=dict(
        rope_type="llama3",
        factor=32.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
    ),
    tie_word_embeddings=True,
)
_QWEN2 = dict(
    max_position_embeddings=131072,
    rope_theta=1000000.0,
    sliding_window=131072,  # off: use_sliding_window is false
    bos_token_id=151643,
    eos_token_id=151643,
)
_MISTRAL = dict(max_position_embeddings=32768, rms_norm_eps=1e-5)

# name -> (architecture of MODELS, the fields that differ from the defaults of its configuration)
PRESETS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "gpt2": ("gpt2", {}),  # openai-community/gpt2
    "gpt2-medium": ("gpt2", dict(n_embd=1024, n_layer=24, n_head=16)),  # openai-community/gpt2-medium
    "gpt2-large": ("gpt2", dict(n_embd=1280, n_layer=36, n_head=20)),  # openai-community/gpt2-large
    "gpt2-xl": ("gpt2", dict(n_embd=1600, n_layer=48, n_head=25)),  # openai-community/gpt2-xl
    "tinyllama-1.1b": (  # TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T, and its Chat-v1.0
        "llama",
        dict(
            hidden_size=2048,
            intermediate_size=5632,
            num_hidden_layers=22,
            num_key_value_heads=4,
            rms_norm_eps=1e-5,
        ),
    ),
    "llama-3.2-1b": (  # meta-llama/Llama-3.2-1B
        "llama",
        dict(_LLAMA_32, hidden_size=2048, num_hidden_layers=16, num_attention_heads=32),
    ),
    "llama-3.2-3b": (  # meta-llama/Llama-3.2-3B
        "llama",
        dict(_LLAMA_32, hidden_size=3072, num_hidden_layers=28, num_attention_heads=24),
    ),
    "llama-3-8b": (  # meta-llama/Meta-Llama-3-8B
        "llama",
        dict(_LLAMA_3, intermediate_size=14336, max_position_embeddings=8192),
    ),
    "qwen2-0.5b": (  # Qwen/Qwen2-0.5B
        "qwen2",
        dict(
            _QWEN2,
            hidden_size=896,
            intermediate_size=4864,
            num_hidden_layers=24,
            num_attention_heads=14,
            num_key_value_heads=2,
            max_window_layers=24,
            tie_word_embeddings=True,
        ),
    ),
    "qwen2-1.5b": (  # Qwen/Qwen2-1.5B
        "qwen2",
        dict(
            _QWEN2,
            hidden_size=1536,
            intermediate_size=8960,
            num_hidden_layers=28,
            num_attention_heads=12,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        ),
    ),
    "qwen2-7b": (  # Qwen/Qwen2-7B
        "qwen2",
        dict(
            _QWEN2,
            vocab_size=152064,
            hidden_size=3584,
            intermediate_size=18944,
            num_hidden_layers=28,
            num_attention_heads=28,
            num_key_value_heads=4,
        ),
    ),
    "mistral-7b-v0.1": ("mistral", _MISTRAL),  # mistralai/Mistral-7B-v0.1
    "mistral-7b-v0.3": (  # mistralai/Mistral-7B-v0.3
        "mistral",
        dict(_MISTRAL, vocab_size=32768, rope_theta=1000000.0, sliding_window=None),
    ),
    "bert-base-uncased": ("bert", {}),  # google-bert/bert-base-uncased
    "bert-large-uncased": (  # google-bert/bert-large-uncased
        "bert",
        dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
    ),
    "all-minilm-l6-v2": (  # sentence-transformers/all-MiniLM-L6-v2
        "bert",
        dict(hidden_size=384, num_hidden_layers=6, intermediate_size=1536),
    ),
}
