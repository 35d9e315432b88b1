"""F6: the configuration of a run."""

from .loading import dump_config, json_schema, load_config
from .model import ModelConfig
from .schema import Config, DataConfig, OptimizerConfig, SampleConfig, SchedulerConfig, TrainingConfig

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
