"""The configuration as a schema: every key, its type, its default, its range.  Unknown keys are errors."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from .model import DEFAULT, SECTIONS, AnyModel
from .section import Section

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class DataConfig(Section):
    """Text files, split into those to train on and those held out."""

    root: str = "stdlib"
    """a folder, or stdlib: the running interpreter's standard library"""
    pattern: str = "**/*.py"
    """a glob pattern: which files under root"""
    max_bytes: Positive | None = None
    """read no more than this; null reads all"""
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """the share of the files kept for validation, chosen by the hash of their path"""
    tokenizer: Literal["char"] = "char"
    """char: one token per character"""
    seq_len: Positive = 128
    """tokens per sequence"""
    batch_size: Positive = 16
    """sequences per batch"""


class OptimizerConfig(Section):
    """The optimizer and its constants."""

    name: Literal["sgd", "adam", "adamw"] = "adamw"
    """the rule"""
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """the learning rate at its peak"""
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    """adam, adamw: decay of the mean of gradients, and of their squares"""
    eps: Annotated[float, Field(gt=0)] = 1e-8
    """adam, adamw: added to the root of the mean square"""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """of matrices; biases and gains do not decay"""
    momentum: Fraction = 0.0
    """sgd: of the running sum of gradients"""
    state_dtype: Literal["bfloat16"] | None = None
    """adam, adamw: bfloat16 halves the moments' memory; null keeps the weights' dtype, float32 at least"""
    stochastic_rounding: bool = False
    """adam, adamw: of bfloat16 weights, so that updates below half a unit in the last place are not lost"""

    @model_validator(mode="after")
    def rounds(self) -> OptimizerConfig:
        """sgd keeps its state as it is."""
        if self.name == "sgd" and (self.state_dtype or self.stochastic_rounding):
            raise ValueError("state_dtype and stochastic_rounding are for adam and adamw, name is 'sgd'")
        return self


class SchedulerConfig(Section):
    """The learning rate over the run: warm-up, then a curve down to ``min_lr_ratio`` of the peak."""

    name: Literal["constant", "linear", "cosine"] = "cosine"
    """the curve after warm-up"""
    warmup_steps: Count = 0
    """update k of these (from 1) has k / warmup_steps of the peak; at most 30 % of the run"""
    min_lr_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """where the curve ends, as a share of the peak"""


class SampleConfig(Section):
    """The text printed at the end of a run."""

    prompt: str = "def "
    """what it goes on from"""
    tokens: Count = 200
    """how many are drawn; 0 draws none"""
    temperature: Annotated[float, Field(ge=0)] = 0.8
    """0 takes the likeliest token"""
    top_k: Positive | None = None
    """draw among the k likeliest only"""


class TrainingConfig(Section):
    """How long, how often, where."""

    steps: Positive = 1000
    """updates"""
    output: str = "runs/run"
    """the run folder"""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """of the weights, the order of the data and dropout"""
    accumulation: Positive = 1
    """batches per update"""
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    """gradients are scaled down to this norm; 0 leaves them as they are"""
    eval_every: Positive = 100
    """updates between validations"""
    eval_batches: Positive | None = None
    """batches of held-out text per validation, spread evenly; null takes all"""
    save_every: Positive = 100
    """updates between checkpoints"""
    keep: Positive = 3
    """how many checkpoints stay, those of the highest steps"""
    log_every: Positive = 10
    """updates between lines of progress where there is no terminal"""
    threads: Positive | None = None
    """of BLAS and kernels; null leaves the libraries' own choice"""
    sample: SampleConfig = SampleConfig()
    """the text printed at the end of a run"""


class Config(Section):
    """A whole run."""

    model: AnyModel = SECTIONS[DEFAULT]()  # type: ignore[call-arg]
    """the decoder, under Hugging Face's names; the vocabulary comes from the tokenizer"""
    data: DataConfig = DataConfig()
    """text files, and how they become batches"""
    optimizer: OptimizerConfig = OptimizerConfig()
    """the optimizer and its constants"""
    scheduler: SchedulerConfig = SchedulerConfig()
    """the learning rate over the run"""
    training: TrainingConfig = TrainingConfig()
    """how long, how often, where"""

    @model_validator(mode="after")
    def fits_together(self) -> Config:
        """What one section says of another."""
        if self.optimizer.state_dtype and self.model.dtype == "float64":
            raise ValueError("optimizer.state_dtype='bfloat16' does not go with model.dtype='float64'")
        if self.optimizer.stochastic_rounding and self.model.dtype != "bfloat16":
            raise ValueError(
                f"optimizer.stochastic_rounding is for model.dtype='bfloat16', which is {self.model.dtype!r}"
            )
        architecture = self.model.architecture(1)
        if self.data.seq_len > architecture.positions:
            field = architecture.ATTRIBUTES.get("max_position_embeddings", "max_position_embeddings")
            limit = f"model.{field}={getattr(architecture, field)}"
            if getattr(architecture, field) != architecture.positions:
                limit = f"{architecture.positions}, {limit} after its rope_scaling"
            raise ValueError(f"data.seq_len={self.data.seq_len} is above {limit}")
        if self.scheduler.warmup_steps > 0.3 * self.training.steps:
            raise ValueError(
                f"scheduler.warmup_steps={self.scheduler.warmup_steps} is more than 30 % of "
                f"training.steps={self.training.steps}"
            )
        return self
