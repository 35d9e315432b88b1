"""F5: architectures, and text generation."""

from .generation import generate, stream
from .gpt2 import GPT2, GPT2Config
from .table import MODELS, build, model

__all__ = ["GPT2", "MODELS", "GPT2Config", "build", "generate", "model", "stream"]
