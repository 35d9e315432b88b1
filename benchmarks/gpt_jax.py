"""The GPT of the cases in JAX: one jitted step that reuses the memory of weights and moments."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from .gpt import Config, batches, weights

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


def norm(p, name, x, eps):
    """Layer norm."""
    mean = x.mean(-1, keepdims=True)
    centred = x - mean
    scale = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + eps)
    return centred * scale * p[f"{name}.weight"] + p[f"{name}.bias"]


def project(p, name, x):
    """x W + b."""
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def loss(p, ids, targets, c: Config):
    """Mean cross entropy."""
    batch, length = ids.shape
    x = p["wte.weight"][ids] + p["wpe.weight"][:length]
    for n in range(c.layers):
        q, k, v = jnp.split(project(p, f"h.{n}.attn.c_attn", norm(p, f"h.{n}.ln_1", x, c.eps)), 3, axis=-1)
        q, k, v = (a.reshape(batch, length, c.heads, -1) for a in (q, k, v))
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(batch, length, -1)
        x = x + project(p, f"h.{n}.attn.c_proj", y)
        inner = jax.nn.gelu(project(p, f"h.{n}.mlp.c_fc", norm(p, f"h.{n}.ln_2", x, c.eps)), approximate=True)
        x = x + project(p, f"h.{n}.mlp.c_proj", inner)
    logits = norm(p, "ln_f", x, c.eps) @ p["wte.weight"].T
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return (jax.nn.logsumexp(logits, axis=-1) - picked).mean()


def adamw(p, g, m, v, t, lr, decay):
    """One parameter's update (Loshchilov and Hutter 2019, algorithm 2)."""
    m = BETA1 * m + (1 - BETA1) * g
    v = BETA2 * v + (1 - BETA2) * g * g
    root = jnp.sqrt(v / (1 - BETA2**t)) + EPS
    return p * (1 - lr * decay) - lr * (m / (1 - BETA1**t)) / root, m, v


@functools.partial(jax.jit, static_argnames="c", donate_argnums=(0, 1, 2))
def update(p, m, v, t, ids, targets, c: Config):
    """Weights and moments after a step, and its loss."""
    value, g = jax.value_and_grad(loss)(p, ids, targets, c)
    total = jnp.sqrt(sum(jnp.vdot(a, a) for a in g.values()))
    factor = jnp.minimum(1.0, c.clip / (total + 1e-6))
    new = {name: adamw(p[name], g[name] * factor, m[name], v[name], t, c.lr, c.weight_decay) for name in p}
    return *({name: parts[i] for name, parts in new.items()} for i in range(3)), value


def trainer(c: Config) -> Callable[[], float]:
    """A function that makes a training step and returns its loss; without dropout."""
    p = {name: jnp.asarray(value) for name, value in weights(c).items()}
    m, v = ({name: jnp.zeros_like(value) for name, value in p.items()} for _ in range(2))
    data = batches(c)
    t = 0

    def step() -> float:
        nonlocal p, m, v, t
        t += 1
        p, m, v, value = update(p, m, v, float(t), *next(data), c)
        return float(jax.block_until_ready(value))

    return step
