"""F6: the configuration of a run."""

from .loading import dump_config, json_schema, load_config
from .schema import (
    Config,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    SampleConfig,
    SchedulerConfig,
    TrainingConfig,
)

__all__ = [
    "Config",
    "DataConfig",
    "ModelConfig",
    "OptimizerConfig",
    "SampleConfig",
    "SchedulerConfig",
    "TrainingConfig",
    "dump_config",
    "json_schema",
    "load_config",
]
