"""A language-model run from its configuration: data, tokenizer, model, optimizer, trainer; and back from a folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..array import Array, manual_seed
from ..config import Config, dump_config, load_config
from ..data import CharTokenizer, NGram, TextFiles, TokenBatches, Windows, read_texts
from ..io import ConfigError, DataError
from ..kernels.threads import set_num_threads
from ..models import MODELS, stream
from ..nn import Module
from ..optim import OPTIMIZERS, Optimizer, decay_groups, run_schedule
from .callbacks import Callback
from .options import TrainConfig
from .plot import plot_losses
from .run_folder import RunFolder
from .summary import measured_summary
from .trainer import Trainer

FREE_ON_RESUME = {  # what may change when a run goes on: nothing that decides a weight, but for the length of the run
    ("training", key) for key in ("steps", "output", "keep", "log_every", "save_every", "sample")
}


@dataclass
class LanguageRun:
    """Everything a run consists of.  train_tokens, held_out_tokens: int64, the texts of all files joined."""

    config: Config
    folder: RunFolder
    files: TextFiles
    tokenizer: CharTokenizer
    train_tokens: Array
    held_out_tokens: Array
    model: Any
    trainer: Trainer

    def baselines(self) -> dict[str, float]:
        """Loss on the held-out text of a bigram and a trigram table counted on the training text, nats per token."""
        size = self.tokenizer.vocab_size
        return {
            name: NGram(self.train_tokens, order, size).loss(self.held_out_tokens)
            for name, order in (("bigram", 2), ("trigram", 3))
        }

    def held_out_loss(self) -> float:
        """Loss of the model on the whole held-out text, nats per token."""
        data = self.config.data
        return self.trainer.validate(Windows(self.held_out_tokens, data.batch_size, data.seq_len))

    def write_head(self) -> None:
        """Write config.yaml, tokenizer.json, model_summary.json and data.json."""
        self.folder.write("config.yaml", dump_config(self.config))
        self.tokenizer.save(self.folder / "tokenizer.json")
        data = self.config.data
        summary = measured_summary(self.model, self.trainer.optimizer, data.seq_len, data.batch_size)
        self.folder.write("model_summary.json", json.dumps(summary, indent=1) + "\n")

        self.folder.write("data.json", json.dumps(self.data_facts(), indent=1) + "\n")

    def data_facts(self) -> dict[str, Any]:
        """How many files and tokens, and the sha256 of the tokens."""
        sides = (
            ("train", self.files.train, self.train_tokens),
            ("held_out", self.files.held_out, self.held_out_tokens),
        )
        return {
            name: {"files": len(files), "tokens": len(tokens), "sha256": hashlib.sha256(tokens).hexdigest()}
            for name, files, tokens in sides
        }

    def check_data(self) -> None:
        """Raise DataError if the text is not the one that the folder's run was trained on."""
        try:
            old = json.loads((self.folder / "data.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{self.folder / 'data.json'}: cannot be read: {error}") from None
        for name, facts in self.data_facts().items():
            if old.get(name) != facts:
                raise DataError(
                    f"{self.config.data.root}: the {name} text changed since this run began: {old.get(name)} then, "
                    f"{facts} now"
                )

    def write_result(self, facts: Mapping[str, Any]) -> None:
        """Write result.json."""
        self.folder.write("result.json", json.dumps(dict(facts), indent=1) + "\n")

    def write_picture(self, baselines: dict[str, float]) -> list[Path]:
        """Draw the loss curve; its files.  Raises ImportError without matplotlib (extra ``plot``)."""
        paths = [self.folder / "loss.svg", self.folder / "loss.png"]
        plot_losses(self.trainer.metrics, paths, baselines, title=self.folder.path.name)
        return paths

    def sample(self) -> str:
        """The text that the configuration asks for, prompt included."""
        wanted = self.config.training.sample
        return wanted.prompt + "".join(
            generate_text(
                self.model,
                self.tokenizer,
                wanted.prompt,
                wanted.tokens,
                wanted.temperature,
                wanted.top_k,
                self.config.training.seed,
            )
        )


def prepare(config: Config, output: Path | str | None = None, callbacks: Sequence[Callback] = ()) -> LanguageRun:
    """Read the data and build the run; the default generator is seeded, nothing is written.

    Raises DataError for missing or too little text, ConfigError for a prompt that the vocabulary cannot spell.
    """
    data, training = config.data, config.training
    files = read_texts(data.root, data.pattern, data.held_out, data.max_bytes)
    tokenizer = CharTokenizer.train([files.train_text])
    _check_prompt(config, tokenizer)
    train, held_out = tokenizer.encode(files.train_text), tokenizer.encode(files.held_out_text)
    if training.threads is not None:
        set_num_threads(training.threads)
    manual_seed(training.seed)
    model = build_model(config, tokenizer.vocab_size)
    optimizer = build_optimizer(config, model)
    schedule = run_schedule(
        config.scheduler.name,
        config.optimizer.lr,
        training.steps,
        config.scheduler.warmup_steps,
        config.scheduler.min_lr_ratio,
    )
    folder = RunFolder(output or training.output)
    trainer = Trainer(
        model,
        optimizer,
        TrainConfig(
            training.steps,
            training.accumulation,
            training.max_grad_norm,
            training.eval_every,
            training.save_every,
            training.keep,
        ),
        TokenBatches(train, data.batch_size, data.seq_len, training.seed),
        Windows(held_out, data.batch_size, data.seq_len, training.eval_batches),
        schedule,
        folder,
        callbacks,
    )
    return LanguageRun(config, folder, files, tokenizer, train, held_out, model, trainer)


def _check_prompt(config: Config, tokenizer: CharTokenizer) -> None:
    """The sample is drawn at the end: what would fail then fails now."""
    sample = config.training.sample
    if sample.tokens:
        try:
            _prompt_ids(tokenizer, sample.prompt)
        except ValueError as error:
            raise ConfigError("training.sample.prompt", None, None, str(error)) from None


def build_model(config: Config, vocab_size: int) -> Any:
    """The model of a configuration, initialised from the default generator."""
    section = config.model
    model: Any = MODELS[section.family][1](section.architecture(vocab_size))  # type: ignore[call-arg]
    return model.to(section.dtype)


def build_optimizer(config: Config, model: Module) -> Optimizer:
    """The optimizer of a configuration; biases and gains do not decay."""
    section = config.optimizer
    adams = ("betas", "eps", "state_dtype", "stochastic_rounding")
    own = {key: getattr(section, key) for key in (("momentum",) if section.name == "sgd" else adams)}
    groups = decay_groups(model.named_parameters(), section.weight_decay)
    seed = {} if section.name == "sgd" else {"seed": config.training.seed}
    return OPTIMIZERS[section.name](groups, lr=section.lr, **own, **seed)


def check_same_run(config: Config, folder: RunFolder) -> list[str]:
    """What a resumed run changes that it may, as "section.key: old -> new".

    Raises ConfigError naming every key that would make it another run, DataError if there is no run.
    """
    path = folder / "config.yaml"
    if not path.exists():
        raise DataError(f"{folder.path}: no run to resume (no config.yaml)")
    old, new = load_config(path).model_dump(), config.model_dump()
    changes: list[str] = []
    faults: list[str] = []
    for section in new:
        for key in new[section]:
            if key in old[section] and old[section][key] != new[section][key]:  # another family has other keys
                text = f"{section}.{key}: {old[section][key]!r} -> {new[section][key]!r}"
                (changes if (section, key) in FREE_ON_RESUME else faults).append(text)
    if faults:
        raise ConfigError(str(path), None, None, "this is another run, it cannot be resumed: " + "; ".join(faults))
    return changes


def load_run(path: Path | str, which: str = "best") -> tuple[Any, CharTokenizer, dict[str, Any]]:
    """(model in eval mode, tokenizer, state of its checkpoint) of a run folder.

    which: "best" validation loss (the last checkpoint if there is none) or "last".
    Raises DataError naming what is missing.
    """
    folder = RunFolder(path)
    if not (folder / "config.yaml").exists():
        raise DataError(f"{folder.path}: not a run folder (no config.yaml)")
    config = load_config(folder / "config.yaml")
    tokenizer = CharTokenizer.load(folder / "tokenizer.json")
    weights, state = folder.weights(which)
    model = build_model(config, tokenizer.vocab_size)
    try:
        model.load_state_dict(weights)
    except ValueError as error:
        raise DataError(f"{folder.path}: {error}") from None
    return model.eval(), tokenizer, state


def generate_text(
    model: Any,
    tokenizer: CharTokenizer,
    prompt: str,
    tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
) -> Iterable[str]:
    """The text that follows ``prompt``, a piece per token.

    Raises ValueError for an empty prompt, DataError for a character outside the vocabulary.
    """
    ids = _prompt_ids(tokenizer, prompt)
    draws = stream(model, ids, tokens, temperature, top_k, seed)
    return (tokenizer.decode(new) for new in draws)


def _prompt_ids(tokenizer: CharTokenizer, prompt: str) -> Array:
    """The ids of a prompt; raises as ``generate_text``."""
    if not prompt:
        raise ValueError("the prompt is empty: give at least one character")
    return tokenizer.encode(prompt, unknown="error")
