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
    """Text files; root is a folder or ``stdlib``, the running interpreter's standard library."""

    root: str = "stdlib"
    pattern: str = "**/*.py"
    max_bytes: Positive | None = None
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.05
    tokenizer: Literal["char"] = "char"
    seq_len: Positive = 128
    batch_size: Positive = 16


class OptimizerConfig(Section):
    """The optimizer and its constants; momentum is sgd's, the others but lr and weight_decay are adam's and adamw's.

    state_dtype: bfloat16 halves the moments' memory.  stochastic_rounding: of bfloat16 weights, so that updates smaller
    than half a unit in the last place are not lost.
    """

    name: Literal["sgd", "adam", "adamw"] = "adamw"
    lr: Annotated[float, Field(gt=0)] = 1e-3
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    momentum: Fraction = 0.0
    state_dtype: Literal["bfloat16"] | None = None
    stochastic_rounding: bool = False

    @model_validator(mode="after")
    def rounds(self) -> OptimizerConfig:
        """sgd keeps its state as it is."""
        if self.name == "sgd" and (self.state_dtype or self.stochastic_rounding):
            raise ValueError("state_dtype and stochastic_rounding are for adam and adamw, name is 'sgd'")
        return self


class SchedulerConfig(Section):
    """The learning rate over the run: warm-up, then a curve down to ``min_lr_ratio`` of the peak."""

    name: Literal["constant", "linear", "cosine"] = "cosine"
    warmup_steps: Count = 0
    min_lr_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0


class SampleConfig(Section):
    """The text printed at the end of a run."""

    prompt: str = "def "
    tokens: Count = 200
    temperature: Annotated[float, Field(ge=0)] = 0.8
    top_k: Positive | None = None


class TrainingConfig(Section):
    """How long, how often, where."""

    steps: Positive = 1000
    output: str = "runs/run"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    accumulation: Positive = 1
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    eval_every: Positive = 100
    eval_batches: Positive | None = None
    save_every: Positive = 100
    keep: Positive = 3
    log_every: Positive = 10
    threads: Positive | None = None  # of BLAS and kernels; None leaves the libraries' own choice
    sample: SampleConfig = SampleConfig()


class Config(Section):
    """A whole run."""

    model: AnyModel = SECTIONS[DEFAULT]()  # type: ignore[call-arg]
    data: DataConfig = DataConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    training: TrainingConfig = TrainingConfig()

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
