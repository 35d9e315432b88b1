"""Training steps of a character GPT and of GPT-2 124M, and GPT-2's loss curve beside PyTorch's."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from .case import Case, Peer, Side
from .gpt import CHAR, GPT2, Config, batches, losses, weights

Trainer = Callable[[], float]  # makes one step and returns its loss
CURVE = 20  # steps


def trained(make: Callable[[], Trainer], steps: int) -> Callable[[], Side]:
    """A side from a trainer: the losses of the first steps are compared, later steps timed."""

    def side() -> Side:
        step = make()
        return Side(step, lambda: losses(step, steps))

    return side


def entrenar(c: Config) -> Trainer:
    """The GPT in entrenar."""
    import entrenar as en

    config = en.models.GPT2Config(
        vocab_size=c.vocabulary,
        n_positions=c.length,
        n_embd=c.width,
        n_layer=c.layers,
        n_head=c.heads,
        resid_pdrop=c.dropout,
        embd_pdrop=c.dropout,
        attn_pdrop=c.dropout,
        layer_norm_epsilon=c.eps,
    )
    model = en.models.GPT2(config)
    model.load_state_dict(weights(c))
    optimizer = en.optim.AdamW(model.parameters(), lr=c.lr, weight_decay=c.weight_decay)
    data = batches(c)

    def step() -> float:
        loss = model.loss(*next(data))
        loss.backward()
        en.optim.clip_grad_norm_(model.parameters(), c.clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def peer(library: str, c: Config, **options: Any) -> Trainer:
    """The GPT in another library; only that library is loaded."""
    importlib.import_module(library)  # so that a missing one is told by its own name
    found: Trainer = importlib.import_module(f"{__package__}.gpt_{library}").trainer(c, **options)
    return found


def gpt(
    name: str,
    c: Config,
    targets: Mapping[str, Mapping[str, Any]],
    *,
    steps: int = 3,
    tolerance: float = 1e-4,
    **rest: Any,
) -> Case:
    """A case; targets: by label the library with what ``Peer`` takes, a second word asks for bfloat16."""
    peers = {
        label: Peer(
            trained(lambda label=label: peer(label.split()[0], c, **({"low": True} if " " in label else {})), steps),  # type: ignore[misc]
            **options,
        )
        for label, options in targets.items()
    }
    ours = trained(lambda: entrenar(c), steps)
    return Case(name, ours, peers, tolerance=tolerance, flops=c.flops, **{"memory": True, **rest})


TORCH = dict(target=0.55)
CASES = [
    gpt("char-GPT step", CHAR, {"torch": TORCH, "jax": {}}, share=None, pairs=9),
    # other random bits in every library: the first losses, near log(100), are alike to a percent
    gpt(
        "char-GPT step, dropout 0.1", dataclasses.replace(CHAR, dropout=0.1), {"torch": TORCH}, tolerance=1e-2, pairs=9
    ),
    gpt(
        "GPT-2 124M step",
        GPT2,
        {
            "torch": dict(target=0.5, memory=0.75),
            "torch bf16": dict(tolerance=1e-2),
            "jax": dict(extra=True),
        },
        steps=2,
        share=0.7,
        pairs=5,
    ),
    gpt("GPT-2 curve, 20 steps", GPT2, {"torch": {}}, steps=CURVE, memory=False, timed=False),
]
