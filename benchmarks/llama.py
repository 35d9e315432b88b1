"""A training step of a Llama with grouped heads, beside PyTorch's, and decoding GPT-2 124M beside transformers'."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .case import Case, Peer, Side
from .gpt import GPT2, Config, losses, weights as gpt_weights
from .models import Trainer, stepper, trained

LLAMA = Config(vocabulary=32000, width=768, layers=12, heads=12, batch=4, length=256, eps=1e-6)
SIZES = dict(  # under the names of Hugging Face's config.json
    vocab_size=LLAMA.vocabulary,
    hidden_size=LLAMA.width,
    intermediate_size=2048,
    num_hidden_layers=LLAMA.layers,
    num_attention_heads=LLAMA.heads,
    num_key_value_heads=4,
    max_position_embeddings=LLAMA.length,
)
THETA = 10000.0  # of the rotary angles


def shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights, as in Llama's published files: matrices are (out, in)."""
    width, inner, vocabulary = SIZES["hidden_size"], SIZES["intermediate_size"], SIZES["vocab_size"]
    keys = width * SIZES["num_key_value_heads"] // SIZES["num_attention_heads"]
    block: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (width, width),
        "self_attn.k_proj.weight": (keys, width),
        "self_attn.v_proj.weight": (keys, width),
        "self_attn.o_proj.weight": (width, width),
        "mlp.gate_proj.weight": (inner, width),
        "mlp.up_proj.weight": (inner, width),
        "mlp.down_proj.weight": (width, inner),
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
    }
    layers = range(SIZES["num_hidden_layers"])
    return {
        "model.embed_tokens.weight": (vocabulary, width),
        **{f"model.layers.{n}.{name}": shape for n in layers for name, shape in block.items()},
        "model.norm.weight": (width,),
        "lm_head.weight": (vocabulary, width),
    }


def weights() -> dict[str, np.ndarray]:
    """Normal matrices of standard deviation 0.02 and gains of 1, the same in every library."""
    rng = np.random.default_rng(0)
    return {
        name: np.ones(shape, np.float32)
        if len(shape) == 1
        else rng.standard_normal(shape, np.float32) * np.float32(0.02)
        for name, shape in shapes().items()
    }


def flops() -> float:
    """Model FLOP of a step, counted as for GPT-2 (``gpt.Config.flops``); looking up embeddings is none."""
    c = LLAMA
    products = sum(math.prod(shape) for name, shape in shapes().items() if "embed" not in name)
    return c.batch * c.length * (6.0 * products + 12.0 * c.layers * c.length * c.width)


def entrenar() -> Trainer:
    """The Llama in entrenar."""
    import entrenar as en

    model = en.models.build("llama", SIZES)
    model.load_state_dict(weights())
    return stepper(model, LLAMA)


def torch() -> Trainer:
    """The same in PyTorch."""
    from .llama_torch import trainer

    return trainer()


PROMPT, NEW = 16, 64  # tokens of the prompt, and generated
DECODED = dataclasses.replace(GPT2, length=1024)


def prompt() -> np.ndarray:
    """(1, PROMPT) ids."""
    return np.random.default_rng(1).integers(0, DECODED.vocabulary, (1, PROMPT))


def decoding(generate: Callable[[], np.ndarray]) -> Side:
    """A side that generates greedily: its tokens are compared."""
    return Side(generate, lambda: {"ids": generate()})


def decoding_weights() -> dict[str, np.ndarray]:
    """GPT-2's initial weights with larger positions, so that the text goes on changing."""
    found = gpt_weights(DECODED)
    return {**found, "wpe.weight": found["wpe.weight"] * 20}


def ours_decoding() -> Side:
    """GPT-2 through ``model.generate``."""
    import entrenar as en

    model = en.models.build("gpt2", {}).eval()
    model.load_state_dict(decoding_weights())
    return decoding(lambda: model.generate(prompt(), NEW, temperature=0))


def transformers_decoding() -> Side:
    """GPT-2 through transformers' ``generate``, as its documentation calls it."""
    import transformers

    from .llama_torch import tensors

    transformers.logging.set_verbosity_error()
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
    found = {f"transformer.{name}": value for name, value in tensors(decoding_weights()).items()}
    model.load_state_dict({**found, "lm_head.weight": found["transformer.wte.weight"]})
    ids = tensors({"ids": prompt()})["ids"]
    options: dict[str, Any] = dict(max_new_tokens=NEW, do_sample=False, eos_token_id=None, pad_token_id=0)
    return decoding(lambda: model.generate(ids, attention_mask=ids.new_ones(ids.shape), **options).numpy())


CASES = [
    Case(
        "Llama 12 x 768 step",
        trained(entrenar, losses, 2),
        {"torch": Peer(trained(torch, losses, 2), target=0.7, memory=0.8)},
        tolerance=1e-4,
        flops=flops(),
        share=0.7,
        pairs=5,
        memory=True,
    ),
    Case(
        "GPT-2 124M decoding, per token",
        ours_decoding,
        {"transformers": Peer(transformers_decoding, target=0.7)},
        tolerance=0.0,
        traffic=4.0 * NEW * DECODED.parameters,
        items=NEW,
        pairs=9,
        memory=True,
    ),
]
