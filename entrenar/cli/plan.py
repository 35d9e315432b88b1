"""What a run is going to be, in lines: data, model, plan."""

from __future__ import annotations

from ..config import Config
from ..nn import count_parameters
from ..train import LanguageRun


def plan_lines(run: LanguageRun, steps: int) -> list[str]:
    """Data, model and plan of a run that stops at ``steps``."""
    config: Config = run.config
    data, training = config.data, config.training
    batch = data.batch_size * training.accumulation
    epochs = steps * batch * data.seq_len / max(len(run.train_tokens), 1)
    files, tokens = run.files, (len(run.train_tokens), len(run.held_out_tokens))
    left_out = f"; {len(files.skipped)} files not UTF-8 left out" if files.skipped else ""
    stopping = f" (stopping at {steps:,})" if steps < training.steps else ""
    texts = (
        f"{data.root}: {len(files.train):,} files, {tokens[0]:,} characters to train on; "
        f"{len(files.held_out):,} files, {tokens[1]:,} held out{left_out}"
    )
    model = (
        f"{config.model.family}, {count_parameters(run.model):,} parameters: {run.model.config.describe()}, "
        f"vocabulary {run.tokenizer.vocab_size}"
    )
    plan = (
        f"{training.steps:,} steps{stopping} of {batch} x {data.seq_len} tokens, {epochs:.2f} epochs; "
        f"{config.optimizer.name}, lr {config.optimizer.lr:g}, {config.scheduler.name}, seed {training.seed}"
    )
    return [f"data     {texts}", f"model    {model}", f"plan     {plan}"]
