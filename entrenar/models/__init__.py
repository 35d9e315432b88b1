"""F5: architectures, files of other libraries, and text generation."""

from .bert import Bert, BertConfig
from .folders import from_pretrained, save_pretrained
from .generation import generate, stream
from .gpt2 import GPT2, GPT2Config
from .llama import Llama, LlamaConfig
from .mistral import Mistral, MistralConfig
from .presets import PRESETS
from .qwen2 import Qwen2, Qwen2Config
from .table import MODELS, build, model

__all__ = [
    "GPT2",
    "MODELS",
    "PRESETS",
    "Bert",
    "BertConfig",
    "GPT2Config",
    "Llama",
    "LlamaConfig",
    "Mistral",
    "MistralConfig",
    "Qwen2",
    "Qwen2Config",
    "build",
    "from_pretrained",
    "generate",
    "model",
    "save_pretrained",
    "stream",
]
