"""F4: files. Strict YAML, safetensors, and writing that is whole or not at all."""

from .atomic import ASIDE, atomic_folder, atomic_write
from .errors import ConfigError, DataError
from .tensors import load_tensors, save_tensors

__all__ = ["ASIDE", "ConfigError", "DataError", "atomic_folder", "atomic_write", "load_tensors", "save_tensors"]
