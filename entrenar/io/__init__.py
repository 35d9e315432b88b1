"""F4: files. Strict YAML, safetensors, folders of weights, the hub, and writing that is whole or not at all."""

from .atomic import ASIDE, atomic_folder, atomic_write
from .errors import ConfigError, DataError
from .hub import hub_folder
from .mapped import TensorFile, open_tensors
from .shards import Weights, open_weights, save_weights
from .tensors import load_tensors, save_tensors

__all__ = [
    "ASIDE",
    "ConfigError",
    "DataError",
    "TensorFile",
    "Weights",
    "atomic_folder",
    "atomic_write",
    "hub_folder",
    "load_tensors",
    "open_tensors",
    "open_weights",
    "save_tensors",
    "save_weights",
]
