"""Training steps of a character GPT and of GPT-2 124M, and GPT-2's loss curve beside PyTorch's."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from .case import Case, Peer, Side
from .gpt import CHAR, GPT2, Config, batches, learned, losses, weights

Trainer = Callable[[], float]  # makes one step and returns its loss
Result = Callable[[Trainer, int], Mapping[str, Any]]


def trained(make: Callable[[], Trainer], result: Result, steps: int) -> Callable[[], Side]:
    """A side from a trainer: what ``result`` makes of the first steps is compared, later steps timed."""

    def side() -> Side:
        step = make()
        return Side(step, lambda: result(step, steps))

    return side


def entrenar(c: Config, dtype: str = "float32", **options: Any) -> Trainer:
    """The GPT in entrenar; options: AdamW's."""
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
    model.to(dtype)
    return stepper(model, c, **options)


def stepper(model: Any, c: Config, **options: Any) -> Trainer:
    """Training steps of a model of entrenar's; options: AdamW's."""
    import entrenar as en

    optimizer = en.optim.AdamW(model.parameters(), lr=c.lr, weight_decay=c.weight_decay, **options)
    data = batches(c)

    def step() -> float:
        loss = model.loss(*next(data))
        loss.backward()
        en.optim.clip_grad_norm_(model.parameters(), c.clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def peer(library: str, c: Config, *dtype: str) -> Trainer:
    """The GPT in another library, or in this one; only that library is loaded."""
    if library == "entrenar":
        return entrenar(c, *dtype)
    importlib.import_module(library)  # so that a missing one is told by its own name
    found: Trainer = importlib.import_module(f"{__package__}.gpt_{library}").trainer(c, *dtype)
    return found


def gpt(
    name: str,
    c: Config,
    targets: Mapping[str, Mapping[str, Any]],
    *,
    ours: Mapping[str, Any] = {},
    result: Result = losses,
    steps: int = 3,
    tolerance: float = 1e-4,
    **rest: Any,
) -> Case:
    """A case; targets: by label (the library, then a dtype if it is not float32) what ``Peer`` takes; ours: dtype and
    AdamW's options.
    """
    peers = {
        label: Peer(trained(functools.partial(peer, library, c, *dtype), result, steps), **options)
        for label, options in targets.items()
        for library, *dtype in [label.split()]
    }
    own = trained(lambda: entrenar(c, **ours), result, steps)
    return Case(name, own, peers, tolerance=tolerance, flops=c.flops, **{"memory": True, **rest})


TORCH = dict(target=0.55)
LOW = dict(dtype="bfloat16")
LOWER = dict(dtype="bfloat16", state_dtype="bfloat16", stochastic_rounding=True)
UNTIMED: dict[str, Any] = dict(memory=False, timed=False)
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
            "torch bfloat16": dict(tolerance=1e-2),
            "jax": dict(extra=True),
        },
        steps=2,
        share=0.7,
        pairs=5,
    ),
    gpt(
        "GPT-2 124M step, bfloat16",
        GPT2,
        {"entrenar float32": dict(memory=0.85)},
        ours=LOW,
        steps=2,
        tolerance=1e-2,
        pairs=3,
    ),
    gpt(
        "GPT-2 124M step, bfloat16 with moments",
        GPT2,
        {"entrenar float32": dict(memory=0.65)},
        ours=LOWER,
        steps=2,
        tolerance=1e-2,
        pairs=3,
    ),
    # float64, because PyTorch's own float32 curve strays from it by more than a thousandth within these steps
    gpt("GPT-2 curve, 20 steps", GPT2, {"torch float64": {}}, steps=20, tolerance=1e-5, **UNTIMED),
    gpt(
        "char-GPT on text, 300 steps of bfloat16",
        dataclasses.replace(CHAR, text=True),
        {"entrenar float32": dict(extra=True)},
        ours=LOWER,
        result=learned,
        steps=300,
        tolerance=1e-2,
        **UNTIMED,
    ),
]
